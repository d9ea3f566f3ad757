"""A file that refuses whoever was overtaken.

Beside `name` stand two small files: `.name.fence` holds the mark, and `.name.fence-lock` is what the operating system
locks. The mark moves to the disk before the content does, and each is replaced as a whole: whatever crashes, and wherever,
the content is the old or the new one, and the mark never lags behind it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from ..errors import Misuse, Unavailable
from .mark import Mark, Ticket, mark_of, refusal, valid_token

PATIENCE = 10.0  # seconds to wait for another process that is just reading or writing


class File:
    """One file and one lease. For the processes of one machine, on a local file system."""

    def __init__(self, path: str | os.PathLike[str], ticket: Ticket) -> None:
        self._mark = mark_of(ticket)
        self._path = os.path.realpath(os.fspath(path))
        self._folder, name = os.path.split(self._path)
        self._seal = os.path.join(self._folder, f".{name}.fence")
        self._lock = f"{self._seal}-lock"

    def read(self) -> bytes | None:
        """The content, or None if there is no such file; from now on, older tokens are refused."""
        with self._sealed():
            try:
                with open(self._path, "rb") as file:
                    return file.read()
            except FileNotFoundError:
                return None

    def write(self, content: bytes) -> None:
        """Replace the content as a whole; it is on the disk when this returns."""
        if not isinstance(content, (bytes, bytearray, memoryview)):
            raise Misuse(f"the content of a file must be bytes, not {type(content).__name__}: encode it")
        with self._sealed():
            self._replace(self._path, content)

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
            seen, since = self._seen()
            if self._mark.token < seen:
                raise refusal(self._mark, seen, since)
            if self._mark.token > seen:
                record = {"resource": self._mark.resource, "token": self._mark.token, "since": time.time()}
                self._replace(self._seal, json.dumps(record).encode())
            yield

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """The kernel lets go of it when the process dies, however it dies."""
        try:
            lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except FileNotFoundError:
            raise Misuse(f"{self._path}: the folder {self._folder} does not exist") from None
        try:
            deadline = time.monotonic() + PATIENCE
            pause = 0.0005
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError as error:
                    if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                        raise
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"{self._path} has been in use by another process for {PATIENCE:g} s: is one stopped in the middle?"
                    )
                time.sleep(pause)
                pause = min(pause * 2, 0.02)
            yield
        finally:
            os.close(lock)

    def _seen(self) -> tuple[int, float | None]:
        try:
            with open(self._seal, "rb") as file:
                record: Any = json.load(file)
            resource, token, since = record["resource"], valid_token(record["token"]), float(record["since"])
        except FileNotFoundError:
            return 0, None
        except (ValueError, KeyError, TypeError) as error:
            raise Misuse(
                f"{self._seal} is damaged ({error}): it was not written by holdfast. Nothing was read or changed. If you are "
                "sure that no older holder is left, remove it"
            ) from error
        if resource != self._mark.resource:
            raise Misuse(
                f"{self._path} is guarded by the lock {resource!r}, not by {self._mark.resource!r}: tokens of different locks "
                "do not compare"
            )
        return token, since

    def _replace(self, path: str, content: bytes) -> None:
        """A leftover of a crash is overwritten: only one process at a time is here."""
        new = f"{self._seal}-new"
        with open(new, "wb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(file.fileno(), os.stat(path).st_mode & 0o7777)
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


class AsyncFile:
    """The same for asyncio; the disk is waited for in a thread."""

    def __init__(self, path: str | os.PathLike[str], ticket: Ticket) -> None:
        self._file = File(path, ticket)

    async def read(self) -> bytes | None:
        return await asyncio.to_thread(self._file.read)

    async def write(self, content: bytes) -> None:
        await asyncio.to_thread(self._file.write, content)

    async def delete(self) -> bool:
        return await asyncio.to_thread(self._file.delete)


def seen(path: str | os.PathLike[str]) -> Mark | None:
    """The mark of a file, to look at, never to decide by."""
    folder, name = os.path.split(os.path.realpath(os.fspath(path)))
    try:
        with open(os.path.join(folder, f".{name}.fence"), "rb") as file:
            record = json.load(file)
    except FileNotFoundError:
        return None
    return Mark(record["resource"], record["token"])
