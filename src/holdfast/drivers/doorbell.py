"""A push between processes of one machine: a datagram to a Unix socket that lies beside the file that they share.

    locks.db-bells/0f3a…    one for each who waits, for as long as it waits

Found by its path and not by its network, it can be rung from one container in another, wherever each has mounted the folder.
Whoever may write the file may ring, and nobody else: the sockets and their folder have the rights of the file. A socket
outlives a process that was killed, but to ring it is then refused by the kernel at once: that is how a dead waiter is found
before its ttl ends, and what is left of it goes. Where no socket can be made, waiting falls back to a timer.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import stat
import time
from collections.abc import Iterator
from functools import cache

_LONGEST_PATH = 100  # of a socket: 108 bytes on Linux, 104 elsewhere
_LEFT_BEHIND = 60.0  # seconds: what is younger may be about to be used
_SWEEP = 500  # sockets looked at by a process that has waited for the first time
_MOST_RINGS = 100
_swept: set[str] = set()


@cache
def _sender() -> socket.socket:
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)
    atexit.register(sender.close)
    return sender


class Socket:
    """A socket to wait on, and the address that rings it."""

    __slots__ = ("_beside", "_pid", "_socket", "address")
    gone = False

    def __init__(self, beside: str) -> None:
        self._beside = beside
        self._pid = os.getpid()
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no sockets that lie beside a file")
        rights = os.stat(beside)
        folder = _make_folder(beside, rights)
        self.address = os.urandom(8).hex()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            with _reach(folder, self.address) as path:
                self._socket.bind(path)
                _share(path, rights, stat.S_IMODE(rights.st_mode) & 0o666 | 0o600)
        except BaseException:
            self.close()
            raise

    def drain(self) -> None:
        """Several rings are one."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_RINGS):  # whoever goes on ringing does not keep us here
                self._socket.recv(1)

    def ring(self) -> bool:
        return ring(self.address, self._beside) is not False

    def close(self) -> None:
        self._socket.close()
        if self._pid == os.getpid():  # else it is the parent's, who may be waiting
            folder = f"{self._beside}-bells"
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, self.address))
            if folder not in _swept:
                _sweep(folder)


class SocketBell(Socket):
    """The bell of a thread that waits for another process."""

    __slots__ = ()

    async def wait(self, timeout: float) -> None:
        self._socket.settimeout(max(timeout, 0.0))
        try:
            self._socket.recv(1)
        except (TimeoutError, BlockingIOError):
            return
        self.drain()


def ring(address: str, beside: str) -> bool | None:
    """True: it will wake. False: nobody is there. None: not to be reached from here."""
    if not address.isalnum() or not hasattr(socket, "AF_UNIX"):
        return None
    folder = f"{beside}-bells"
    try:
        with _reach(folder, address) as path:
            if _sender().fileno() >= 0:
                _sender().sendto(b"!", path)
            else:  # closed: the process ends, and releases what it holds
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                    sender.setblocking(False)
                    sender.sendto(b"!", path)
    except BlockingIOError:
        return True  # its buffer is full of rings that it has not answered yet
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, address))
        return False
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return True


@contextlib.contextmanager
def _reach(folder: str, name: str) -> Iterator[str]:
    """A path that is short enough for a socket; by way of the folder's descriptor, if there is no other."""
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def _make_folder(beside: str, rights: os.stat_result) -> str:
    folder = f"{beside}-bells"
    mode = stat.S_IMODE(rights.st_mode) & 0o666 | 0o600
    mode |= (mode & 0o444) >> 2  # who may read it may enter
    if mode & 0o022:
        mode |= stat.S_ISVTX  # several may put sockets there, and each takes away its own
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (rights.st_uid, os.geteuid(), 0):
        raise PermissionError(f"{folder} belongs to somebody else")  # in a folder like /tmp, anybody may have made it
    if (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) != (mode, rights.st_uid, rights.st_gid):
        _share(folder, rights, mode)
    return folder


def _share(path: str, rights: os.stat_result, mode: int) -> None:
    """With those who share the file, if it is in our power; it is, unless several users do."""
    with contextlib.suppress(OSError):
        os.chown(path, rights.st_uid, rights.st_gid)
    with contextlib.suppress(OSError):
        os.chmod(path, mode)


def _sweep(folder: str) -> None:
    """Once a process: take away what the killed have left behind."""
    _swept.add(folder)
    too_young = time.time() - _LEFT_BEHIND
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(_SWEEP), strict=False):
            if not stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode) or entry.stat().st_mtime > too_young:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
                try:
                    with _reach(folder, entry.name) as path:
                        probe.connect(path)
                except ConnectionRefusedError:
                    os.unlink(entry.path)
