"""What a recipe asks the engine for."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Ask(NamedTuple):
    """What a recipe wants, before anybody in particular asks for it."""

    name: str
    ttl: float
    units: int = 1
    capacity: int = 1
    fair: bool = True
    renew: bool = True
    note: str = ""
    at_most: float | None = None  # the lease ends then, renewed or not
    at_least: float = 0.0  # released earlier, the lock stays taken until then
    reentrant: bool = False
    reads: bool = False  # remembered, so that an upgrade is refused and does not deadlock
    alone: bool = False  # a writer or a leader: remembered, so that asking again is refused and does not deadlock
    keep: float = 0.0  # so long after its last use the grant stays here, to be lent again
    confirm: bool = True  # wait for the answer to the release


class GiveUp(Protocol):
    """What tells a waiter to give up: a threading.Event, an asyncio.Event, or anything with `is_set()`."""

    def is_set(self) -> bool: ...
