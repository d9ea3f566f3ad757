"""Checkers of what is owed when a process is interrupted, or forks. See checkers.py."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from .checkers import Finding
from .history import (
    ACQUIRE,
    CHECK,
    CLAIM,
    CLOSED,
    CRASHED,
    GRANTED,
    LOST,
    RELEASE,
    RENEW,
    TURNED_AWAY,
    History,
    Operation,
)


def check_withdrawn(history: History, interrupted: Collection[str]) -> Iterator[Finding]:
    """Whoever is interrupted while it acquires takes its claim back: that is tried, at the least. `interrupted`: by what."""
    over = {note.process for note in history.notes if note.what in (CRASHED, CLOSED)}
    cut_short = [one for one in history.of(ACQUIRE) if one.detail in interrupted and one.process not in over]
    if not cut_short:
        return
    released = {one.holder for one in history.of(RELEASE)}
    released |= {one.holder for one in history.of(ACQUIRE) if one.outcome == GRANTED}  # another task's, who has it
    inside = {
        one.holder for one in history.of(CLAIM, RENEW) if one.outcome != TURNED_AWAY
    }  # or in line, for all we know
    lost = {(note.process, note.name): note.at for note in history.notes if note.what == LOST}  # at the latest
    first: dict[str, Operation] = {}
    ends: dict[str, float] = {}  # by itself
    for claim in history.of(CLAIM, RENEW):
        first.setdefault(claim.holder, claim)
        ends[claim.holder] = claim.invoked + claim.ttl
    for acquire in cut_short:
        for claim in first.values():
            mine = (claim.process, claim.name) == (acquire.process, acquire.name)
            during = acquire.invoked <= claim.invoked <= acquire.returned < ends[claim.holder]
            told = acquire.invoked <= lost.get((claim.process, claim.name), -1.0)
            if mine and during and not told and claim.holder in inside - released:
                yield Finding("withdrawal", claim.name, f"left to its ttl, though {acquire.detail} ended it: {claim}")


def check_forks(history: History, children: Collection[str]) -> Iterator[Finding]:
    """A forked child believes in nothing that its parent held, and asks nothing in its parent's name."""
    whose: dict[str, str] = {}  # who asked first
    for one in history.operations if children else ():
        if one.kind not in (CHECK, CLAIM, RENEW, RELEASE):
            continue
        owner = whose.setdefault(one.holder, one.process)
        if owner != one.process and one.process in children and (one.kind, one.outcome) != (CHECK, LOST):
            yield Finding("fork", one.name, f"what {owner} holds is not its child's: {one}")
