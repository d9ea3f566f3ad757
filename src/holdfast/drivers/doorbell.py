"""A push between processes of one machine: a datagram to a Unix socket that lies beside the file that they share.

    locks.db-bells/0f3a…    one for each who waits, for as long as it waits

Found by its path and not by its network, it can be rung from one container in another, wherever each has mounted the folder.
Whoever may write the file may ring, and nobody else: the sockets and their folder have the rights of the file. Whoever owns the
folder above can put anything in the place of what we have just made, and root is not led astray by it: the folder is held by a
descriptor, no link is followed, and nothing is removed but a socket in it, or given away but an empty folder and our own socket.

A socket outlives a process that was killed, but to ring it is then refused by the kernel at once: that is how a dead waiter is
found before its ttl ends, and what is left of it goes. Where no socket can be made, waiting falls back to a timer.
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
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_PATH = getattr(os, "O_PATH", 0)  # Linux: hold what is there, without opening it
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
    gone = asleep = False

    def __init__(self, beside: str) -> None:
        self._beside = beside
        self._pid = os.getpid()
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no sockets that lie beside a file")
        self.address = os.urandom(8).hex()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(f"{beside}-bells", 0o700)
            with _opened(beside) as (folder, rights):
                _share_folder(folder, rights)
                path = _reach(beside, folder, self.address)
                self._socket.bind(path)
                _share_socket(self._socket, path, rights)
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
        if self._pid != os.getpid():
            return  # it is the parent's, who may be waiting
        with contextlib.suppress(OSError), _opened(self._beside) as (folder, _):
            with contextlib.suppress(OSError):
                os.unlink(self.address, dir_fd=folder)
            if self._beside not in _swept:
                _swept.add(self._beside)
                _sweep(self._beside, folder)


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
    try:
        with _opened(beside) as (folder, _):
            try:
                _send(b"!", _reach(beside, folder, address))
            except ConnectionRefusedError:
                _remove(address, folder)
                return False
    except BlockingIOError:
        return True  # its buffer is full of rings that it has not answered yet
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return True


def _send(word: bytes, path: str) -> None:
    if _sender().fileno() >= 0:
        _sender().sendto(word, path)
        return
    with socket.socket(
        socket.AF_UNIX, socket.SOCK_DGRAM
    ) as sender:  # closed: the process ends, and releases what it holds
        sender.setblocking(False)
        sender.sendto(word, path)


def _remove(name: str, folder: int) -> None:
    """Only a socket: what is none refuses a ring as well."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _opened(beside: str) -> Iterator[tuple[int, os.stat_result]]:
    """The folder of the bells, and the rights of the file. Not by its path, where a link may lie a moment later."""
    rights = os.stat(beside)
    folder = os.open(f"{beside}-bells", _FOLDER)
    try:
        if os.fstat(folder).st_uid not in (rights.st_uid, os.geteuid(), 0):
            # In a folder like /tmp, anybody may have made it.
            raise PermissionError(f"{beside}-bells belongs to somebody else")
        yield folder, rights
    finally:
        os.close(folder)


def _reach(beside: str, folder: int, name: str) -> str:
    """The path of a socket: in that very folder, and short enough, where the system has a way to say so."""
    path = f"{beside}-bells/{name}"
    return f"/proc/self/fd/{folder}/{name}" if _held_by_number() or len(os.fsencode(path)) > _LONGEST_PATH else path


@cache
def _held_by_number() -> bool:
    return bool(_PATH) and os.path.isdir("/proc/self/fd")


def _share_folder(folder: int, rights: os.stat_result) -> None:
    """With those who share the file. Only while it is empty: another folder of ours may have been put in its place."""
    mode = stat.S_IMODE(rights.st_mode) & 0o666 | 0o600
    mode |= (mode & 0o444) >> 2  # who may read it may enter
    if mode & 0o022:
        mode |= stat.S_ISVTX  # several may put sockets there, and each takes away its own
    found = os.fstat(folder)
    wanted = mode, rights.st_uid, rights.st_gid
    if (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) != wanted and not os.listdir(folder):
        _share(folder, rights, mode)


def _share_socket(bound: socket.socket, path: str, rights: os.stat_result) -> None:
    mode = stat.S_IMODE(rights.st_mode) & 0o666 | 0o600
    if not _held_by_number():
        _share(path, rights, mode, follow_symlinks=False)
        return
    found = os.open(path, _PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Ours, if what is said to it is heard here; else it was put there by whoever may change the folder.
        held, word = f"/proc/self/fd/{found}", os.urandom(16)
        _send(word, held)
        bound.setblocking(False)
        while bound.recv(len(word)) != word:
            pass  # somebody rings already
        _share(held, rights, mode)
    finally:
        os.close(found)


def _share(what: int | str, rights: os.stat_result, mode: int, **how: bool) -> None:
    """If it is in our power; it is, unless several users do."""
    with contextlib.suppress(OSError):
        os.chown(what, rights.st_uid, rights.st_gid, **how)
    with contextlib.suppress(OSError, NotImplementedError):
        os.chmod(what, mode, **how)


def _sweep(beside: str, folder: int) -> None:
    """Once a process: take away what the killed have left behind."""
    too_young = time.time() - _LEFT_BEHIND
    with os.scandir(folder) as entries:
        for entry, _ in zip(entries, range(_SWEEP), strict=False):
            about = entry.stat(follow_symlinks=False)
            if not stat.S_ISSOCK(about.st_mode) or about.st_mtime > too_young:
                continue
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
                try:
                    probe.connect(_reach(beside, folder, entry.name))
                except ConnectionRefusedError:
                    _remove(entry.name, folder)
