"""A history that `holdfast verify --keep` has kept, as a tape: real processes and real servers, in the same lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..testing.history import DONE, STALE, WRITE, History, Operation
from ..verify.nemesis import FAULT, lasted
from ..verify.record import Record
from .tape import CUT_OFF, DEPOSIT, PAUSED, STORAGE, Span, Tape, both, play

_SAID = ("store", "seed", "workers", "ttl", "fenced")
_MOST = 5000  # operations, and notes, of a long run that are shown: the last ones
_MOST_FAULTS = 20_000  # spans of them: a fault of everybody's has one in each lane


def opened(path: Path) -> dict[str, Any]:
    record = Record(path)
    busiest = max(record.parts(), key=lambda part: sum(1 for _ in _busiest(part).of(WRITE)), default=History())
    return recorded(busiest, record.about)


def recorded(history: History, about: dict[str, Any]) -> dict[str, Any]:
    """Of one lock after another a page can show little: that with the most writes is shown, and the faults."""
    shown = _busiest(history)
    begun = min((one.invoked for one in shown.operations), default=0.0)
    for one in shown.operations:
        one.invoked -= begun
        one.returned -= begun
    notes = sorted((note for note in history.notes if note.at >= begun), key=lambda note: note.at)
    shown.notes = [note._replace(at=note.at - begun) for note in notes[-_MOST:]]
    tape = Tape([*sorted({one.process for one in shown.operations}), STORAGE])
    play(tape, shown, storage=True)
    _faults(tape, shown)
    writes = [one for one in shown.of(WRITE) if one.outcome == DONE]
    until = max((one.at for one in tape.events), default=0.0)
    lost = DEPOSIT * _lost(shown, writes)
    return {
        **tape.data(),
        "length": until,
        "until": until,
        "name": next((one.name for one in shown.operations), ""),
        "about": {key: about[key] for key in _SAID if isinstance(about.get(key), str | int | float)},
        "outcome": {
            "balance": DEPOSIT * len(writes) - lost,
            "acknowledged": DEPOSIT * len(writes),
            "lost": lost,
            "refused": sum(1 for one in shown.operations if one.outcome == STALE),
            "both": round(both(tape.spans, until), 3),
        },
    }


def _busiest(history: History) -> History:
    counts: dict[str, int] = {}
    for one in history.of(WRITE):
        counts[one.name] = counts.get(one.name, 0) + 1
    name = max(counts, key=lambda one: counts[one]) if counts else ""
    shown = History()
    shown.operations = [one for one in history.operations if one.name == name][-_MOST:]
    shown.final = {key: value for key, value in history.final.items() if key == name}
    return shown


def _lost(history: History, writes: list[Operation]) -> int:
    """As `check_updates` finds them, which says of each what there was in the end: of a long run, gigabytes."""
    kept = {name: set(held) for name, held in history.final.items()}
    return sum(1 for one in writes if one.token and one.name in kept and not kept[one.name].issuperset(one.value))


def _faults(tape: Tape, history: History) -> None:
    everybody = [one for one in tape.lanes if one != STORAGE] or tape.lanes
    known, drawn = set(tape.lanes), 0
    for note in history.notes:
        if note.what.startswith(FAULT):
            kind, seconds = note.what.removeprefix(FAULT), lasted(note)
            lanes = [note.process] if note.process in known else everybody
            tape.say(note.at, lanes[0], kind, f"{kind} of {note.process}, {note.detail}")
            if kind == "kill":
                continue  # it is noted as such
            drawn += len(lanes)
            if drawn > _MOST_FAULTS:
                continue
            span = PAUSED if kind.startswith("pause") else CUT_OFF
            tape.spans += [Span(lane, span, note.at, note.at + seconds, about=kind) for lane in lanes]
