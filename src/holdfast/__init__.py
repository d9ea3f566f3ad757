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
from .errors import (
    Conflict,
    GaveUp,
    HoldfastError,
    InFlight,
    KeyReused,
    LeaseLost,
    MailboxFull,
    Missing,
    Misuse,
    NotAcquired,
    NotOwner,
    StaleToken,
    Unavailable,
    Unstorable,
    Unsupported,
)
from .events import Event
from .recipes import Leader
from .sync import Lease, Leases, Lock, Locks, connect

if TYPE_CHECKING:
    from . import aio

__version__ = "0.1.0"

__all__ = [
    "connect",
    "aio",
    "Locks",
    "Lock",
    "Lease",
    "Leases",
    "Leader",
    "Snapshot",
    "Holding",
    "Waiting",
    "Eviction",
    "Traits",
    "Event",
    "HoldfastError",
    "NotAcquired",
    "LeaseLost",
    "StaleToken",
    "Conflict",
    "Missing",
    "InFlight",
    "KeyReused",
    "Unstorable",
    "NotOwner",
    "MailboxFull",
    "GaveUp",
    "Unavailable",
    "Unsupported",
    "Misuse",
]


def __getattr__(name: str) -> Any:
    if name == "aio":  # late: importing asyncio takes longer than all the rest
        from importlib import import_module

        return import_module("holdfast.aio")
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
