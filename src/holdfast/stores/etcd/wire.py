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
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TypeVar

from ...errors import Misuse, Unavailable
from .channel import Channel, Status, Told
from .ear import ThreadEar
from .proto import AUTHENTICATE, TXN, Done, login, read_login, read_txn
from .refusals import Refused, failure
from .url import Address, Target, show, tls_context

T = TypeVar("T")
Metadata = tuple[tuple[bytes, bytes], ...]
Call = tuple[bytes, bytes]  # the method's path, the message

_FRESH = 0.1  # a connection that lay longer may have been closed by the server meanwhile: look before use
_MOST_IDLE = 16
_CHUNK = 65536
_clock = time.monotonic


class Connection:
    """One socket. After a failure in mid-conversation it is closed."""

    def __init__(self, target: Target, address: Address, timeout: float) -> None:
        self.where = show(address)
        try:
            self._socket = _open(target, address, timeout)
        except ssl.SSLError as error:
            raise Misuse(f"no TLS with etcd at {self.where}: {error}; see the options ca, cert, cert_key") from error
        except OSError as error:
            raise Unavailable(f"cannot connect to etcd at {self.where}: {error}") from error
        # Forgotten by its user (a connection that was never closed), it goes without complaint.
        weakref.finalize(self, self._socket.close).atexit = False
        self.channel = Channel(self.where, tls=target.tls)
        self.used = _clock()

    def ask_all(self, calls: Sequence[Call], metadata: Metadata, deadline: float) -> list[bytes]:
        """All are sent before the first answer is read. The first refusal is raised when all have been answered."""
        answers: dict[int, bytes] = {}
        ends: dict[int, Status] = {}
        try:
            numbers = [self.channel.call(path, message, metadata) for path, message in calls]
            self.flush(deadline)
            while len(ends) < len(numbers):
                for number, message, status in self.receive(deadline):
                    if status is not None:
                        ends[number] = status
                    elif number:
                        answers[number] = message
                self.flush(deadline)
        except (OSError, EOFError) as error:
            raise self.broken(error) from error
        for number in numbers:
            if ends[number].code:
                raise failure(ends[number], self.where)
        return [answers.get(number, b"") for number in numbers]

    def receive(self, deadline: float) -> list[Told]:
        self._socket.settimeout(max(0.001, deadline - _clock()))
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
            self._socket.settimeout(max(0.001, deadline - _clock()))
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


def _open(target: Target, address: Address, timeout: float) -> socket.socket:
    connection = socket.create_connection(address, timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not target.tls:
        return connection
    try:
        return tls_context(target).wrap_socket(connection, server_hostname=address[0])
    except BaseException:
        connection.close()
        raise


class ThreadMutex:
    """A lock of threads in the clothes of asyncio's: the store is written once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class BlockingWire:
    """The connections of one store: as many as threads talk at once, one for renewals, one ear."""

    mutex = ThreadMutex

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self.member = os.urandom(1)[0] % len(target.addresses)  # not all clients of a fleet at the first
        self._idle: list[Connection] = []
        self._renewing: Connection | None = None
        self._metadata: Metadata = ()
        self.ear = ThreadEar(self._open_watch)

    async def ask(self, path: bytes, message: bytes) -> bytes:
        return self._ask(path, message)

    async def transact(self, name: str, transaction: bytes) -> Done:
        """A transaction about one name."""
        return read_txn(self._ask(TXN, transaction))

    def _ask(self, path: bytes, message: bytes) -> bytes:
        deadline = _clock() + self.target.timeout
        connection = self._take(deadline)
        try:
            answer = self._converse(connection, ((path, message),), deadline)[0]
        except Refused:
            self._idle.append(connection)
            raise
        except BaseException as error:
            self._drop(connection, error)
            raise
        if len(self._idle) < _MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return answer

    async def ask_apart(self, calls: Sequence[Call], within: float) -> list[bytes]:
        """On a connection that user work cannot keep busy. Used by one thread, the renewer."""
        deadline = _clock() + min(within, self.target.timeout)
        connection, self._renewing = self._renewing, None
        if connection is not None and connection.is_stale():
            connection.close()
            connection = None
        connection = connection or self._dial(deadline)
        try:
            answers = self._converse(connection, calls, deadline)
        except Refused:
            self._renewing = connection
            raise
        except BaseException as error:
            self._drop(connection, error)
            raise
        self._renewing = connection
        return answers

    def forked(self) -> None:
        for connection in (*self._idle, *([self._renewing] if self._renewing else [])):
            connection.close()  # this closes our descriptor only; not a byte is sent
        self._idle = []
        self._renewing = None
        self.ear.forked()

    async def close(self) -> None:
        self._empty()
        connection, self._renewing = self._renewing, None
        if connection is not None:
            connection.close()
        self.ear.lose()

    # ---- connections

    def _open_watch(self) -> tuple[Connection, Metadata]:
        """For the ear: a connection of its own, logged in afresh if need be."""
        deadline = _clock() + self.target.timeout
        connection = self._dial(deadline)
        try:
            if self.target.username:
                self._log_in(connection, deadline)
        except BaseException:
            connection.close()
            raise
        return connection, self._metadata

    def _converse(self, connection: Connection, calls: Sequence[Call], deadline: float) -> list[bytes]:
        if self.target.username and not self._metadata:
            self._log_in(connection, deadline)
        try:
            return connection.ask_all(calls, self._metadata, deadline)
        except Refused as refused:
            if not (self.target.username and refused.is_login_stale):
                raise
            self._log_in(connection, deadline)
            return connection.ask_all(calls, self._metadata, deadline)

    def _log_in(self, connection: Connection, deadline: float) -> None:
        words = login(self.target.username, self.target.password)
        (answer,) = connection.ask_all(((AUTHENTICATE, words),), (), deadline)
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

    def _dial(self, deadline: float) -> Connection:
        return first_of(self, deadline, lambda address, timeout: Connection(self.target, address, timeout))

    def _drop(self, connection: Connection, error: BaseException) -> None:
        connection.close()
        if isinstance(error, Unavailable):
            # What made this member fail has most likely failed all that lie here; the next conversation starts afresh.
            self.member += 1
            self._empty()

    def _empty(self) -> None:
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()


def first_of(wire: BlockingWire, deadline: float, connect: Callable[[Address, float], T]) -> T:
    """The first member that can be connected to, beginning with the one that served last."""
    addresses = wire.target.addresses
    failures = []
    for left in range(len(addresses), 0, -1):
        timeout = (deadline - _clock()) / left
        if timeout <= 0:
            break
        try:
            return connect(addresses[wire.member % len(addresses)], timeout)
        except Unavailable as error:
            failures.append(str(error))
            wire.member += 1
    raise Unavailable("; ".join(failures) or f"no time was left to connect to etcd at {wire.where}")
