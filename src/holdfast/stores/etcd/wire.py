"""Plain sockets for threads. A thread takes a connection for one conversation and puts it back.

Nothing is sent twice: when a connection fails in mid-conversation, the caller is told Unavailable, and the next conversation
goes to the next member. Only what certainly did nothing (no connection; a login that ran out) is tried again here.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import weakref
from collections.abc import Sequence

from ...drivers.base import boot_time as _clock
from ...errors import Misuse, Unavailable
from .channel import Channel, Status, Told
from .ear import ThreadEar
from .proto import AUTHENTICATE, TXN, Done, login, read_login, read_txn
from .refusals import Refused, failure
from .talk import Call, Outcome, Unreachable, answer_of, share
from .url import Address, Target, show, tls_context

Metadata = tuple[tuple[bytes, bytes], ...]

_FRESH = 0.1  # a connection that lay longer may have been closed by the server meanwhile: look before use
_MOST_IDLE = 16
_CHUNK = 65536
# A member that is killed, or has too much to do, in the middle of the handshake: its certificate is not to blame.
HUNG_UP = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


class Connection:
    """One socket. After a failure in mid-conversation it is closed."""

    def __init__(self, target: Target, address: Address, deadline: float) -> None:
        self.where = show(address)
        try:
            self._socket = _open(target, address, deadline)
        except HUNG_UP as error:
            raise Unavailable(f"cannot connect to etcd at {self.where}: it hung up in the middle of TLS") from error
        except ssl.SSLError as error:
            raise Misuse(f"no TLS with etcd at {self.where}: {error}; see the options ca, cert, cert_key") from error
        except OSError as error:
            raise Unavailable(f"cannot connect to etcd at {self.where}: {error}") from error
        # Forgotten by its user (a connection that was never closed), it goes without complaint.
        weakref.finalize(self, self._socket.close).atexit = False
        self.channel = Channel(self.where, tls=target.tls)
        self.used = _clock()
        self.whole = True  # not in the middle of a conversation that was given up

    def ask_all(self, calls: Sequence[Call], metadata: Metadata, deadline: float) -> list[Outcome]:
        """All are sent before the first answer is read. What has none by the deadline is Unavailable, alone."""
        answers: dict[int, bytes] = {}
        ends: dict[int, Status] = {}
        numbers: list[int] = []
        try:
            for path, message in calls:
                numbers.append(self.channel.call(path, message, metadata))
            self.flush(deadline)
            while len(ends) < len(numbers):
                for number, message, status in self.receive(deadline):
                    if status is not None:
                        ends[number] = status
                    elif number:
                        answers[number] = message
                self.flush(deadline)
        except (OSError, EOFError) as error:
            self.whole = False
            trouble: Outcome = self.broken(error)
        except BaseException:
            self.whole = False
            raise
        outcomes: list[Outcome] = []
        for at in range(len(calls)):
            number = numbers[at] if at < len(numbers) else 0
            status = ends.get(number)
            if status is None:
                outcomes.append(trouble)
            else:
                outcomes.append(failure(status, self.where) if status.code else answers.get(number, b""))
        return outcomes

    def receive(self, deadline: float) -> list[Told]:
        self._socket.settimeout(_left(deadline))
        return self.channel.feed(self._socket.recv(_CHUNK) or _end())

    def wait(self, timeout: float) -> None:
        """Until there may be something to read."""
        if not (isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()):
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            poll.poll(timeout * 1000)

    def read_now(self) -> bytes:
        """What there is to read, b"" if there is nothing."""
        self._socket.settimeout(0)
        try:
            return self._socket.recv(_CHUNK) or _end()
        except (BlockingIOError, ssl.SSLWantReadError):
            return b""

    def flush(self, deadline: float) -> None:
        waiting = self.channel.outgoing()
        if waiting:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(waiting)

    def is_stale(self) -> bool:
        """Did the server close it while it lay idle? What else it said meanwhile (a ping) is answered."""
        try:
            received = self.read_now()
            if received:
                self.channel.feed(received)
                self.flush(_clock() + 1)
        except (OSError, EOFError):
            return True
        return False

    def broken(self, error: Exception) -> Unavailable:
        if isinstance(error, TimeoutError):
            return Unavailable(f"etcd at {self.where} did not answer in time")
        return Unavailable(f"lost the connection to etcd at {self.where}: {error}")

    def hang_up(self) -> None:
        """End the conversation under a thread that may be reading; it has still to close."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def _end() -> bytes:
    raise EOFError("the server closed it")


def _left(deadline: float) -> float:
    left = deadline - _clock()
    if left <= 0:
        raise TimeoutError("no answer in time")
    return left


def _open(target: Target, address: Address, deadline: float) -> socket.socket:
    trouble: OSError = TimeoutError("no answer in time")
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    for at, (family, kind, protocol, _, where) in enumerate(found):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(_left(deadline) / (len(found) - at))
            connection.connect(where)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not target.tls:
                return connection
            connection.settimeout(_left(deadline))
            return tls_context(target).wrap_socket(connection, server_hostname=address[0])
        except ssl.SSLError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            trouble = error
        except BaseException:
            connection.close()
            raise
    raise trouble


class BlockingWire:
    """The connections of one store: as many as threads talk at once, one for renewals, one ear."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self.member = os.urandom(1)[0] % len(target.addresses)  # not all clients of a fleet at the first
        self._idle: list[Connection] = []
        self._renewing: Connection | None = None
        self._metadata: Metadata = ()
        self._closed = False
        self.ear = ThreadEar(self._open_watch)

    async def ask(self, path: bytes, message: bytes, deadline: float) -> bytes:
        return self._ask(path, message, deadline)

    async def transact(self, name: str, transaction: bytes, deadline: float) -> Done:
        """A transaction about one name."""
        return read_txn(self._ask(TXN, transaction, deadline))

    def _ask(self, path: bytes, message: bytes, deadline: float) -> bytes:
        connection = self._take(deadline)
        try:
            outcome = self._converse(connection, ((path, message),), deadline)[0]
        except BaseException:
            connection.close()
            raise
        self._put_back(connection, outcome)
        return answer_of(outcome)

    async def ask_apart(self, calls: Sequence[Call], deadline: float) -> list[Outcome]:
        """Used by one thread at a time: the renewer, and at last whoever closes."""
        connection, self._renewing = self._renewing, None
        if connection is not None and connection.is_stale():
            connection.close()
            connection = None
        connection = connection or self._dial(deadline)
        try:
            outcomes = self._converse(connection, calls, deadline)
        except BaseException:
            connection.close()
            raise
        if connection.whole and not any(isinstance(one, Unavailable) for one in outcomes):
            self._renewing = connection
        else:
            connection.close()
            self.member += 1
        return outcomes

    def forked(self) -> None:
        for connection in (*self._idle, *([self._renewing] if self._renewing else [])):
            connection.close()  # this closes our descriptor only; not a byte is sent
        self._idle = []
        self._renewing = None
        self.ear.forked()

    async def close(self) -> None:
        self._closed = True
        self.ear.close()
        self._empty()
        connection, self._renewing = self._renewing, None
        if connection is not None:
            connection.close()

    # ---- connections

    def _open_watch(self, deadline: float) -> tuple[Connection, Metadata]:
        """For the ear: a connection of its own, logged in afresh if need be."""
        connection = self._dial(deadline)
        try:
            if self.target.username:
                self._log_in(connection, deadline)
        except BaseException:
            connection.close()
            raise
        return connection, self._metadata

    def _converse(self, connection: Connection, calls: Sequence[Call], deadline: float) -> list[Outcome]:
        until = share(deadline, len(self.target.addresses))
        try:
            if self.target.username and not self._metadata:
                self._log_in(connection, until)
            outcomes = connection.ask_all(calls, self._metadata, until)
            stale = [at for at, one in enumerate(outcomes) if isinstance(one, Refused) and one.is_login_stale]
            if self.target.username and stale:
                self._log_in(connection, until)
                again = connection.ask_all([calls[at] for at in stale], self._metadata, until)
                for at, outcome in zip(stale, again, strict=True):
                    outcomes[at] = outcome
        except (Unavailable, Refused) as error:  # the login's
            return [error] * len(calls)
        return outcomes

    def _log_in(self, connection: Connection, deadline: float) -> None:
        words = login(self.target.username, self.target.password)
        answer = answer_of(connection.ask_all(((AUTHENTICATE, words),), (), deadline)[0])
        self._metadata = ((b"token", read_login(answer)),)

    def _take(self, deadline: float) -> Connection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._dial(deadline)
            now = _clock()
            fresh = now - connection.used < _FRESH
            connection.used = now
            if fresh or not connection.is_stale():
                return connection
            connection.close()

    def _put_back(self, connection: Connection, outcome: Outcome) -> None:
        if isinstance(outcome, Unavailable):
            # What made this member fail has most likely failed all that lie here; the next conversation starts afresh.
            connection.close()
            self.member += 1
            self._empty()
        elif connection.whole and len(self._idle) < _MOST_IDLE and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()

    def _dial(self, deadline: float) -> Connection:
        """To the first member that can be connected to, beginning with the one that served last."""
        if self._closed:
            raise Unreachable("this connection to etcd was closed")
        addresses = self.target.addresses
        failures = []
        for left in range(len(addresses), 0, -1):
            now = _clock()
            if now >= deadline:
                break
            try:
                address = addresses[self.member % len(addresses)]
                return Connection(self.target, address, now + (deadline - now) / left)
            except Unavailable as error:
                failures.append(str(error))
                self.member += 1
        raise Unreachable("; ".join(failures) or f"no time was left to connect to etcd at {self.where}")

    def _empty(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()
