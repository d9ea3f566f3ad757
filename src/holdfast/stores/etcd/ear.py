"""How waiters hear: one connection a store, one stream on it, and on that any number of watches, each from a revision.

None is lost: a watch is for what happens after the revision at which its owner looked. It begins *now*; if etcd then says that
revisions have passed in between, its owner is woken to look once more. (Begun at an older revision, etcd would tell by itself
what was missed, but only every 100 ms: it keeps such watches on a list of their own.) When the stream ends for whatever
reason (a member that lost its leader ends it by itself, since we ask for that), or a watch is refused, everybody concerned
is woken, to look for themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ...drivers.base import Bell, Driver
from ...errors import Unavailable
from ..kit.pool import Connection, Loan, Pool
from ..kit.turns import Turns
from .channel import Channel
from .replies import Garbled, read_watch
from .requests import WATCH, watch_cancel, watch_create

# etcd takes three pings within 5 s of each other for an attack, and hangs up; and any, while nothing is being asked.
PING_AFTER = 8.0
GIVE_UP_AFTER = 13.0
GO_HOME_AFTER = 30.0  # with nothing to watch for so long, the ear goes home
HAS_LEADER = ((b"hasleader", b"true"),)
_TURN = 1.0
Metadata = tuple[tuple[bytes, bytes], ...]


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
    """What is watched on one stream."""

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


class Ear:
    """The ear of one store: somebody listens in the background while anybody waits.

    What is sent is a few hundred bytes, under the mutex and without ever waiting: if they find no room, they are for somebody
    who is not there.
    """

    def __init__(self, pool: Pool, log_in: Callable[[Connection, float], Awaitable[Metadata]], driver: Driver) -> None:
        self._pool = pool
        self._log_in = log_in
        self._driver = driver
        self._connection: Connection | None = None
        self._home: Bell | None = None  # asleep, when the event loop is over, or stands still, in which the ear listens
        self._stream = 0  # begun with the first watch
        self._metadata: Metadata = ()
        self._watches = Watches()
        self._mutex = driver.mutex()  # never held while somebody dials
        self._opening = Turns(driver)
        self._closed = False

    async def watch(self, key: bytes, range_end: bytes, since: int, bell: Bell, deadline: float) -> Watch:
        if not self._listens():
            await self._open(deadline)
        with self._mutex:
            watch = self._watches.add(key, range_end, since, bell)
            await self._send(watch_create(watch.number, key, range_end))
        return watch

    async def cancel(self, watch: Watch) -> None:
        with self._mutex:
            if self._watches.remove(watch):
                await self._send(watch_cancel(watch.number))

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            self._lose()

    def _listens(self) -> bool:
        return self._connection is not None and self._home is not None and not self._home.asleep

    async def _open(self, deadline: float) -> None:
        turn = self._opening.turn()
        try:
            if not await turn.come(deadline) or self._listens():
                return  # whoever finds nobody listening is told so, and looks for itself
            with self._mutex:
                self._lose()
            loan, kept = Loan(), False
            try:
                connection = await self._pool.lend(loan, deadline, apart=True)
                metadata = await self._log_in(connection, deadline)
                with self._mutex:
                    if self._closed:
                        raise Unavailable("this connection to etcd was closed")
                    self._connection, self._stream, self._home = connection, 0, self._driver.bell()
                    self._metadata = (*metadata, *HAS_LEADER)
                self._driver.spawn(lambda: self._listen(connection, loan), "holdfast-etcd-ear")
                kept = True
            finally:
                if not kept:
                    with self._mutex:
                        self._lose()
                    self._pool.take_back(loan, whole=False)
        finally:
            turn.over()

    async def _send(self, message: bytes) -> None:
        connection = self._connection
        if connection is None:
            self._watches.lose()
            return
        channel: Channel = connection.state
        try:
            if self._stream:
                channel.send(self._stream, message)
            else:
                self._stream = channel.call(WATCH, message, self._metadata, end=False)
            await self._flush(connection)
        except OSError:
            self._lose()
        except BaseException:  # half a message may have gone out
            self._lose()
            raise

    async def _flush(self, connection: Connection) -> None:
        if waiting := connection.state.outgoing():
            await connection.stream.send(waiting, self._driver.now())

    def _lose(self) -> None:
        """The connection is no good: wake everybody to look for themselves. Whoever listens closes it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.stream.hang_up()
        self._watches.lose()

    # ---- in the background

    async def _listen(self, connection: Connection, loan: Loan) -> None:
        heard = asked = needed = self._driver.now()
        try:
            while True:
                try:
                    received = await connection.stream.receive(self._driver.now() + _TURN)
                except TimeoutError:
                    received = None
                with self._mutex:
                    now = self._driver.now()
                    if self._connection is not connection:
                        return
                    if received is not None:
                        heard = asked = now
                        self._hear(connection.state, received)
                    elif now - heard > GIVE_UP_AFTER and asked > heard:
                        return
                    elif now - asked > PING_AFTER and self._stream:
                        asked = now
                        connection.state.ping()
                    await self._flush(connection)
                    if self._watches:
                        needed = now
                    elif now - needed > GO_HOME_AFTER:
                        return
        except (OSError, EOFError, ValueError, Garbled):
            return
        finally:
            with self._mutex:
                if self._connection is connection:
                    self._lose()
            self._pool.take_back(loan, whole=False)

    def _hear(self, channel: Channel, received: bytes) -> None:
        for told in channel.feed(received):
            if told.status is not None and told.stream == self._stream:
                raise EOFError("the stream of watches ended")
            if told.message:
                answer = self._watches.hear(told.message)
                if answer is not None:
                    channel.send(self._stream, answer)
