"""Streams for threads: sockets that never block by themselves, and poll() against the deadline."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import struct
import threading
import weakref
from typing import Any

from .base import Address, Bell, boot_time
from .descriptors import another, nothing
from .dialing import dial
from .polling import POLLIN, POLLOUT, POLLRDHUP, poll

CHUNK = 65536
_AT_ONCE = struct.pack("ii", 1, 0)
_UNDER_WAY = (0, errno.EINPROGRESS, getattr(errno, "WSAEWOULDBLOCK", 0))  # the last is how Windows says it


def until(plain: socket.socket, event: int, deadline: float) -> None:
    """Until it is ready. TimeoutError: it was not, by then."""
    ready = poll()
    ready.register(plain, event)
    left = deadline - boot_time()
    if not ready.poll(max(left, 0.0) * 1000):
        raise TimeoutError("no answer in time")


def has_something(plain: Any) -> bool:
    """Bytes, or the end: to be read without waiting."""
    ready = poll()
    ready.register(plain, POLLIN)
    return bool(ready.poll(0))


def has_hung_up(plain: Any) -> bool:
    """Will nothing more come? Where that cannot be told (not on Linux), it is not."""
    ready = poll()
    ready.register(plain, POLLRDHUP)
    return bool(ready.poll(0)) if POLLRDHUP else False


def has_failed(plain: Any) -> bool:
    """Was it reset? uvloop tells whoever reads it once, together with what had come before, and then never again."""
    ready = poll()
    ready.register(plain, 0)
    return bool(ready.poll(0))


def void(plain: Any) -> None:
    """What others may still own becomes nothing: to close it would give its number away under them."""
    if plain is None or plain.fileno() < 0:
        return
    with nothing() as end:
        number = plain.fileno()  # asked last: it may have been closed meanwhile, and the number be somebody else's
        if number >= 0:
            os.dup2(end.fileno(), number, inheritable=False)


def shut_down(plain: Any) -> None:
    """Not by TLS's own word, after which it would go on without TLS. And as its own kind of socket does that: socket.socket may
    be gevent's by now, which came after this one was made, and knows what to do with its own only."""
    own: Any = next(kind for kind in type(plain).__mro__ if kind.__name__ == "socket")
    own.shutdown(plain, socket.SHUT_RDWR)


def take_back(number: int) -> None:
    """What the other side has not got yet, it shall never get, once this is closed.

    Else the system goes on sending it for minutes: after an outage, a claim that was given up long ago, and looked for in vain,
    would arrive, and stay for its ttl.
    """
    with contextlib.suppress(OSError):
        same = another(number)
        try:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        finally:
            same.close()


def bear(plug: Any, seconds: float) -> None:
    """For so long the system may send into the void before it ends the connection."""
    if plug is not None and plug.family != socket.AF_UNIX and hasattr(socket, "TCP_USER_TIMEOUT"):
        with contextlib.suppress(OSError):
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, round(seconds * 1000)))


class SocketStream:
    def __init__(self, plain: socket.socket) -> None:
        self._socket = plain
        # Forgotten by its user (a store that was never closed), it goes without complaint.
        weakref.finalize(self, plain.close).atexit = False

    async def send(self, data: bytes, deadline: float) -> None:
        sent = 0
        while True:
            with contextlib.suppress(BlockingIOError):
                sent += self._socket.send(data[sent:] if sent else data)
            if sent == len(data):
                return
            until(self._socket, POLLOUT, deadline)

    async def receive(self, deadline: float) -> bytes:
        while True:
            until(self._socket, POLLIN, deadline)
            with contextlib.suppress(BlockingIOError):  # it was a false alarm
                return self._socket.recv(CHUNK)

    def is_stale(self) -> bool:
        return has_something(self._socket)

    def hang_up(self) -> None:
        with contextlib.suppress(OSError):
            shut_down(self._socket)

    def give_up(self) -> None:
        take_back(self._socket.fileno())
        self.close()

    def close(self) -> None:
        self._socket.close()

    disown = close  # of our descriptor only; not a byte is sent


class TlsStream(SocketStream):
    """Over TLS, which must not be read and written by two threads at the same moment."""

    def __init__(self, plain: ssl.SSLSocket) -> None:
        super().__init__(plain)
        self._tls = plain
        self._mutex = threading.Lock()

    async def send(self, data: bytes, deadline: float) -> None:
        sent = 0
        while sent < len(data):
            try:
                with self._mutex:
                    sent += self._tls.send(data[sent:])
            except ssl.SSLWantReadError:
                until(self._tls, POLLIN, deadline)
            except ssl.SSLWantWriteError:
                until(self._tls, POLLOUT, deadline)

    async def receive(self, deadline: float) -> bytes:
        while True:  # TLS may have some bytes already that the socket does not show any more
            try:
                with self._mutex:
                    return self._tls.recv(CHUNK)
            except ssl.SSLWantReadError:
                until(self._tls, POLLIN, deadline)
            except ssl.SSLWantWriteError:
                until(self._tls, POLLOUT, deadline)

    def is_stale(self) -> bool:
        try:
            with self._mutex:
                self._tls.recv(1)
        except ssl.SSLWantReadError:
            return False  # at most a word between the two TLS, such as a ticket for the next time
        except OSError:
            return True
        return True


async def connect(address: Address, tls: ssl.SSLContext | None, deadline: float, bell: Bell) -> SocketStream:
    async def open_one(plain: socket.socket, where: Any, share: float) -> SocketStream:
        trouble = plain.connect_ex(where)
        if trouble not in _UNDER_WAY:
            raise OSError(trouble, os.strerror(trouble))
        until(plain, POLLOUT, share)
        trouble = plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if trouble:
            raise OSError(trouble, os.strerror(trouble))
        return SocketStream(plain) if tls is None else TlsStream(_shake_hands(plain, tls, address[0], deadline))

    return await dial(address, bell, deadline, open_one)


def _shake_hands(plain: socket.socket, tls: ssl.SSLContext, host: str, deadline: float) -> ssl.SSLSocket:
    wrapped = tls.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
    try:
        while True:
            try:
                wrapped.do_handshake()
                return wrapped
            except ssl.SSLWantReadError:
                until(wrapped, POLLIN, deadline)
            except ssl.SSLWantWriteError:
                until(wrapped, POLLOUT, deadline)
    except BaseException:
        wrapped.close()
        raise
