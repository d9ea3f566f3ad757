"""Every lock that is a mutex, or can be used as one: the same tests are run on each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Make = Callable[..., Any]

MUTEXES: dict[str, Make] = {
    "lock": lambda locks, name, ttl=30.0: locks.lock(name, ttl=ttl),
    "unfair lock": lambda locks, name, ttl=30.0: locks.lock(name, ttl=ttl, fair=False),
    "reentrant lock": lambda locks, name, ttl=30.0: locks.lock(name, ttl=ttl, reentrant=True),
    "semaphore of one": lambda locks, name, ttl=30.0: locks.semaphore(name, 1, ttl=ttl),
    "write lock": lambda locks, name, ttl=30.0: locks.rwlock(name, ttl=ttl).write(),
    "all_of one": lambda locks, name, ttl=30.0: locks.all_of(name, ttl=ttl),
    "leadership": lambda locks, name, ttl=30.0: locks.election(name, ttl=ttl).lead(),
}


def token_of(held: Any, name: str) -> int:
    """Of a lease, or of the leases of an all_of."""
    token: int = held.tokens[name] if hasattr(held, "tokens") else held.token
    return token
