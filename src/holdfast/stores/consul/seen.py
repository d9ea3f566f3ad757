"""A book as people are shown it."""

from __future__ import annotations

import json

from ...claim import Eviction, Holding, Snapshot, Waiting
from .book import Book
from .entry import Entry
from .ledger import Item
from .parts import wall_ms


def snapshot(name: str, book: Book, evicted: Item | None) -> Snapshot:
    now = wall_ms()

    def age(entry: Entry) -> float:
        return max(now - entry.at, 0) / 1000

    # What is left of a session only its leader knows; its owner keeps it at a whole ttl, more or less.
    holders = tuple(
        Holding(one.owner, one.token, one.units, age(one), one.ttl, one.note) for one in book.inside.values()
    )
    waiters = tuple(Waiting(one.owner, one.units, age(one), one.ttl, one.fair) for one in book.waiting())
    eviction = None
    if evicted is not None:
        owner, token, by, at = json.loads(evicted.value)
        eviction = Eviction(owner, token, evicted.at, by, max(now - at, 0) / 1000)
    return Snapshot(name, 0 if book.empty else book.capacity, holders, waiters, eviction)
