"""How long a ttl should be, from what was seen of a lock. Pure: arithmetic and sentences.

A lease is renewed when a third of its ttl is gone, so two thirds are left if the renewal is confirmed at once. What is missing
from that is the delay: a pause of the process, or of the store. The rule: **ttl = 3 * the longest delay that was seen**. Two
thirds of such a ttl are twice that delay.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from .observed import Observed

FACTOR = 3
SHORTEST = 5.0  # seconds: less is for tests; a busy machine alone pauses a process for one
_ENOUGH = 20  # renewals before anything is concluded from them


class Sizing(NamedTuple):
    ttl: float | None  # what it is, or is estimated to be
    estimated: bool
    delay: float | None  # the longest, at most
    ttl_renewed: float | None  # what is advised for leases that renew themselves
    ttl_unrenewed: float | None  # … and for those that do not
    sentences: list[str]


def size(seen: Observed, ttl: float | None = None) -> Sizing:
    told = [f"{seen.name}, from {seen.source}: {_count(seen.holds.number, 'hold')} seen to their end."]
    told += _holds(seen)
    estimated = ttl is None
    margins = seen.margins if seen.margins is not None and seen.margins.number else None
    if ttl is None and margins is not None:
        ttl = _rounded(1.5 * margins.mean)
    delay = advised = None
    if margins is None or ttl is None:
        told += _nothing_of_renewals(seen)
    else:
        delay, words = _delay(seen, ttl, estimated)
        told += words
        advised = max(_rounded(FACTOR * delay), SHORTEST)
        told += ["", *_renewed(seen, ttl, delay, advised)]
    unrenewed = None
    if seen.holds.number:
        longest = seen.holds.at_most(0.999)
        unrenewed = _rounded(2 * longest) if longest < math.inf else None
        told += ["", _unrenewed(longest, unrenewed)]
    return Sizing(ttl, estimated, delay, advised, unrenewed, told)


def _holds(seen: Observed) -> list[str]:
    if not seen.holds.number:
        return []
    parts = [f"{part:.4g} %: {_at_most(seen.holds.at_most(part / 100))}" for part in (50, 99, 99.9)]
    return [f"Held for: {'; '.join(parts)}."]


def _nothing_of_renewals(seen: Observed) -> list[str]:
    if seen.margins is None:
        return [
            "",
            "A history tells nothing of renewals. For a lease that renews itself, ask an exporter's metrics: --from http://…/metrics",
        ]
    return [
        "",
        "No renewal was seen. If it is renewed, all holds were over before a third of the ttl: nothing speaks against that.",
    ]


def _delay(seen: Observed, ttl: float, estimated: bool) -> tuple[float, list[str]]:
    margins = seen.margins
    assert margins is not None
    low, high = margins.lowest
    due = ttl * 2 / 3
    by_margin = max(0.0, due - low)
    # A renewal that is not late left a third of its ttl at least; that is exact, while a margin is only known to its bucket.
    by_count = ttl / 3 if not (seen.late or seen.failed or seen.losses) else math.inf
    delay = ttl if seen.losses else min(by_margin, by_count)
    guess = " (estimated from the average of what was left; say --ttl to be exact)" if estimated else ""
    told = [
        f"Renewals: {_count(margins.number, 'renewal')} confirmed, {seen.late:.0f} of them late (less than a third left); "
        f"{seen.failed:.0f} failed; {_count(seen.losses, 'lock')} lost.",
        f"With a ttl of {length(ttl)}{guess}, {length(due)} are left when a renewal is confirmed at once. "
        f"On average {length(margins.mean)} were left; the least was {_between(low, high)}.",
    ]
    if seen.losses:
        told.append(f"Locks were lost, so some delay was longer than the whole ttl: more than {length(ttl)}.")
    elif by_count < by_margin:
        told.append(
            f"None came late, so no delay was longer than a third of the ttl: {length(ttl)} / 3 = {length(delay)}."
        )
    else:
        told.append(f"So the longest delay was at most {length(due)} - {length(low)} = {length(delay)}.")
    return delay, told


def _renewed(seen: Observed, ttl: float, delay: float, advised: float) -> list[str]:
    rule = f"{FACTOR} * {length(delay)} = {length(FACTOR * delay)}"
    if advised > FACTOR * delay * 1.001:
        rule += f", rounded up to {length(advised)}"
    told = []
    if seen.losses:
        told.append(
            f"Renewing itself: at least {length(advised)} ({rule}), and find out first why renewals "
            "do not arrive: docs/operating.md."
        )
    elif advised > ttl * 1.05:
        told.append(f"Renewing itself: {length(ttl)} is too short. Take {length(advised)} ({rule}).")
    elif advised < ttl * 0.8:
        told.append(
            f"Renewing itself: {length(ttl)} is enough; {length(advised)} would do ({rule}), "
            f"and others would wait that much less after a crash."
        )
    else:
        told.append(f"Renewing itself: {length(ttl)} is right ({rule}).")
    if seen.margins is not None and seen.margins.number < _ENOUGH:
        told.append(f"That is from {_count(seen.margins.number, 'renewal')} only: look again when there are more.")
    told.append(
        "It is also how long others wait after the holder has died. If they cannot, the ttl must be shorter, and the delays too."
    )
    return told


def _unrenewed(longest: float, advised: float | None) -> str:
    if advised is None:
        return (
            "Not renewed (renew=False, once): no ttl can be advised, since some holds were longer than the last bucket."
        )
    return (
        f"Not renewed (renew=False, or once(at_most=…)): {length(advised)}, twice what 99.9 % of the holds did not exceed "
        f"(2 * {length(longest)})."
    )


def _rounded(seconds: float) -> float:
    """Up, to two digits: 29.93 → 30, 1234 → 1300."""
    if seconds <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return round(math.ceil(seconds / unit - 1e-6) * unit, 6)


def length(seconds: float) -> str:
    """0.0003 s, 3.3 s, 30 s, 5 min: three digits, as in arithmetic."""
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds / 60:.3g} min"


def _at_most(seconds: float) -> str:
    return f"at most {length(seconds)}" if seconds < math.inf else "longer than the last bucket (10 min)"


def _between(low: float, high: float) -> str:
    return f"between {length(low)} and {length(high)}" if high < math.inf else f"more than {length(low)}"


def _count(number: float, what: str) -> str:
    return f"{number:,.0f} {what}{'s' * (round(number) != 1)}"
