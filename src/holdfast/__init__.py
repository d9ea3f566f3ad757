"""holdfast: mutual exclusion between processes and machines that tells the truth.

Two clients may both believe that they hold a lock; no stale token changes fenced state.

>>> import holdfast
>>> locks = holdfast.connect("memory://")
>>> with locks.lock("invoice:42") as lease:
...     print(lease.name, lease.token > 0)
invoice:42 True

For asyncio the same names are in `holdfast.aio`.
"""

from typing import TYPE_CHECKING, Any

from .claim import Eviction, Holding, Snapshot, Traits, Waiting
from .electing import Leader
from .errors import (
    HoldfastError,
    LeaseLost,
    Misuse,
    NotAcquired,
    NotInstalled,
    StaleToken,
    Unavailable,
    Unsupported,
)
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

__version__ = "0.1.0"

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


def __getattr__(name: str) -> Any:
    if name == "aio":  # late: importing asyncio takes longer than all the rest
        from importlib import import_module

        return import_module("holdfast.aio")
    if name in _LOCKFREE:
        from . import errors

        return getattr(errors, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
