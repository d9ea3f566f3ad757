"""Plain sockets for threads. A thread takes a connection for one conversation and puts it back. Nothing is retried here.

A host that cannot be reached is passed over before anything was sent. One that fails in mid-conversation ends that
conversation, since nobody knows what became of the request, and the next one goes to the next host.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
import weakref
from types import TracebackType
from typing import Any, Protocol

from ...errors import Misuse, Unavailable
from .http import Answer, Reader, request
from .url import Address, Target, show

_FRESH = 0.1  # a connection that lay longer may have been closed by the agent meanwhile: look before use
_MOST_IDLE = 16
MOST_AT_ONCE = 32  # Consul lets one client have 200 connections
_CHUNK = 65536


GATE_PATIENCE = 4  # times the timeout: a crowd of this process may have to pass first


class Gate(Protocol):
    """One at a time."""

    async def __aenter__(self) -> object: ...
    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> object: ...


class Wire(Protocol):
    """The connections of one store."""

    where: str

    def gate(self) -> Gate:
        """A new one."""
        ...

    async def ask(self, method: str, path: str, body: bytes, within: float) -> Answer: ...

    async def ask_apart(self, method: str, path: str, body: bytes, within: float) -> Answer:
        """On a connection that no crowd can keep from it: for renewals, and for blocking queries."""
        ...

    def close(self) -> None:
        """Hang up, also under those who are listening."""
        ...


class _ThreadGate:
    def __init__(self, target: Target) -> None:
        self._lock = threading.Lock()
        self._patience = GATE_PATIENCE * target.timeout

    async def __aenter__(self) -> None:
        if not self._lock.acquire(timeout=self._patience):
            raise crowded(self._patience)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


class _Connection:
    def __init__(self, target: Target, address: Address, timeout: float) -> None:
        self.address = address
        self.used = time.monotonic()
        self.socket = _open(target, address, timeout)
        # Forgotten by its user (a store that was never closed), it goes without complaint.
        weakref.finalize(self, self.socket.close).atexit = False

    def ask(self, sent: bytes, deadline: float) -> tuple[Answer, bool]:
        """The answer, and whether the connection may be used again."""
        reader = Reader()
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        self.socket.sendall(sent)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.socket.settimeout(left)
            data = self.socket.recv(_CHUNK)
            if not data:
                raise EOFError("the agent closed it")
            answer = reader.feed(data)
            if answer is not None:
                return answer, reader.keeps_alive

    def is_stale(self) -> bool:
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(0))

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


def _open(target: Target, address: Address, timeout: float) -> socket.socket:
    connection = socket.create_connection(address, timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if not target.tls:
        return connection
    try:
        return tls_context(target).wrap_socket(connection, server_hostname=address[0])
    except BaseException:
        connection.close()
        raise


def tls_context(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca or None)
        if target.cert:
            context.load_cert_chain(target.cert, target.cert_key or None)
    except OSError as error:
        raise Misuse(f"cannot read the certificates named in the URL (ca, cert, cert_key): {error}") from error
    return context


def crowded(seconds: float) -> Unavailable:
    return Unavailable(f"waited {seconds:g} s for others of this process who ask Consul for the same")


def no_tls(address: Address, error: Exception) -> Misuse:
    return Misuse(f"no TLS with Consul at {show(address)}: {error}; see the options ca, cert, cert_key")


def lost(address: Address, error: BaseException, within: float) -> Unavailable:
    if isinstance(error, TimeoutError):
        return Unavailable(f"Consul at {show(address)} did not answer within {within:.3g} s")
    return Unavailable(f"lost the connection to Consul at {show(address)}: {error}")


def share(target: Target, within: float) -> float:
    """How much of its time a request may spend on one host, so that one that has fallen silent leaves some for the next."""
    return within / min(len(target.addresses), 3)


class BlockingWire:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self._mutex = threading.Lock()
        self._room = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._at = 0  # the host that served last
        self._closed = False

    def gate(self) -> Gate:
        return _ThreadGate(self.target)

    async def ask(self, method: str, path: str, body: bytes, within: float) -> Answer:
        if not self._room.acquire(timeout=within):
            raise Unavailable(f"Consul at {self.where}: {MOST_AT_ONCE} requests of this process were before this one")
        try:
            return await self.ask_apart(method, path, body, within)
        finally:
            self._room.release()

    async def ask_apart(self, method: str, path: str, body: bytes, within: float) -> Answer:
        within = share(self.target, within)
        connection = self._take(within)
        done = False
        try:
            sent = request(self.target, connection.address, method, path, body)
            answer, done = connection.ask(sent, time.monotonic() + within)
        except (OSError, EOFError, ValueError, ssl.SSLError) as error:
            self._pass_over(connection.address)
            raise lost(connection.address, error, within) from error
        finally:
            self._put_back(connection, done)
        if answer.status >= 500:
            self._pass_over(connection.address)  # it may be cut off from the quorum, and another may not
        return answer

    def _take(self, within: float) -> _Connection:
        while True:
            with self._mutex:
                if self._closed:
                    raise Unavailable("this connection to Consul was closed")
                connection = self._idle.pop() if self._idle else None
                if connection is not None:
                    self._busy.add(connection)
                at = self._at
            if connection is None:
                return self._dial(at, within)
            if time.monotonic() - connection.used < _FRESH or not connection.is_stale():
                return connection
            self._put_back(connection, False)

    def _dial(self, at: int, within: float) -> _Connection:
        failures = []
        count = len(self.target.addresses)
        for step in range(count):
            address = self.target.addresses[(at + step) % count]
            try:
                connection = _Connection(self.target, address, within)
            except ssl.SSLError as error:
                raise no_tls(address, error) from error
            except OSError as error:
                failures.append(f"{show(address)}: {error}")
                continue
            with self._mutex:
                self._at = (at + step) % count
                self._busy.add(connection)
            return connection
        raise Unavailable(f"cannot connect to Consul at {'; '.join(failures)}")

    def _put_back(self, connection: _Connection, whole: bool) -> None:
        connection.used = time.monotonic()
        with self._mutex:
            self._busy.discard(connection)
            keep = whole and not self._closed and len(self._idle) < _MOST_IDLE
            if keep:
                self._idle.append(connection)
        if not keep:
            connection.socket.close()

    def _pass_over(self, address: Address) -> None:
        addresses = self.target.addresses
        with self._mutex:
            if addresses[self._at] == address:
                self._at = (self._at + 1) % len(addresses)
            gone = [one for one in self._idle if one.address == address]
            self._idle = [one for one in self._idle if one.address != address]
        for one in gone:
            one.socket.close()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for one in idle:
            one.socket.close()
        for one in busy:
            one.hang_up()
