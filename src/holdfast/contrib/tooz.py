"""A backend of tooz: put `holdfast+` before a store's URL, and `get_lock()` gives locks of holdfast. See docs/migrating.md.

coordinator = coordination.get_coordinator("holdfast+redis://localhost:6379", b"host-1")

Locks only: groups, members and leaders are not implemented, and say so. No heartbeat is needed: leases renew themselves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs

import tooz
from tooz import coordination, locking

from ..errors import HoldfastError, Misuse, NotAcquired
from ..secret import Secret
from ..sync import Lease, Locks, connect

__all__ = ["HoldfastDriver", "HoldfastLock"]

PREFIX = "holdfast+"
_THREADS = coordination.Characteristics.DISTRIBUTED_ACROSS_THREADS
_PROCESSES = coordination.Characteristics.DISTRIBUTED_ACROSS_PROCESSES
_HOSTS = coordination.Characteristics.DISTRIBUTED_ACROSS_HOSTS
_REACH = {"memory": (_THREADS,), "sqlite": (_THREADS, _PROCESSES)}


class HoldfastLock(locking.Lock):
    """Not re-entrant, as tooz's own. `lease` is what is held through this object, for its token."""

    def __init__(self, name: bytes, locks: Locks) -> None:
        super().__init__(name)
        self._locks = locks
        with _as_tooz_says():
            self._lock = locks.lock(_decoded(name))
        self.lease: Lease | None = None

    @property
    def acquired(self) -> bool:
        return self.lease is not None

    def acquire(self, blocking: bool | float = True, shared: bool = False, timeout: float | None = None) -> bool:
        """`blocking`: whether to wait, or for how many seconds; `timeout`: the same, if it says no more than yes."""
        if shared:
            raise tooz.NotImplemented("shared locks are holdfast's rwlock(), and not to be had through tooz")
        if blocking is False:
            timeout = 0
        elif blocking is not True:
            timeout = blocking
        try:
            with _as_tooz_says():
                self.lease = self._lock.acquire(timeout=timeout)
        except NotAcquired:
            return False
        return True

    def release(self) -> bool:
        """False: nothing was held through this object, or it was lost. After a ToozConnectionError it may be repeated."""
        lease = self.lease
        if lease is None:
            return False
        with _as_tooz_says():
            there = lease.release()
        if self.lease is lease:  # else another thread has entered by the same object, and keeps what it has
            self.lease = None
        return there

    def is_still_owner(self) -> bool:
        lease = self.lease
        if lease is None or not lease.held:
            return False
        with _as_tooz_says():
            return lease.token in [one.token for one in self._locks.inspect(lease.name).holders]

    def break_(self) -> bool:
        """Evict whoever holds it, by the token: its fenced writes are refused from then on, and it is told of its loss."""
        name = self._lock.name
        with _as_tooz_says():
            tokens = [one.token for one in self._locks.inspect(name).holders]
            return any(self._locks.force_release(name, token=token) is not None for token in tokens)


class HoldfastDriver(coordination.CoordinationDriver):
    def __init__(self, member_id: bytes, parsed_url: Any, options: dict[str, Any]) -> None:
        super().__init__(member_id, parsed_url, options)
        foreign = sorted(options.keys() - parse_qs(parsed_url.query).keys())
        if foreign:
            raise tooz.ToozError(
                f"holdfast's driver takes no options but those in the URL, and not {', '.join(foreign)}"
            )
        scheme = parsed_url.scheme.removeprefix(PREFIX)
        query = f"?{parsed_url.query}" if parsed_url.query else ""
        # Not geturl(): it would leave out the slashes of a URL without a host.
        self._url = Secret(f"{scheme}://{parsed_url.netloc}{parsed_url.path}{query}")
        self._locks: Locks | None = None
        self.CHARACTERISTICS = _REACH.get(scheme, (_THREADS, _PROCESSES, _HOSTS))

    def _start(self) -> None:
        with _as_tooz_says():
            self._locks = connect(self._url, label=_decoded(self._member_id), check=True)

    def _stop(self) -> None:
        """What is still held is given back."""
        locks, self._locks = self._locks, None
        if locks is not None:
            with _as_tooz_says():
                locks.close()

    def get_lock(self, name: bytes) -> HoldfastLock:
        if self._locks is None:
            raise tooz.ToozError("the coordinator was not started: call start() before get_lock()")
        return HoldfastLock(name, self._locks)


def _decoded(name: bytes | str) -> str:
    try:
        return name.decode() if isinstance(name, bytes) else name
    except UnicodeDecodeError:
        raise tooz.ToozError(f"a name must be UTF-8, and {name!r} is not") from None


@contextlib.contextmanager
def _as_tooz_says() -> Iterator[None]:
    try:
        yield
    except NotAcquired:
        raise
    except Misuse as error:
        raise tooz.ToozError(str(error)) from error
    except (HoldfastError, ConnectionError) as error:
        raise coordination.ToozConnectionError(str(error)) from error
