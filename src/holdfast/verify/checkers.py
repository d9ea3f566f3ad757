"""Was what is promised kept? Of a history from real processes: pure functions of it, as those of `holdfast.testing.checkers`.

A real process may be stopped between any two lines. So that something was so when it was written down proves little: what is
concluded here is true of every moment between the invocation and the answer.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator

from ..testing.checkers import Finding
from ..testing.history import (
    ACQUIRE,
    CHECK,
    CLAIM,
    DONE,
    GRANTED,
    LEFT,
    LOST,
    OPEN,
    READ,
    RELEASE,
    RENEW,
    RENEWED,
    WRITE,
    History,
    Operation,
)

SLACK = 1e-6  # seconds, for clocks that are read one after the other


def check_linearizability(history: History) -> Iterator[Finding]:
    """Each register answered as one register would. Every update is told apart and their order is known (each was made from the
    one before), so no search is needed: an answer is explained if its place in that order fits its moment."""
    for name in history.names(READ, WRITE):
        order = {entry: place for place, (entry, _) in enumerate(history.final.get(name, ()), 1)}
        mine = [one for one in history.of(READ, WRITE) if one.name == name]
        known = {entry for one in mine if one.kind == WRITE for entry, _ in one.value}
        for entry in order:
            if entry not in known:
                yield Finding("linearizability", name, f"holds {entry}, which nobody has written")
        placed = [(_place(one, order), one) for one in mine if one.outcome == DONE or _came_through(one, order)]
        for place, one in placed:
            if place is None:
                yield Finding(
                    "linearizability", name, f"no order explains {one}: its update is not in the register's past"
                )
        yield from _out_of_order(name, [(place, one) for place, one in placed if place is not None])


def _came_through(one: Operation, order: dict[str, int]) -> bool:
    """A write without an answer, whose update is there all the same."""
    return one.kind == WRITE and one.returned == OPEN and any(entry in order for entry, _ in one.value)


def _place(one: Operation, order: dict[str, int]) -> int | None:
    """After how many updates: those that a read saw, or with that which was written."""
    if not one.value:  # a write of nothing is in no history of ours
        return 0 if one.kind == READ else None
    return order.get(one.value[-1][0])


def _out_of_order(name: str, placed: list[tuple[int, Operation]]) -> Iterator[Finding]:
    """Whatever had been answered before something was asked, has its place before it: a write's own, a read may share it."""
    answered = sorted(placed, key=lambda pair: pair[1].returned)
    latest: tuple[int, Operation] | None = None
    at = 0
    for place, one in sorted(placed, key=lambda pair: pair[1].invoked):
        while at < len(answered) and answered[at][1].returned < one.invoked:
            if latest is None or answered[at][0] > latest[0]:
                latest = answered[at]
            at += 1
        if latest is not None and (place < latest[0] or (place == latest[0] and one.kind == WRITE)):
            yield Finding("linearizability", name, f"no order explains {one} after {latest[1]}")


def check_honesty(history: History) -> Iterator[Finding]:
    """Whenever a lease said that it was held, it had a right to: within its ttl of the last claim or renewal that was confirmed,
    and nobody had been told of its loss."""
    lost = {(note.process, note.name, note.token): note.at for note in reversed(history.notes) if note.what == LOST}
    confirmed: dict[tuple[str, str, int], list[Operation]] = defaultdict(list)
    for one in history.of(CLAIM, RENEW):
        if one.outcome in (GRANTED, RENEWED):
            confirmed[one.process, one.name, one.token].append(one)
    for check in history.of(CHECK):
        if check.outcome != DONE:
            continue
        lease = check.process, check.name, check.token
        until = max((one.invoked + one.ttl for one in confirmed[lease] if one.returned <= check.returned), default=0.0)
        if check.invoked > until + SLACK:
            yield Finding("honesty", check.name, f"held, though nothing was confirmed past {until:.4f}: {check}")
        if lost.get(lease, OPEN) < check.invoked:
            yield Finding("honesty", check.name, f"held again, though its loss had been told: {check}")


def handoffs(history: History) -> Iterator[float]:
    """Of one name: from asking to leave until the next had it, where somebody was waiting already."""
    entered = [one for one in history.of(ACQUIRE) if one.outcome == GRANTED]
    entered.sort(key=lambda one: one.returned)
    left: dict[str, float] = {}
    for one in history.of(RELEASE):
        if one.outcome == LEFT:
            left.setdefault(one.holder, one.invoked)
    for at in left.values():
        following = bisect.bisect_right(entered, at, key=lambda one: one.returned)
        if following < len(entered) and entered[following].invoked < at:
            yield entered[following].returned - at


def percentile(values: list[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def histogram(values: Iterable[float], edges: list[float]) -> list[int]:
    """How many values are below each edge and not below the one before; the last count is of all beyond."""
    counts = [0] * (len(edges) + 1)
    for value in values:
        counts[bisect.bisect_right(edges, value)] += 1
    return counts
