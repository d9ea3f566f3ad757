"""How waiters hear: one connection a store, one stream on it, and on that any number of watches, each from a revision.

None is lost: a watch is for what happens after the revision at which its owner looked. It begins *now*; if etcd then says that
revisions have passed in between, its owner is woken to look once more. (Begun at an older revision, etcd would tell by itself
what was missed, but only every 100 ms: it keeps such watches on a list of their own.) When the stream ends for whatever
reason (a member that lost its leader ends it by itself, since we ask for that), or a watch is refused, everybody concerned
is woken, to look for themselves.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...drivers.base import Bell, boot_time
from ...drivers.threads import ThreadBell
from ...errors import Unavailable
from ..kit.turns import Turns
from .proto import WATCH, Garbled, read_watch, watch_cancel, watch_create

if TYPE_CHECKING:
    from .wire import Connection, Metadata

# etcd takes three pings within 5 s of each other for an attack, and hangs up; and any, while nothing is being asked.
PING_AFTER = 8.0
GIVE_UP_AFTER = 13.0
GO_HOME_AFTER = 30.0  # with nothing to watch for so long, the ear's thread ends
HAS_LEADER = ((b"hasleader", b"true"),)
_TURN = 1.0
_SEND = 0.1  # seconds: a few hundred bytes that find no room in the kernel are for somebody who is not there


class Watch:
    """One waiter's. `over`: it will tell nothing more; `lost`: not because something happened, but the watch itself ended."""

    __slots__ = ("bell", "key", "lost", "number", "over", "range_end", "since")

    def __init__(self, key: bytes, range_end: bytes, since: int, bell: Bell, number: int) -> None:
        self.key = key
        self.range_end = range_end
        self.since = since
        self.bell = bell
        self.number = number
        self.over = self.lost = False

    def end(self, *, lost: bool) -> None:
        self.over, self.lost = True, lost
        self.bell.ring()


class Watches:
    """What is watched on one stream; both ears keep one."""

    def __init__(self) -> None:
        self._watches: dict[int, Watch] = {}
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._watches)

    def add(self, key: bytes, range_end: bytes, since: int, bell: Bell) -> Watch:
        self._last += 1
        watch = self._watches[self._last] = Watch(key, range_end, since, bell, self._last)
        return watch

    def remove(self, watch: Watch) -> bool:
        watch.over = True
        if self._watches.get(watch.number) is not watch:  # another stream's, of before a fork or of another loop
            return False
        del self._watches[watch.number]
        return True

    def hear(self, message: bytes) -> bytes | None:
        """Ring for whom it concerns; what to answer, if anything."""
        heard = read_watch(message)
        if heard.created and heard.canceled:
            # Refused, and etcd does not say which: the login that this stream began with has run out.
            raise EOFError("a watch was refused")
        watch = self._watches.get(heard.watch_id)
        if watch is None:
            return None
        if not (heard.events or heard.canceled):
            if heard.created and heard.revision >= watch.since:
                watch.bell.ring()  # what has passed since its owner looked may have been what it waits for
            return None
        self.remove(watch)
        watch.end(lost=heard.canceled)
        return watch_cancel(heard.watch_id) if not heard.canceled else None  # it has told what it was there for

    def lose(self) -> None:
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch.end(lost=True)


class ThreadEar:
    """The ear of one store, with a thread that listens while anybody waits."""

    def __init__(self, dial: Callable[[float], tuple[Connection, Metadata]]) -> None:
        self._dial = dial
        self._line: Connection | None = None
        self._closed = False
        self.forked()

    def forked(self) -> None:
        if self._line is not None:
            self._line.close()
        self._line = None
        self._stream = 0
        self._watches = Watches()
        self._mutex = threading.Lock()  # never held while somebody dials
        self._opening = Turns(ThreadBell, threading.current_thread)

    async def watch(self, key: bytes, range_end: bytes, since: int, bell: Bell, deadline: float) -> Watch:
        if self._line is None:
            await self._open(deadline)
        with self._mutex:
            watch = self._watches.add(key, range_end, since, bell)
            self._send(watch_create(watch.number, key, range_end))
        return watch

    def cancel(self, watch: Watch) -> None:
        with self._mutex:
            if self._watches.remove(watch):
                self._send(watch_cancel(watch.number))

    def lose(self) -> None:
        """The connection is no good: wake everybody to look for themselves."""
        with self._mutex:
            self._lose()

    def close(self) -> None:
        self._closed = True
        self.lose()

    async def _open(self, deadline: float) -> None:
        turn = self._opening.turn()
        try:
            if not await turn.come(deadline) or self._line is not None:
                return  # whoever finds no line is told so, and looks for itself
            line, metadata = self._dial(deadline)
            try:
                with self._mutex:
                    if self._closed:
                        raise Unavailable("this connection to etcd was closed")
                    self._line = line
                    self._metadata = (*metadata, *HAS_LEADER)
                    self._stream = 0  # begun with the first watch
                threading.Thread(target=self._listen, args=(line,), name="holdfast-etcd-ear", daemon=True).start()
            except BaseException:
                self.lose()
                line.close()
                raise
        finally:
            turn.over()

    def _send(self, message: bytes) -> None:
        line = self._line
        if line is None:
            self._watches.lose()
            return
        try:
            if self._stream:
                line.channel.send(self._stream, message)
            else:
                self._stream = line.channel.call(WATCH, message, self._metadata, end=False)
            line.flush(boot_time() + _SEND)
        except OSError:
            self._lose()
        except BaseException:  # half a message may have gone out
            self._lose()
            raise

    def _lose(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.hang_up()  # its thread closes it: done here, the descriptor could become somebody else's under its feet
        self._watches.lose()

    # ---- the thread that listens

    def _listen(self, line: Connection) -> None:
        heard = asked = needed = boot_time()
        try:
            while True:
                line.wait(_TURN)
                now = boot_time()
                with self._mutex:  # reading, too: a TLS connection must not be read and written at once
                    if self._line is not line:
                        return
                    received = line.read_now()
                    if received:
                        heard = asked = now
                        self._hear(line, received)
                    elif now - heard > GIVE_UP_AFTER and asked > heard:
                        return
                    elif now - asked > PING_AFTER and self._stream:
                        asked = now
                        line.channel.ping()
                        line.flush(now + _SEND)
                    if self._watches:
                        needed = now
                    elif now - needed > GO_HOME_AFTER:
                        return
        except (OSError, EOFError, ValueError, Garbled):  # ValueError: forked() or close() took the socket away
            return
        finally:
            with self._mutex:
                if self._line is line:
                    self._lose()
            with contextlib.suppress(OSError):
                line.close()

    def _hear(self, line: Connection, received: bytes) -> None:
        for told in line.channel.feed(received):
            if told.status is not None:
                raise EOFError("the stream of watches ended")
            if told.message:
                answer = self._watches.hear(told.message)
                if answer is not None:
                    line.channel.send(self._stream, answer)
        line.flush(boot_time() + _SEND)
