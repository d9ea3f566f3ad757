"""redis-py's `Lock`, on any store: `from holdfast.compat.redis_py import Lock`.

The same constructor and methods; its words keep their meaning. `timeout` is how long the lock lives, and without one it lives
until it is released: there it then outlived a holder that died, here it is renewed and ends 30 s after its holder. `.lease` is
the lease, with the token. It excludes other holdfast locks of that name, and not redis-py's own: that
is what `also=` is for, see docs/migrating.md.

>>> import holdfast
>>> from holdfast.compat.redis_py import Lock
>>> locks = holdfast.connect("memory://")
>>> with Lock(locks, "invoice:42", timeout=10) as lock:
...     print(lock.owned(), lock.lease.token > 0)
True True
"""

from __future__ import annotations

import threading
from functools import cache
from types import SimpleNamespace, TracebackType
from typing import Any
from urllib.parse import quote

from ..errors import LeaseLost, Misuse, NotAcquired
from ..recipes import DEFAULT_TTL
from ..secret import Secret
from ..sync import Lease, Locks, connect

try:
    from redis.exceptions import LockError, LockNotOwnedError  # what those who come from there catch
except ImportError:

    class LockError(ValueError):  # type: ignore[no-redef]
        """The lock was not got, or is not held."""

    class LockNotOwnedError(LockError):  # type: ignore[no-redef]
        """It was held, and no longer is."""


__all__ = ["Lock", "LockError", "LockNotOwnedError"]


class Lock:
    """`redis` is a holdfast connection, a URL, or a redis-py client (whose server is then used)."""

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = redis
        self.name = name.decode() if isinstance(name, bytes) else name
        self.timeout = timeout
        self.sleep = sleep  # kept for those who read it; a waiter is woken, and does not poll
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = thread_local
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if thread_local else SimpleNamespace()
        self._mutex = threading.Lock()
        self._locks = _locks_of(redis)
        ttl = DEFAULT_TTL if timeout is None else timeout
        self._lock = self._locks.lock(self.name, ttl=ttl, renew=timeout is None)

    @property
    def lease(self) -> Lease | None:
        """What this thread holds (with `thread_local=False`: this object), for its token."""
        found: Lease | None = getattr(self.local, "lease", None)
        return found

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """True: it was got. False: not without waiting, or not within `blocking_timeout`."""
        if token is not None:
            raise Misuse("a token is given by the store, and cannot be chosen: see `.lease.token`")
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        if not (self.blocking if blocking is None else blocking):
            wait = 0
        try:
            lease = self._lock.acquire(timeout=wait)
        except NotAcquired:
            return False
        with self._mutex:
            self.local.lease = lease
        return True

    def __enter__(self) -> Lock:
        if self.acquire():
            return self
        raise self._told(LockError, "Unable to acquire lock within the time specified")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise
            import logging  # late: few need it

            logging.getLogger(__name__).warning(
                "the lock %r was no longer held when its body ended", self.name, exc_info=True
            )

    def release(self) -> None:
        """Raises LockError if nothing is held here, LockNotOwnedError if it ended before."""
        lease = self._held("release an unlocked lock")
        there = lease.release()  # first: what fails on the network is not forgotten, and may be repeated
        with self._mutex:
            if self.local.lease is lease:  # without thread_local, another thread may have taken it by now
                self.local.lease = None
        if not there:
            raise self._told(LockNotOwnedError, "Cannot release a lock that's no longer owned")

    def locked(self) -> bool:
        """Does anybody hold it?"""
        return bool(self._locks.inspect(self.name).holders)

    def owned(self) -> bool:
        """Is it held here, and does the store think so too?"""
        lease = self.lease
        if lease is None or not lease.held:
            return False
        return lease.token in [one.token for one in self._locks.inspect(self.name).holders]

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Add so many seconds to what is left; with `replace_ttl`, have so many left."""
        lease = self._held("extend an unlocked lock")
        if self.timeout is None:
            raise self._told(LockError, "Cannot extend a lock with no timeout")
        # Not remaining(): an earlier extension may reach further than what the store has confirmed so far.
        end = lease._limit or 0.0
        left = 0.0 if replace_ttl else max(0.0, end - lease._engine.driver.now())
        return self._prolong(lease, additional_time + left, "extend")

    def reacquire(self) -> bool:
        """Have the whole timeout left again."""
        lease = self._held("reacquire an unlocked lock")
        if self.timeout is None:
            raise self._told(LockError, "Cannot reacquire a lock with no timeout")
        return self._prolong(lease, self.timeout, "reacquire")

    def _told(self, kind: type[LockError], message: str) -> LockError:
        error = kind(message)
        error.lock_name = self.name  # which the error of older versions does not take as an argument
        return error

    def _held(self, what: str) -> Lease:
        if (lease := self.lease) is None:
            raise self._told(LockError, f"Cannot {what}")
        return lease

    def _prolong(self, lease: Lease, seconds: float, what: str) -> bool:
        try:
            lease.extend(seconds)
        except LeaseLost:
            raise self._told(LockNotOwnedError, f"Cannot {what} a lock that's no longer owned") from None
        return True


def _locks_of(redis: Any) -> Locks:
    if isinstance(redis, Locks):
        return redis
    if isinstance(redis, str):
        return _connected(Secret(redis))
    if any(kind.__module__.startswith("redis.asyncio") for kind in type(redis).__mro__):
        raise Misuse(
            "this client is for asyncio, and this lock for threads: use the locks of holdfast.aio.connect(url)"
        )
    pool = getattr(redis, "connection_pool", None)
    if pool is None or not hasattr(pool, "connection_kwargs"):
        raise Misuse(f"a holdfast connection, a URL or a redis-py client is needed, not {type(redis).__name__}")
    return _connected(Secret(_url_of(pool)))


@cache
def _connected(url: Secret) -> Locks:
    return connect(url)  # one per server, however many locks are made; closed when the interpreter exits


def _is_unusual(key: str) -> bool:
    """What we could not do as well: to trust other certificates than this one does would be to trust too many. All are asked for
    one in the host's name, whatever this one asks for."""
    if key.startswith("ssl_"):
        return key not in ("ssl_cert_reqs", "ssl_check_hostname")
    return key == "credential_provider"


def _is_redis_pys_own(pool: Any) -> bool:
    own: bool = pool.connection_class.__module__ == "redis.connection"
    return own


def _url_of(pool: Any) -> str:
    known = pool.connection_kwargs
    if hasattr(pool, "sentinel_manager") or (not known.keys() & {"host", "path"} and not _is_redis_pys_own(pool)):
        # Whom it asks is found out anew each time, or is not known to us: localhost would be somebody else, with the password.
        raise Misuse(
            "this client does not say on which host its server is (under Sentinels that changes): "
            "pass holdfast.connect('redis+sentinel://…'), or the URL of the server, instead: see docs/redis.md"
        )
    if unusual := {key for key, value in known.items() if value not in (None, False) and _is_unusual(key)}:
        raise Misuse(
            f"this client has {', '.join(sorted(unusual))}: pass holdfast.connect(url) instead, see docs/redis.md"
        )
    user, password = known.get("username") or "", known.get("password") or ""
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else ""
    database = known.get("db") or 0
    if path := known.get("path"):
        return f"unix://{login}{quote(path)}?db={database}"
    # By what it is made of: a connection of somebody's own, by whatever name, is none without TLS.
    scheme = "rediss" if any("SSL" in kind.__name__ for kind in pool.connection_class.__mro__) else "redis"
    host = known.get("host", "localhost")
    return f"{scheme}://{login}{f'[{host}]' if ':' in host else host}:{known.get('port', 6379)}/{database}"
