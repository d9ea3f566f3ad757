"""One socket to a server. It never blocks: whoever uses it waits with poll(), against a deadline of their own.

Not with the kernel's SO_RCVTIMEO, which a signal starts anew (PEP 475).
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...drivers.base import boot_time, finish
from ...drivers.descriptors import another
from ...drivers.dialing import look_up
from ...drivers.polling import POLLIN, POLLOUT, poll
from ...drivers.sockets import shut_down, take_back
from ...drivers.threads import ThreadBell
from ...errors import HoldfastError, Misuse, Unavailable
from ..kit.url import tls_context
from .keys import pack
from .replies import MOST, MOST_GREETING, UNREADABLE, Bounds, ProtocolError, Reader, Reply, check_greeting, greeting
from .url import Address, Target, show

CHUNK = 8192
# ssl.SSLError is an OSError; the others: what answers is no Redis, or a rogue one that tells of a list of 2^31 elements.
BROKEN = (OSError, EOFError, ProtocolError, MemoryError, ValueError)
_WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_CONNECTING, _SHAKING_HANDS, _OPEN = "connecting", "shaking hands", "open"
_NEVER = float("inf")
_clock = time.monotonic
_UNIX = getattr(socket, "AF_UNIX", None)
# The last is how Windows says it.
_UNDER_WAY = (errno.EINPROGRESS, errno.EALREADY, getattr(errno, "WSAEWOULDBLOCK", errno.EALREADY))


class Disconnected(Unavailable):
    """The connection broke: the server may well be there, and whatever is harmless to repeat can be asked again at once."""


class Stuck(Disconnected):
    """It fell silent, and was given up: the server answers others. See kit/doubts.py."""


def stuck(where: str) -> Stuck:
    return Stuck(f"the connection to Redis at {where} has fallen silent, while the server answers on another")


# What a newcomer asks to see whether the server is well: something that it would not answer either while it does no writing, and
# that whoever may claim may ask. It knows no such script, and says so; whatever else it says (that our login is no good any more,
# that it has clients enough, that it is busy) says nothing of how it treats those whom it has let in.
ANYBODY = pack("EVALSHA", "0" * 40, 0)


class Connection:
    """After any failure in mid-conversation it is closed: the rest of its replies belongs to nobody."""

    def __init__(
        self,
        target: Target,
        address: Address,
        *,
        known: bool = False,
        deadline: float | None = None,
        opened: Callable[[], object] = bool,
    ) -> None:
        """Begins to connect, and to log in. What is sent meanwhile follows when that is done.

        Only a host's name is waited for, until the deadline: to look it up is the system's, and cannot be left half done.
        `opened` is called when something may have been sent.
        """
        self.address = address
        self.used = _clock()
        self.quick = False  # ready, and plain: put, poll and get may be used by hand
        self.heard = 0  # pieces, but for the shortest answers
        self.most = MOST  # bytes of a reply
        self.patience = 0.0
        self.owed: Callable[[bool | None], None] | None = None  # who is to be told the answer that nobody waited for
        self._patient: socket.SocketType | None = None
        self._target = target
        self._opened = opened
        self._reader = Reader()
        self._bounds = Bounds(self._reader)
        words = greeting(target, known=known)
        self._greeting, self._greeted = len(words), list[Reply]()
        self._out = b"".join(words)
        self._mutex = threading.Lock()  # an ear is read by one thread while another sends, and TLS bears no two at once
        self.wants = POLLOUT  # what poll() should wait for before `step`
        self._state = _CONNECTING
        self._opened_by = _clock() + target.timeout if deadline is None else deadline
        self._places = _places(address, self._opened_by)
        self._guarded(self._next_place)

    # ---- opening

    def _next_place(self) -> None:
        """Begin with the next of the addresses that the host has. One that is silent leaves some time for the others."""
        now = _clock()
        self._next_at = now + (self._opened_by - now) / len(self._places)
        family, self._place = self._places.pop(0)
        self._keep(socket.socket(family, socket.SOCK_STREAM))
        self._socket.setblocking(False)
        self._connect()

    def hurry(self) -> float:
        """When the next of its host's addresses is to be tried: if that is now, it is. Never, once it is connected."""
        if self._state is _CONNECTING and self._places and _clock() >= self._next_at:
            with self._mutex:
                self._socket.close()
                self._guarded(self._next_place)
        return self._next_at if self._state is _CONNECTING and self._places else _NEVER

    def _keep(self, connection: socket.socket) -> None:
        self._socket = connection
        # Forgotten by its user (a connection that was never closed), it goes without complaint.
        weakref.finalize(self, connection.close).atexit = False

    def _connect(self) -> None:
        code = self._socket.connect_ex(self._place)
        if code in _UNDER_WAY:
            return
        if code not in (0, errno.EISCONN):
            self._socket.close()
            if not self._places:
                why = "its line of newcomers is full" if code == errno.EAGAIN else os.strerror(code)
                raise Unavailable(f"cannot connect to Redis at {show(self.address)}: {why}")
            self._next_place()
            return
        if self._socket.family != _UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._target.tls:
            self._keep(
                tls_context(self._target.ca, self._target.cert, self._target.cert_key).wrap_socket(
                    self._socket, server_hostname=self.address[0], do_handshake_on_connect=False
                )
            )
            self._state = _SHAKING_HANDS
        else:
            # Looked up once: see BlockingWire.talk. Another socket of the same connection, so that a timeout of Python's own
            # (which no signal starts anew) costs no call by itself, and those who never wait are not made to.
            self._patient = patient = another(self._socket.fileno())
            patient.settimeout(0.0)
            weakref.finalize(self, patient.close).atexit = False
            self.put, self.get = self._socket.send, patient.recv
            self._state = _OPEN
            self._opened()
        self._go_on()

    def _shake_hands(self) -> None:
        assert isinstance(self._socket, ssl.SSLSocket)
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            self.wants = POLLIN
        except ssl.SSLWantWriteError:
            self.wants = POLLOUT
        except ssl.SSLError as error:
            raise no_tls(error, self.address) from error
        else:
            self._state = _OPEN
            self._opened()
            self._converse()

    # ---- talking

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """As much as goes at once; the rest with the next steps."""
        if self.quick:
            try:
                sent = self.put(request)
            except OSError:  # its buffers are full, or it is broken: that is told below
                sent = 0
            if sent == len(request):
                return
            self.quick, request = False, request[sent:]
        with self._mutex:
            self._out += request
            if self._state is _OPEN:
                self._guarded(self._flush)

    def step(self) -> None:
        """Go on, as far as that is possible without waiting."""
        with self._mutex:
            self._guarded(self._go_on)

    def next(self) -> Reply:
        """The next reply; False: it is not there yet. An error of the login is raised."""
        try:
            while (reply := self._reader.gets()) is not False:
                self._bounds.whole()
                if self._greeting:
                    self._greeting -= 1
                    self._greeted.append(reply)
                    if not self._greeting:
                        check_greeting(self._target, self.address, self._greeted)
                else:
                    return reply
        except HoldfastError:
            raise
        except UNREADABLE as error:
            raise self.broken(error) from error
        return False

    def hear(self) -> Reply:
        """`step`, and `next`: for one thread at a time, when there is something to do."""
        if not self.quick:
            self.step()
            return self.next()
        try:
            data = self._socket.recv(CHUNK)
            if data[:1] == b":" and self._bounds.between and data.find(b"\r\n") == len(data) - 2:
                number = data[1:-2]
                if number.isdigit():  # what a claim and a release are mostly told: no need to look further
                    return int(number)
            self._feed(data)
        except _WAIT:
            return False
        except BROKEN as error:
            raise self.broken(error) from error
        return self.next()

    @property
    def is_open(self) -> bool:
        """What is sent, goes out: the login need not have been answered."""
        return self._state is _OPEN

    @property
    def is_plain(self) -> bool:
        """Open, and without TLS."""
        return self._patient is not None

    @property
    def greeted(self) -> bool:
        """Connected and logged in."""
        return not self._greeting and self._state is _OPEN

    def finish(self, data: bytes, deadline: float) -> Reply:
        """The reply that begins with `data`, of a request that was put by hand."""
        self._feed(data)
        while (reply := self.next()) is False:
            if _clock() >= deadline or not self.wait(deadline):
                raise BlockingIOError
            self.step()
        return reply

    def settle(self, deadline: float) -> None:
        """Read the answer that nobody waited for."""
        self.settled(self.take(deadline))

    def settled(self, reply: Reply) -> None:
        answered, self.owed = self.owed, None
        if answered is not None:
            answered(bool(reply) if type(reply) is int else None)

    def take(self, deadline: float) -> Reply:
        """The next reply, with all that was put asked already."""
        while (reply := self.next()) is False:
            left = deadline - _clock()
            if left <= 0:
                raise BlockingIOError
            if not left <= self.patience <= left + 0.05:  # to change it costs a call of the system's
                self.be_patient(left)
            self._feed(self.get(CHUNK))
        return reply

    def be_patient(self, seconds: float) -> None:
        """So long `get` waits from now on."""
        assert self._patient is not None
        self.patience = seconds
        self._patient.settimeout(max(seconds, 0.001))

    def wait(self, deadline: float) -> bool:
        """Until there is something to do; False: the deadline came first."""
        while True:
            until = min(deadline, self.hurry())
            ready = poll()
            ready.register(self._socket, self.wants)
            if ready.poll(max(0.0, until - _clock()) * 1000):
                return True
            if _clock() >= deadline:
                return False

    def _go_on(self) -> None:
        if self._state is _OPEN:
            self._converse()
        elif self._state is _SHAKING_HANDS:
            self._shake_hands()
        else:
            self._connect()

    def _converse(self) -> None:
        self._flush()
        # Until nothing is left: poll() does not see what TLS has unpacked already.
        while True:
            try:
                data = self._socket.recv(CHUNK)
            except _WAIT:
                return
            self._feed(data)
            if len(data) < CHUNK and not self._target.tls:
                return

    def _feed(self, data: bytes) -> None:
        self.heard += 1
        self._reader.feed(self._bounds.check(data or _end(), MOST_GREETING if self._greeting else self.most))

    def _flush(self) -> None:
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out) :]
        except _WAIT:
            self.wants = POLLIN | POLLOUT
        else:
            self.wants = POLLIN

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except HoldfastError:
            raise
        except BROKEN as error:
            raise self.broken(error) from error

    def broken(self, error: BaseException) -> Disconnected:
        return Disconnected(f"lost the connection to Redis at {show(self.address)}: {error}")

    def late(self, within: float) -> Unavailable:
        time_given = f"within {within:.3g} s" if within > 0.001 else "in time"
        hint = WITHOUT_TLS if self._state is _SHAKING_HANDS else ""
        return Unavailable(f"Redis at {show(self.address)} did not answer {time_given}{hint}")

    async def speaks(self, within: float) -> bool:
        """Within so many seconds."""
        return self.wait(_clock() + within)

    def is_stale(self) -> bool:
        """Did the server close it, or say something unasked, while it lay idle?"""
        return self.wait(0.0)

    def hang_up(self) -> None:
        """End the conversation under a thread that may be reading; it, or somebody else, has still to close."""
        with contextlib.suppress(OSError):
            shut_down(self._socket)  # not as TLS does it, which changes what the other reads with

    def give_up(self) -> None:
        """Close it, and see to it that nothing of what it was asked arrives any more: it is asked again, or taken back."""
        take_back(self._socket.fileno())
        self.close()

    def close(self) -> None:
        self._socket.close()
        if self._patient is not None:
            self._patient.close()
        self.settled(None)


class Talk:
    """Requests on one connection, and their replies as they come."""

    def __init__(self, connection: Connection, requests: Sequence[bytes]) -> None:
        self.connection = connection
        self.replies: list[Reply] = []
        self.trouble: HoldfastError | None = None
        self._count = len(requests)
        self._go_on(lambda: connection.send(b"".join(requests)))

    @property
    def is_over(self) -> bool:
        return self.trouble is not None or len(self.replies) == self._count

    def step(self) -> None:
        self._go_on(self.connection.step)

    def hurry(self) -> float:
        try:
            return self.connection.hurry()
        except HoldfastError as error:
            self.trouble = error
            return _NEVER

    def _go_on(self, action: Callable[[], None]) -> None:
        try:
            action()
            while len(self.replies) < self._count and (reply := self.connection.next()) is not False:
                self.replies.append(reply)
        except HoldfastError as error:
            self.trouble = error


def together(talks: Sequence[Talk], within: float, *, late: bool = True) -> None:
    """Read whoever answers, until all have, or it is time. Trouble of one is its own, and stands in its `trouble`.

    `late`: so is that it did not answer. Else one may go on.
    """
    deadline = _clock() + within
    while True:
        until = min([deadline, *(talk.hurry() for talk in talks if not talk.is_over)])
        open_ = {talk.connection.fileno(): talk for talk in talks if not talk.is_over}
        if not open_:
            return
        waiting = poll()
        for descriptor, talk in open_.items():
            waiting.register(descriptor, talk.connection.wants)
        ready = waiting.poll(max(0.0, until - _clock()) * 1000)
        for descriptor, _ in ready:
            open_[descriptor].step()
        if _clock() >= deadline:  # whoever talks without an end can always be read
            for talk in open_.values() if late else ():
                if not talk.is_over:
                    talk.trouble = talk.connection.late(within)
            return


class Dialler:
    """How a thread connects: see dialing.py."""

    async def open(self, target: Target, address: Address, deadline: float, *, known: bool) -> Connection:
        within = deadline - _clock()
        connection = Connection(target, address, known=known, deadline=deadline)
        try:
            # Look first: to a socket of this machine we are connected at once, and a quick server has answered already.
            while not known:
                if connection.next() is not False:
                    raise connection.broken(ConnectionError("it answers what nobody has asked"))
                if connection.greeted:
                    break
                if _clock() >= deadline or not connection.wait(deadline):
                    raise connection.late(max(within, 0.0))
                connection.step()
        except BaseException:
            connection.close()
            raise
        return connection

    async def ask(self, connection: Connection, request: bytes, deadline: float) -> Reply:
        talk = Talk(connection, [request])
        together([talk], deadline - _clock())
        if talk.trouble is not None:
            raise talk.trouble
        return talk.replies[0]

    def close(self, connection: Connection) -> None:
        connection.close()


def _end() -> bytes:
    raise EOFError("the server closed it")


def _places(address: Address, deadline: float) -> list[tuple[int, Any]]:
    if not address[1]:
        if _UNIX is None:
            raise Misuse(
                f"there are no Unix sockets for Python on this system: reach Redis at {show(address)} by host and port"
            )
        return [(_UNIX, address[0])]
    try:
        found = finish(look_up(address, ThreadBell(), boot_time() + deadline - _clock()))
    except OSError as error:
        raise Unavailable(f"cannot connect to Redis at {show(address)}: {error}") from error
    return [(family, where) for family, _, _, _, where in found]


# Its server may take a greeting of TLS for a long word, and wait for the rest of it.
WITHOUT_TLS = "; if it speaks no TLS, write redis:// instead of rediss://"


def no_tls(error: ssl.SSLError, address: Address) -> HoldfastError:
    """A server that hangs up in the middle is restarting; whatever else is wrong with its TLS, somebody has to mend."""
    if isinstance(error, _HUNG_UP):
        return Disconnected(f"Redis at {show(address)} hung up while TLS was being set up: {error}")
    return Misuse(f"no TLS with Redis at {show(address)}: {error}; see the options ca, cert, cert_key")
