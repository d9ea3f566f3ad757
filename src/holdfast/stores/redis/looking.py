"""What inspect.lua tells of a name."""

from __future__ import annotations

from ...claim import Eviction, Holding, Snapshot, Waiting
from .replies import Reply

_SECOND = 1_000_000  # the server counts in microseconds


def snapshot(name: str, reply: Reply) -> Snapshot:
    capacity, inside, line, evicted = reply
    holders = tuple(
        Holding(owner.decode(), token, units, age / _SECOND, left / _SECOND, note.decode(), ttl / _SECOND)
        for owner, token, units, age, left, note, ttl in inside
    )
    waiters = tuple(
        Waiting(owner.decode(), units, age / _SECOND, left / _SECOND, bool(fair))
        for owner, units, age, left, fair in line
    )
    eviction = None
    if evicted:
        owner, evicted_token, token, by, age = evicted
        eviction = Eviction(owner.decode(), evicted_token, token, by.decode(), age / _SECOND)
    return Snapshot(name, capacity, holders, waiters, eviction)
