"""filelock's `FileLock`, on any store: `from holdfast.compat.filelock import FileLock, Timeout`.

The same constructor and methods; re-entrant as there. The path is a name: no file is made. Which store is told by `locks=`, or
else by HOLDFAST_URL, or else it is the SQLite file of this user. `.lease` is the lease, with the token.

>>> import holdfast
>>> from holdfast.compat.filelock import FileLock
>>> with FileLock("/tmp/work.lock", timeout=5, locks=holdfast.connect("memory://")) as lock:
...     print(lock.is_locked, lock.lease.token > 0)
True True
"""

from __future__ import annotations

import os
import threading
from functools import cache
from types import SimpleNamespace, TracebackType
from typing import Any

from ..connecting import resolve
from ..errors import NotAcquired
from ..sync import Lease, Locks, connect

__all__ = ["FileLock", "Timeout"]


class Timeout(TimeoutError):
    """The lock was not got in time."""

    def __init__(self, lock_file: str) -> None:
        super().__init__(f"The file lock '{lock_file}' could not be acquired.")
        self.lock_file = lock_file

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.lock_file,)


class FileLock:
    """`timeout`: seconds to wait; -1 waits for ever, 0 tries once. `mode` and `poll_interval` have nothing to do here."""

    def __init__(
        self,
        lock_file: str | os.PathLike[str],
        timeout: float = -1,
        mode: int = 0o644,
        thread_local: bool = True,
        *,
        blocking: bool = True,
        locks: Locks | None = None,
    ) -> None:
        self.lock_file = os.fspath(lock_file)
        self.timeout = timeout
        self.blocking = blocking
        self._here: Any = threading.local() if thread_local else SimpleNamespace()
        self._locks = _default(resolve(None)) if locks is None else locks
        self._lock = self._locks.lock(f"file:{os.path.abspath(self.lock_file)}")

    @property
    def lease(self) -> Lease | None:
        """What this thread holds (with `thread_local=False`: this object), for its token."""
        found: Lease | None = getattr(self._here, "lease", None)
        return found

    @property
    def lock_counter(self) -> int:
        """How often it was entered, and not yet left."""
        count: int = getattr(self._here, "count", 0)
        return count

    @property
    def is_locked(self) -> bool:
        """Is it held here, as far as can be known?"""
        return self.lease is not None and self.lease.held

    def acquire(
        self, timeout: float | None = None, poll_interval: float = 0.05, *, blocking: bool | None = None
    ) -> FileLock:
        """Raises Timeout. The result can be entered: `with lock.acquire(timeout=5):`."""
        if self.lease is not None:
            self.lease.check()  # a lost lock is not entered again: the outer body would not know
            self._here.count += 1
            return _Entered(self)
        wait = self.timeout if timeout is None else timeout
        if not (self.blocking if blocking is None else blocking):
            wait = 0
        try:
            self._here.lease = self._lock.acquire(timeout=None if wait < 0 else wait)
        except NotAcquired:
            raise Timeout(self.lock_file) from None
        self._here.count = 1
        return _Entered(self)

    def release(self, force: bool = False) -> None:
        """Leave once, or with `force` altogether. What was not held is not released, and that is no error."""
        if self.lease is None:
            return
        self._here.count = 0 if force else self._here.count - 1
        if self._here.count <= 0:
            self.lease.release()
            self._here.lease = None

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        lease = self.lease
        self.release()
        if error is None and lease is not None and lease.lost:
            lease.check()  # raises LeaseLost: the body was not covered to its end


class _Entered(FileLock):
    """What acquire() returns: entered already, so that `with` only leaves it."""

    def __init__(self, lock: FileLock) -> None:
        self.__dict__.update(lock.__dict__)

    def __enter__(self) -> FileLock:
        return self


@cache
def _default(url: str) -> Locks:
    return connect(url)
