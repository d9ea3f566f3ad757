"""What happened, as lanes, spans and events: made of a history, whether from the simulator or from real servers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, NamedTuple

from .. import events
from ..testing.history import (
    ACQUIRE,
    CRASHED,
    DONE,
    GRANTED,
    LOST,
    OPEN,
    READ,
    RELEASE,
    RENEW,
    RENEWED,
    STALE,
    WRITE,
    History,
    Operation,
)

STORAGE = "storage"
HOLDS, WAITS, PAUSED, CUT_OFF, STORE_SAYS = "holds", "waits", "paused", "cut", "says"
DEPOSIT = 10


class Span(NamedTuple):
    lane: str
    kind: str
    since: float
    until: float | None  # None: it goes on
    token: int = 0
    about: str = ""


class Happened(NamedTuple):
    at: float
    lane: str
    kind: str
    text: str
    token: int = 0
    balance: int | None = None  # of the storage, from then on


class Tape:
    """`tokens` are numbered in the order of their first grant: 1, 2, 3 are easier to compare than microseconds since 1970."""

    def __init__(self, lanes: Iterable[str]) -> None:
        self.lanes = list(lanes)
        self.spans: list[Span] = []
        self.events: list[Happened] = []
        self._numbers: dict[int, int] = {}

    def number(self, token: int) -> int:
        return self._numbers.setdefault(token, len(self._numbers) + 1) if token else 0

    def say(self, at: float, lane: str, kind: str, text: str, token: int = 0, balance: int | None = None) -> None:
        self.events.append(Happened(at, lane, kind, text, token, balance))

    def data(self) -> dict[str, Any]:
        ordered = sorted(self.events, key=lambda one: one.at)
        return {
            "lanes": self.lanes,
            "spans": [one._asdict() for one in sorted(self.spans, key=lambda one: (one.since, one.lane, one.kind))],
            "events": [one._asdict() for one in ordered],
        }


def play(tape: Tape, history: History, *, storage: bool) -> None:
    """What processes asked, were told and believed. `storage`: reads and writes are told of here, not by the storage."""
    crashes = _crashes(history)
    ends = _ends(history, crashes)
    for one in sorted(history.of(ACQUIRE), key=lambda one: one.returned):
        if one.outcome == GRANTED:
            tape.number(one.token)
    for one in history.operations:
        if one.kind == ACQUIRE:
            _acquire(tape, one, ends, crashes)
        elif one.kind == RENEW:
            _renewal(tape, one, ends.get((one.process, one.holder), OPEN))
        elif one.kind == RELEASE and ends.get((one.process, one.holder)) == one.invoked:
            tape.say(one.invoked, one.process, "released", f"{one.process} gives the lock back")
        elif one.kind in (READ, WRITE) and storage:
            _touch(tape, one)
    for note in history.notes:
        if note.what == events.LOST:
            tape.say(
                note.at, note.process, "lost", f"{note.process} learns that the lock is lost", tape.number(note.token)
            )
        elif note.what == events.IN_DANGER:
            told = f"{note.process} could not renew, and is told that the lock is in danger"
            tape.say(note.at, note.process, "danger", told, tape.number(note.token))
        elif note.what == CRASHED:
            tape.say(note.at, note.process, "killed", f"{note.process} is gone")


Crashes = dict[str, list[float]]


def _crashes(history: History) -> Crashes:
    """process → when it was killed, in order."""
    found: Crashes = {}
    for note in sorted(history.notes, key=lambda note: note.at):
        if note.what == CRASHED:
            found.setdefault(note.process, []).append(note.at)
    return found


def _ends(history: History, crashes: Crashes) -> dict[tuple[str, str], float]:
    """(process, holder) → when it stopped to believe: it gave the lock back, was told of the loss, or was killed."""
    released: dict[tuple[str, str], float] = {}
    for one in history.of(RELEASE):  # repeated until it is answered: the first time counts
        released.setdefault((one.process, one.holder), one.invoked)
    lost = {(note.process, note.token): note.at for note in history.notes if note.what == events.LOST}
    found: dict[tuple[str, str], float] = {}
    for one in history.of(ACQUIRE):
        key = one.process, one.holder
        end = min(
            released.get(key, OPEN), lost.get((one.process, one.token), OPEN), _killed(crashes, one, one.returned)
        )
        if one.outcome == GRANTED and end < OPEN:
            found[key] = end
    return found


def _killed(crashes: Crashes, one: Operation, since: float) -> float:
    """When its process was, the first time after that; another of the same name may have been started."""
    times = crashes.get(one.process, [])
    at = bisect_left(times, since)
    return times[at] if at < len(times) else OPEN


def _acquire(tape: Tape, one: Operation, ends: dict[tuple[str, str], float], crashes: Crashes) -> None:
    tape.say(one.invoked, one.process, "asks", f"{one.process} asks for the lock")
    until = min(one.returned, _killed(crashes, one, one.invoked))
    tape.spans.append(Span(one.process, WAITS, one.invoked, until if until < OPEN else None))
    if one.outcome == GRANTED:
        number = tape.number(one.token)
        tape.say(one.returned, one.process, "granted", f"{one.process} has the lock, with token {number}", number)
        tape.spans.append(Span(one.process, HOLDS, one.returned, ends.get((one.process, one.holder)), number))
    elif one.returned < OPEN:
        tape.say(one.returned, one.process, "gave up", f"{one.process} does not get it: {one.detail}")


def _renewal(tape: Tape, one: Operation, end: float) -> None:
    if one.outcome in (RENEWED, LOST) and one.returned <= end:  # one that was under way at the release tells nothing
        told = "renews its lease" if one.outcome == RENEWED else "is told at a renewal that it holds nothing"
        tape.say(one.returned, one.process, one.outcome, f"{one.process} {told}", tape.number(one.token))


def _touch(tape: Tape, one: Operation) -> None:
    number = tape.number(one.token)
    if one.outcome == STALE:
        tape.say(one.returned, STORAGE, "refused", f"{one.process} is refused ({one.kind}, token {number})", number)
    elif one.outcome == DONE:
        tape.say(one.returned, STORAGE, one.kind, f"{one.process}: the {one.kind} is accepted (token {number})", number)


def both(spans: Iterable[Span], end: float) -> float:
    """For how many seconds two believed that they held the lock."""
    holds = [one for one in spans if one.kind == HOLDS]
    moments = sorted(
        [(one.since, 1) for one in holds] + [(end if one.until is None else one.until, -1) for one in holds]
    )
    inside, since, total = 0, 0.0, 0.0
    for at, change in moments:
        total += at - since if inside > 1 else 0.0
        inside, since = inside + change, at
    return total
