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

import math
import os
import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from functools import cache
from types import SimpleNamespace, TracebackType
from weakref import WeakValueDictionary

from ..connecting import resolve
from ..errors import NotAcquired
from ..sync import Lease, Locks, connect

try:
    from filelock import Timeout  # what those who come from there catch
except ImportError:

    class Timeout(TimeoutError):  # type: ignore[no-redef]
        """The lock was not got in time."""

        def __init__(self, lock_file: str) -> None:
            super().__init__()
            self.lock_file = lock_file

        def __str__(self) -> str:
            return f"The file lock '{self.lock_file}' could not be acquired."

        def __reduce__(self) -> tuple[object, ...]:
            return type(self), (self.lock_file,)


__all__ = ["FileLock", "Timeout"]


class _Entries:
    """What was taken, and how often it was entered: by all threads, which change it one at a time."""

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.lease: Lease | None = None
        self.count = 0


class _OfThread(_Entries, threading.local):
    """The same, for each thread its own."""


_shared: WeakValueDictionary[tuple[object, ...], _Entries] = WeakValueDictionary()  # of those with is_singleton


class FileLock(ContextDecorator):
    """`timeout`: seconds to wait; -1 waits for ever, 0 tries once. With `is_singleton`, all of one path are entered and left as
    one. `mode` and `poll_interval` have nothing to do here, and can be read.
    """

    def __init__(
        self,
        lock_file: str | os.PathLike[str],
        timeout: float = -1,
        mode: int = 0o644,
        thread_local: bool = True,
        *,
        blocking: bool = True,
        is_singleton: bool = False,
        poll_interval: float = 0.05,
        locks: Locks | None = None,
    ) -> None:
        self.lock_file = os.fspath(lock_file)
        self.timeout = timeout
        self.mode = mode
        self.blocking = blocking
        self.is_singleton = is_singleton
        self.poll_interval = poll_interval
        self._thread_local = thread_local
        self._locks = _default(resolve(None)) if locks is None else locks
        self._lock = self._locks.lock(f"file:{os.path.abspath(self.lock_file)}")
        entries = _OfThread() if thread_local else _Entries()
        if is_singleton:
            entries = _shared.setdefault((self._locks, self._lock.name, thread_local), entries)
        self._entries = entries

    @property
    def lease(self) -> Lease | None:
        """What this thread holds (with `thread_local=False`: this object), for its token."""
        return self._entries.lease

    @property
    def lock_counter(self) -> int:
        """How often it was entered, and not yet left."""
        return self._entries.count

    @property
    def is_locked(self) -> bool:
        """Is it held here, as far as can be known?"""
        lease = self.lease
        return lease is not None and lease.held

    def is_thread_local(self) -> bool:
        """Must the thread that took it give it back?"""
        return self._thread_local

    def acquire(
        self,
        timeout: float | None = None,
        poll_interval: float | None = None,
        *,
        blocking: bool | None = None,
        cancel_check: Callable[[], bool] | None = None,
    ) -> _Entered:
        """Raises Timeout, also when `cancel_check()` says True. The result can be entered: `with lock.acquire(timeout=5):`."""
        entries = self._entries
        with entries.mutex:
            if entries.lease is not None:
                entries.lease.check()  # a lost lock is not entered again: the outer body would not know
                entries.count += 1
                return _Entered(self)
        wait = self.timeout if timeout is None else timeout
        if not (self.blocking if blocking is None else blocking):
            wait = 0
        try:
            lease = self._lock.acquire(
                timeout=None if wait < 0 or wait == math.inf else wait,
                cancel=None if cancel_check is None else SimpleNamespace(is_set=cancel_check),
            )
        except NotAcquired:
            raise Timeout(self.lock_file) from None
        with entries.mutex:
            # If there is one still, it was lost by another thread, whose release must not be that of this one.
            entries.lease, entries.count = lease, 1 if entries.lease is None else entries.count + 1
        return _Entered(self)

    def release(self, force: bool = False) -> None:
        """Leave once, or with `force` altogether. What was not held is not released, and that is no error."""
        entries = self._entries
        with entries.mutex:  # also while the store is told: nobody enters what is being given back
            if entries.lease is None:
                return
            if force or entries.count <= 1:
                entries.lease.release()
                entries.lease, entries.count = None, 0
            else:
                entries.count -= 1

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        lease = self.lease
        self.release()
        if error is None and lease is not None and lease.lost:
            lease.check()  # raises LeaseLost: the body was not covered to its end


class _Entered:
    """What acquire() returns: entered already, so that `with` only leaves it."""

    def __init__(self, lock: FileLock) -> None:
        self.lock = lock

    def __enter__(self) -> FileLock:
        return self.lock

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.lock.__exit__(kind, error, at)


@cache
def _default(url: str) -> Locks:
    return connect(url)
