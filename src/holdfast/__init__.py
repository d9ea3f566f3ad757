"""holdfast: mutual exclusion between processes and machines that tells the truth.

Two clients may both believe that they hold a lock; no stale token changes fenced state.

START
    >>> import holdfast
    >>> locks = holdfast.connect("memory://")
    >>> with locks.lock("invoice:42") as lease:
    ...     print(lease.name, lease.token > 0)
    invoice:42 True

    The URL says which store: `connect()` is an SQLite file of this user; "redis://localhost:6379", "postgresql://user@host/app",
    "mysql://…", "etcd://…", "zookeeper://…", "consul://…" and "redlock://…" are servers. Everything else stays as it is.
    For asyncio the same names are in `holdfast.aio`; they differ by `await` only.

WHAT THERE IS
    locks.lock(name)                one at a time; a decorator, too: @locks.lock("invoice:{invoice_id}")
    locks.semaphore(name, 4)        four units, of which everybody takes one or more
    locks.rwlock(name)              .read() for many, .write() for one
    locks.all_of(name, name, …)     all or nothing
    locks.election(name)            one leader at a time
    locks.once(name, at_least=60)   of many schedulers, one runs the job
    locks.inspect(name), names(), wait_graph(), force_release(name, token=…)

    >>> with locks.semaphore("gpu", 4).acquire(units=2, timeout=5):
    ...     print(locks.inspect("gpu").used, "of 4")
    2 of 4

WITH THE LEASE IN HAND
    lease.token     pass it to the storage, which refuses an older one: see `holdfast.fenced`
    lease.check()   raises LeaseLost, before the step that cannot be undone
    lease.lost, lease.in_danger, lease.on_lost(callback)

WHAT IS RAISED
    NotAcquired (a TimeoutError), LeaseLost, StaleToken, Unavailable (a ConnectionError), Unsupported, Misuse (a ValueError)

MORE
    holdfast.fenced     storage that refuses a holder that was overtaken
    holdfast.lockfree   what makes a lock unnecessary; `holdfast advise` says which
    holdfast.sql        locks for people who are in a transaction already
    holdfast.contrib    Django, FastAPI, Flask, Celery, APScheduler, Alembic, pytest
    holdfast.compat     redis-py's Lock and filelock's FileLock, on any store
    $ holdfast --help   run a command under a lock, see who holds what; `holdfast docs` says where the pages are
"""

from typing import TYPE_CHECKING, Any

from .claim import Eviction, Holding, Snapshot, Traits, Waiting
from .electing import Leader
from .errors import HoldfastError, LeaseLost, Misuse, NotAcquired, NotInstalled, StaleToken, Unavailable, Unsupported
from .events import Event
from .sync import AllOf, Election, Lease, Leases, Lock, LockOr, Locks, Loss, RWLock, Semaphore, connect
from .waitfor import WaitGraph

if TYPE_CHECKING:
    from . import aio
    from .errors import Conflict as Conflict
    from .errors import GaveUp as GaveUp
    from .errors import InFlight as InFlight
    from .errors import KeyReused as KeyReused
    from .errors import MailboxFull as MailboxFull
    from .errors import Missing as Missing
    from .errors import NotOwner as NotOwner
    from .errors import Unstorable as Unstorable

__version__ = "0.2.0"

__all__ = [
    "connect",
    "aio",
    "Locks",
    "Lock",
    "LockOr",
    "Semaphore",
    "RWLock",
    "AllOf",
    "Election",
    "Lease",
    "Leases",
    "Loss",
    "Leader",
    "Snapshot",
    "Holding",
    "Waiting",
    "Eviction",
    "WaitGraph",
    "Traits",
    "Event",
    "HoldfastError",
    "NotAcquired",
    "LeaseLost",
    "StaleToken",
    "Unavailable",
    "Unsupported",
    "Misuse",
    "NotInstalled",
]

# What only `holdfast.lockfree` raises, and exports: found here too, but not part of what a lock does.
_LOCKFREE = ("Conflict", "GaveUp", "InFlight", "KeyReused", "MailboxFull", "Missing", "NotOwner", "Unstorable")

_OF_A_CONNECTION = ("lock", "semaphore", "rwlock", "all_of", "once", "election", "inspect", "names", "force_release")


def __getattr__(name: str) -> Any:
    if name == "aio":  # late: importing asyncio takes longer than all the rest
        from importlib import import_module

        return import_module("holdfast.aio")
    if name in _LOCKFREE:
        from . import errors

        return getattr(errors, name)
    if name in _OF_A_CONNECTION:
        import sys

        # `obj` without a name: else Python would add that one may have meant the class of (almost) that name.
        raise AttributeError(
            f"module 'holdfast' has no attribute {name!r}: `locks = holdfast.connect()`, then `locks.{name}(…)`",
            obj=sys.modules[__name__],
        )
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
