"""What must have happened to locks between two looks at them.

A store tells who is inside and who waits, not what happened. So two looks are compared; what began and ended between
them was not seen, and nothing is made up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..claim import Snapshot


class Change(NamedTuple):
    event: str
    name: str
    owner: str
    token: int = 0
    seconds: float = 0.0  # so long it has lasted, or had
    detail: str = ""


def changes(before: Mapping[str, Snapshot], after: Mapping[str, Snapshot]) -> Iterator[Change]:
    """What must have happened between the two, in an order in which it can have."""
    for name in sorted({*before, *after}):
        yield from _of_one(before.get(name, Snapshot(name)), after.get(name, Snapshot(name)))


def _of_one(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    name = new.name
    if new.eviction is not None and (old.eviction is None or old.eviction.token != new.eviction.token):
        out = new.eviction
        yield Change("evicted", name, out.owner, out.evicted_token, out.age, f"by {out.by}")
    inside = {one.token for one in new.holders}
    for one in old.holders:
        if one.token not in inside:
            yield Change("over", name, one.owner, one.token, one.age)
    known = {one.token for one in old.holders}
    for one in new.holders:
        if one.token not in known:
            yield Change("acquired", name, one.owner, one.token, one.age)
    # Somebody in line is known by the owner; two of one name are told apart by their number.
    was, now = [one.owner for one in old.waiters], [one.owner for one in new.waiters]
    for waiting in new.waiters:
        if waiting.owner in was:
            was.remove(waiting.owner)
        else:
            yield Change("waiting", name, waiting.owner, 0, waiting.age)
    entered = [one.owner for one in new.holders if one.token not in known]
    for gone in old.waiters:
        if gone.owner in now:
            now.remove(gone.owner)
        elif gone.owner in entered:
            entered.remove(gone.owner)
        else:
            yield Change("left the line", name, gone.owner, 0, gone.age)
