"""One run as people tell it: who did what, when. Plain data, for a text here and for drawings elsewhere."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..history import (
    ACQUIRE,
    CHECK,
    CLAIM,
    EVICT,
    GRANTED,
    OPEN,
    PLACED,
    READ,
    RELEASE,
    RENEW,
    RENEWED,
    STALE,
    UNKNOWN,
    WRITE,
    History,
    Note,
    Operation,
)  # fmt: skip

FAULT, USER, REQUEST, STORAGE, SIGNAL = "fault", "user", "request", "storage", "signal"
SIGNALS = ("lost", "in danger", "release failed", "waiting", "healed")  # notes that are no faults


class Event(NamedTuple):
    """In a lane, from a moment to another: `until` is the same moment for what takes no time, None if it never ended."""

    at: float
    until: float | None
    lane: str
    kind: str  # FAULT, USER, REQUEST, STORAGE or SIGNAL
    text: str
    name: str = ""  # of the lock
    token: int = 0  # in the order of this story, from 1; 0: none


class Story(NamedTuple):
    store: str
    seed: int
    lanes: tuple[str, ...]  # processes in the order of their first act, then servers
    events: tuple[Event, ...]
    findings: tuple[str, ...]
    tokens: tuple[int, ...]  # as they really were
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {**self._asdict(), "events": [event._asdict() for event in self.events]}

    def about(self, name: str) -> Story:
        """Only what concerns one lock, and the faults."""
        events = tuple(event for event in self.events if event.name == name or event.kind == FAULT)
        lanes = {event.lane for event in events}
        return self._replace(events=events, lanes=tuple(lane for lane in self.lanes if lane in lanes))

    def __str__(self) -> str:
        width = max((len(lane) for lane in self.lanes), default=0)
        lines = [f"{event.at:9.4f}  {event.lane:{width}}  {_marked(event)}" for event in self.events]
        return "\n".join([*lines, *(f"\nWrong: {finding}" for finding in self.findings)])


def _marked(event: Event) -> str:
    return f"{'● ' if event.kind == FAULT else '  '}{event.text}{lasting(event)}"


def lasting(event: Event) -> str:
    """How long, in words."""
    if event.until is None:
        return " (and hears nothing of it)" if event.kind in (REQUEST, STORAGE) else ""
    return f" ({(event.until - event.at) * 1000:.1f} ms)" if event.until > event.at else ""


def told(store: str, seed: int, history: History, findings: list[str], seconds: float) -> Story:
    tokens = sorted({one.token for one in history.operations if one.token})
    numbers = {token: at for at, token in enumerate(tokens, 1)}
    events = [_event(one, numbers) for one in history.operations if one.kind != CHECK or one.outcome != "done"]
    events += [_happened(note, numbers) for note in history.notes]
    events.sort(key=lambda event: event.at)
    lanes = dict.fromkeys(event.lane for event in events)
    return Story(store, seed, tuple(lanes), tuple(events), tuple(findings), tuple(tokens), seconds)


def _event(one: Operation, numbers: dict[int, int]) -> Event:
    until = None if one.returned == OPEN else one.returned
    number = numbers.get(one.token, 0)
    kind = {ACQUIRE: USER, CHECK: USER, READ: STORAGE, WRITE: STORAGE}.get(one.kind, REQUEST)
    return Event(one.invoked, until, one.process, kind, _words(one, f"token #{number}"), one.name, number)


def _words(one: Operation, token: str) -> str:
    name = f"{one.name!r}"
    units = f" ({one.units} of {one.capacity})" if 1 < one.capacity < 1 << 30 else ""
    match one.kind:
        case "acquire":
            if one.outcome == GRANTED:
                return f"wants {name}{units}, and has it: {token}, ttl {one.ttl:g} s"
            why = (
                "and is still waiting when the story ends"
                if one.outcome == UNKNOWN
                else f"and does not get it: {one.detail}"
            )
            return f"wants {name}{units}, {why}"
        case "check":
            return f"looks whether it still holds {name}: no, it is lost"
        case "read":
            return f"reads {name} with {token}{_refused(one)}"
        case "write":
            return f"writes {' '.join(what for what, _ in one.value)} to {name} with {token}{_refused(one)}"
    about = f"{name}{f' as {one.holder}' if one.holder else ''}"
    asked = {CLAIM: "claims", RENEW: "renews", RELEASE: "releases", EVICT: "puts the holder out of"}[one.kind]
    answer = {
        GRANTED: f"granted, {token}",
        PLACED: "told to wait in line",
        RENEWED: f"kept, {token}",
        UNKNOWN: f"no answer{f', {one.detail}' if one.detail else ''}",
    }.get(one.outcome, one.outcome)
    return f"{asked} {about}: {answer}"


def _refused(one: Operation) -> str:
    return f": refused, {one.detail}" if one.outcome == STALE else ""


def _happened(note: Note, numbers: dict[int, int]) -> Event:
    kind = SIGNAL if note.what in SIGNALS else FAULT
    about = f" {note.name!r}" if note.name else ""
    detail = f", {note.detail}" if note.detail else ""
    number = numbers.get(note.token, 0)
    text = f"is told: {note.what}{about}{detail}" if kind == SIGNAL else f"{note.what}{about}{detail}"
    return Event(note.at, note.at, note.process, kind, text, note.name, number)
