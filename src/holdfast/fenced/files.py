"""A file that refuses whoever was overtaken.

Beside `name` stand two small files: `.name.fence` holds the mark, and `.name.fence-lock` is what the operating system
locks. The mark moves to the disk before the content does, and each is replaced as a whole: whatever crashes, and wherever,
the content is the old or the new one, and the mark never lags behind it.

In a folder that others may write to, their names can be guessed: so none is ever followed if it is a link, and none is
trusted that has a second name, or belongs to somebody else than this user or the folder's owner, who could replace everything
anyway. Links in the path of the file itself are followed as the kernel would be told to: see `drivers/paths.py`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import stat
import time
from collections.abc import Iterator
from typing import Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

from ..drivers.paths import resolved
from ..errors import Misuse, Unavailable
from .in_a_thread import InAThread
from .mark import Mark, Ticket, mark_of, refusal, shown, valid_token

log = logging.getLogger("holdfast.fenced")
_warned: set[str] = set()

PATIENCE = 10.0  # seconds to wait for another process that is just reading or writing


class File:
    """One file and one lease. For the processes of one machine, on a local file system."""

    def __init__(self, path: str | os.PathLike[str], ticket: Ticket) -> None:
        if fcntl is None:
            raise Misuse("a fenced file needs the locks of POSIX (flock), which this system does not have")
        self._mark = mark_of(ticket)
        self._path, self._seal = _places(path)
        self._folder = os.path.dirname(self._path)
        self._lock = f"{self._seal}-lock"

    def __repr__(self) -> str:
        return shown(self, self._mark, self._path)

    def read(self) -> bytes | None:
        """The content, or None if there is no such file; from now on, older tokens are refused."""
        with self._sealed():
            try:
                with open(_open_plain(self._path, os.O_RDONLY), "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, content: bytes) -> None:
        """Replace the content as a whole; it is on the disk when this returns."""
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise Misuse(f"the content of a file must be bytes, not {type(content).__name__}: encode it")
        with self._sealed():
            self._replace(self._path, content, 0o666)

    def delete(self) -> bool:
        """Remove the file, never its mark. Was there one?"""
        with self._sealed():
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                return False
            self._sync_folder()
            return True

    @contextlib.contextmanager
    def _sealed(self) -> Iterator[None]:
        with self._locked():
            if os.path.islink(self._path):  # it was none when its mark was found, and leads to what has another mark
                raise _planted(self._path)
            seen, since = self._seen()
            if self._mark.token < seen:
                raise refusal(self._mark, seen, since)
            if self._mark.token > seen:
                record = {"resource": self._mark.resource, "token": self._mark.token, "since": time.time()}
                self._replace(self._seal, json.dumps(record).encode(), 0o600)
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The kernel lets go of it when the process dies, however it dies."""
        lock, process = self._lock_file(), os.getpid()
        try:
            _warn_of(self._folder)
            yield
        finally:
            if os.getpid() == process:
                # Said aloud: a child that was forked meanwhile has the same open file, and would keep the lock while it lives.
                fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _lock_file(self) -> int:
        """Open and locked; and still the one that others find by its name: whoever removed it has made it nobody's."""
        deadline = time.monotonic() + PATIENCE
        pause = 0.0005
        while time.monotonic() < deadline:
            try:
                lock = _open_own(self._lock, os.O_RDWR | os.O_CREAT)
            except FileNotFoundError:
                raise Misuse(f"{self._path}: the folder {self._folder} does not exist") from None
            try:
                if os.fstat(lock).st_mode & 0o077 and os.fstat(lock).st_uid == os.geteuid():
                    os.fchmod(lock, 0o600)  # whoever can open it can hold it, and earlier versions let everybody
                while not (locked := _try_lock(lock)) and time.monotonic() < deadline:
                    time.sleep(pause)
                    pause = min(pause * 2, 0.02)
                if locked and _is_at(lock, self._lock):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)
        raise Unavailable(
            f"{self._path} has been in use by another process for {PATIENCE:g} s: is one stopped in the middle?"
        )

    def _seen(self) -> tuple[int, float | None]:
        try:
            resource, token, since = _record(self._seal)
        except FileNotFoundError:
            return 0, None
        if resource != self._mark.resource:
            raise Misuse(
                f"{self._path} is guarded by the lock {resource!r}, not by {self._mark.resource!r}: tokens of different locks "
                "do not compare"
            )
        return token, since

    def _replace(self, path: str, content: bytes, mode: int) -> None:
        """A leftover of a crash is removed: only one process at a time is here. `mode`: of a file that is not there yet."""
        new = f"{self._seal}-new"
        with contextlib.suppress(FileNotFoundError):
            try:
                os.unlink(new)
            except PermissionError as error:
                raise _planted(new) from error
        before = None
        if path != self._seal:
            with contextlib.suppress(FileNotFoundError):
                before = os.stat(path).st_mode & 0o7777
        with open(
            _open_own(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode if before is None else 0o600), "wb"
        ) as file:
            if before is not None:
                os.fchmod(file.fileno(), before)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
        self._sync_folder()

    def _sync_folder(self) -> None:
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _places(path: str | os.PathLike[str]) -> tuple[str, str]:
    """Of the content, without links, and of its mark."""
    try:
        content = resolved(os.fspath(path))
    except PermissionError as error:
        raise _planted(error.filename or os.fspath(path)) from error
    folder, name = os.path.split(content)
    return content, os.path.join(folder, f".{name}.fence")


def _record(seal: str) -> tuple[str, int, float]:
    """The lock, the token and the time of a mark; FileNotFoundError if there is none."""
    with open(_open_own(seal, os.O_RDONLY), "rb") as file:
        text = file.read()
    try:
        record: Any = json.loads(text)
        return str(record["resource"]), valid_token(record["token"]), float(record["since"])
    except (ValueError, KeyError, TypeError) as error:
        raise Misuse(
            f"{seal} is damaged ({error}): it was not written by holdfast. Nothing was read or changed. If you are "
            "sure that no older holder is left, remove it"
        ) from error


def _open_plain(path: str, how: int, mode: int = 0o600) -> int:
    """A plain file, by no link, without waiting. FileNotFoundError if it is to be read and is not there."""
    try:
        opened = os.open(path, how | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EACCES, errno.EEXIST, errno.ENXIO):
            raise _planted(path) from error
        raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise _planted(path)
    return opened


def _open_own(path: str, how: int, mode: int = 0o600) -> int:
    """One of our own files beside the content."""
    opened = _open_plain(path, how, mode)
    about, folder = os.fstat(opened), os.stat(os.path.dirname(path))
    linked = about.st_nlink > 1 and folder.st_mode & 0o022  # where nobody else can write, it is a backup's
    if linked or about.st_uid not in (os.geteuid(), folder.st_uid):
        os.close(opened)
        raise _planted(path)
    return opened


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
            raise
        return False
    return True


def _is_at(opened: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(opened), os.lstat(path))
    except FileNotFoundError:
        return False


def _planted(path: str) -> Misuse:
    return Misuse(
        f"{path} is a link, no plain file, has a second name, or belongs to another user, and is not trusted. Nothing was read "
        "or changed. Keep guarded files in a folder where only their user can write; if you are sure of it, remove it"
    )


def _warn_of(folder: str) -> None:
    if folder not in _warned and os.stat(folder).st_mode & 0o022:
        _warned.add(folder)
        log.warning(
            "other users may write to the folder %s: they can replace the guarded files in it and their marks. Keep them in a "
            "folder of mode 755 or less",
            folder,
        )


class AsyncFile(InAThread):
    """The same for asyncio; the disk is waited for in a thread."""

    def __init__(self, path: str | os.PathLike[str], ticket: Ticket) -> None:
        self._content = File(path, ticket)


def seen(path: str | os.PathLike[str]) -> Mark | None:
    """The mark of a file, to look at, never to decide by."""
    try:
        resource, token, _ = _record(_places(path)[1])
    except FileNotFoundError:
        return None
    return Mark(resource, token)
