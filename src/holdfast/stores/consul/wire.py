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
import weakref
from typing import Protocol

from ...drivers.base import boot_time as _clock
from ...drivers.threads import ThreadBell
from ...errors import Misuse, Unavailable
from ..turns import Turns
from .http import Answer, Reader, most_of, request
from .url import Address, Target, show

_FRESH = 0.1  # a connection that lay longer may have been closed by the agent meanwhile: look before use
_MOST_IDLE = 16
MOST_AT_ONCE = 32  # Consul lets one client have 200 connections
_CHUNK = 65536


class Unreachable(Unavailable):
    """No host could be connected to: to try again at once would not help."""


class Wire(Protocol):
    """The connections of one store. A request takes at most `within` seconds, waiting for a free connection included."""

    where: str

    async def ask(self, method: str, path: str, body: bytes, within: float) -> Answer: ...

    async def ask_apart(self, method: str, path: str, body: bytes, within: float) -> Answer:
        """On a connection that no crowd can keep from it: for renewals, and for blocking queries."""
        ...

    def forked(self) -> None:
        """In a forked child: let go of what was inherited without a word."""
        ...

    def close(self) -> None:
        """Hang up, also under those who are listening."""
        ...


class _Connection:
    def __init__(self, target: Target, address: Address, deadline: float) -> None:
        self.address = address
        self.used = _clock()
        self.socket = _open(target, address, deadline)
        # Forgotten by its user (a store that was never closed), it goes without complaint.
        weakref.finalize(self, self.socket.close).atexit = False

    def ask(self, sent: bytes, most: int, deadline: float) -> tuple[Answer, bool]:
        """The answer, and whether the connection may be used again."""
        reader = Reader(most)
        self.socket.settimeout(_left(deadline))
        self.socket.sendall(sent)
        while True:
            self.socket.settimeout(_left(deadline))
            data = self.socket.recv(_CHUNK)
            if not data:
                return reader.end(), False
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
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
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


def tls_context(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca or None)
        if target.cert:
            context.load_cert_chain(target.cert, target.cert_key or None)
    except OSError as error:
        raise Misuse(f"cannot read the certificates named in the URL (ca, cert, cert_key): {error}") from error
    return context


def full(where: str) -> Unavailable:
    return Unavailable(f"Consul at {where}: {MOST_AT_ONCE} requests of this process were before this one")


def unreachable(failures: list[str], where: str) -> Unreachable:
    return Unreachable(f"cannot connect to Consul at {'; '.join(failures) or f'{where}: no time was left'}")


def no_tls(address: Address, error: Exception) -> Misuse:
    return Misuse(f"no TLS with Consul at {show(address)}: {error}; see the options ca, cert, cert_key")


def lost(address: Address, error: BaseException, within: float) -> Unavailable:
    if isinstance(error, TimeoutError):
        return Unavailable(f"Consul at {show(address)} did not answer within {max(within, 0.0):.3g} s")
    return Unavailable(f"lost the connection to Consul at {show(address)}: {error}")


def left_of(deadline: float, where: str) -> float:
    left = deadline - _clock()
    if left <= 0:
        raise Unavailable(f"Consul at {where} did not answer in time")
    return left


def share(target: Target, deadline: float) -> float:
    """Until when a request may wait for one host, so that one that has fallen silent leaves some time for the next."""
    now = _clock()
    return now + (deadline - now) / min(len(target.addresses), 3)


class BlockingWire:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self._mutex = threading.Lock()
        self._room = Turns(ThreadBell, threading.current_thread, MOST_AT_ONCE)
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._at = 0  # the host that served last
        self._closed = False

    async def ask(self, method: str, path: str, body: bytes, within: float) -> Answer:
        deadline = _clock() + within
        turn = self._room.turn()
        try:
            if not await turn.come(deadline):
                raise full(self.where)
            return await self.ask_apart(method, path, body, deadline - _clock())
        finally:
            turn.over()

    async def ask_apart(self, method: str, path: str, body: bytes, within: float) -> Answer:
        deadline = _clock() + within
        connection = self._take(deadline)
        done = False
        try:
            sent = request(self.target, connection.address, method, path, body)
            answer, done = connection.ask(sent, most_of(path), share(self.target, deadline))
        except (OSError, EOFError, ValueError, ssl.SSLError) as error:
            self._pass_over(connection.address)
            raise lost(connection.address, error, within) from error
        finally:
            self._put_back(connection, done)
        if answer.status >= 500:
            self._pass_over(connection.address)  # it may be cut off from the quorum, and another may not
        return answer

    def _take(self, deadline: float) -> _Connection:
        while True:
            with self._mutex:
                if self._closed:
                    raise Unreachable("this connection to Consul was closed")
                connection = self._idle.pop() if self._idle else None
                if connection is not None:
                    self._busy.add(connection)
                at = self._at
            if connection is None:
                return self._dial(at, deadline)
            if _clock() - connection.used < _FRESH or not connection.is_stale():
                return connection
            self._put_back(connection, False)

    def _dial(self, at: int, deadline: float) -> _Connection:
        failures = []
        count = len(self.target.addresses)
        for step in range(count):
            now = _clock()
            if now >= deadline:
                break
            address = self.target.addresses[(at + step) % count]
            try:
                connection = _Connection(self.target, address, now + (deadline - now) / (count - step))
            except ssl.SSLError as error:
                raise no_tls(address, error) from error
            except OSError as error:
                failures.append(f"{show(address)}: {error}")
                continue
            with self._mutex:
                self._at = (at + step) % count
                self._busy.add(connection)
            return connection
        raise unreachable(failures, self.where)

    def _put_back(self, connection: _Connection, whole: bool) -> None:
        connection.used = _clock()
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

    def forked(self) -> None:
        for one in (*self._idle, *self._busy):
            one.socket.close()  # this closes our descriptor only; not a byte is sent

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = list(self._busy)
        for one in idle:
            one.socket.close()
        for one in busy:
            one.hang_up()
