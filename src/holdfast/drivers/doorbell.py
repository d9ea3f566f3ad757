"""A push between processes of one machine: a datagram to a Unix socket that the kernel named for us.

Nothing is left on disk, the kernel closes the socket of a process that was killed, and ringing such a one says so at
once: that is how a dead waiter is found before its ttl ends. On Linux the addresses live in the network namespace, so
an address carries its namespace; from another one the bell cannot be rung, and waiting there falls back to a timer.
Anybody on the machine could ring: harmless, since a bell only means "look again".
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import sys
from functools import cache

_ABSTRACT = sys.platform == "linux"


@cache
def _namespace() -> str:
    with contextlib.suppress(OSError):
        return f"{os.stat('/proc/self/ns/net').st_ino:x}"
    return "-"


@cache
def _sender() -> socket.socket:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)
    atexit.register(sender.close)
    return sender


def open_socket() -> tuple[socket.socket, str]:
    """A socket to wait on, and the address that rings it."""
    bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        if _ABSTRACT:
            bell.bind(b"")
            path: str = bell.getsockname()[1:].decode()
        else:
            path = f"/tmp/holdfast-{os.urandom(8).hex()}.bell"  # bind() itself refuses a path that exists
            bell.bind(path)
    except BaseException:
        bell.close()
        raise
    return bell, f"{_namespace()}:{path}"


def close_socket(bell: socket.socket, address: str) -> None:
    bell.close()
    if not _ABSTRACT:
        with contextlib.suppress(OSError):
            os.unlink(address.partition(":")[2])


def drain(bell: socket.socket) -> None:
    """Several rings are one."""
    bell.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            bell.recv(1)


def ring(address: str) -> bool | None:
    """True: it will wake. False: nobody is there. None: not to be reached from here."""
    namespace, _, path = address.partition(":")
    if namespace != _namespace():
        return None
    try:
        _sender().sendto(b"!", f"\0{path}" if _ABSTRACT else path)
    except BlockingIOError:
        return True  # its buffer is full of rings that it has not answered yet
    except (ConnectionRefusedError, FileNotFoundError):
        return False
    except OSError:
        return None
    return True


class SocketBell:
    """The bell of a thread that waits for another process."""

    __slots__ = ("_socket", "address")

    def __init__(self) -> None:
        self._socket, self.address = open_socket()

    async def wait(self, timeout: float) -> None:
        self._socket.settimeout(max(timeout, 0.0))
        try:
            self._socket.recv(1)
        except (TimeoutError, BlockingIOError):
            return
        drain(self._socket)

    def ring(self) -> bool:
        return ring(self.address) is not False

    def close(self) -> None:
        close_socket(self._socket, self.address)
