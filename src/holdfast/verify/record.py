"""The whole run in one file, to be judged, and to be judged again.

The first line says what the run knows of itself, then come notes of the run as a whole (faults, kills); then, part by part, what
happened to the names of one era. A part is read, judged and forgotten before the next: a run of hours needs no more memory than a
run of minutes.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

from ..errors import Misuse
from ..testing.history import Entry, History, Note, Operation
from .journal import entries, operation, plain, steps

FORMAT = 2
_AT_ONCE = 20_000  # lines that are sorted by era in memory
_NUMBER = (int, float)
_LARGEST = 2.0**63  # also of seconds: with infinities, and what is no number at all, nothing can be drawn
Kinds = dict[str, type | tuple[type, ...]]
# What a run says of itself. A history may come from somebody else, and its page is opened in a browser.
_ABOUT: Kinds = {
    "store": str,
    "own": (str, type(None)),
    "library": (str, type(None)),
    "register": str,
    "seconds": _NUMBER,
    "seed": int,
    "workers": int,
    "ttl": _NUMBER,
    "fenced": bool,
    "allowed": list,
    "left out": dict,
    "bound": _NUMBER,
    "begun": _NUMBER,
    "healed": _NUMBER,
    "ended": _NUMBER,
    "wrong": list,
    "environment": dict,
}


def _check(said: Any, kinds: Kinds) -> None:
    for field, kind in kinds.items():
        value = said[field] if isinstance(said, dict) else getattr(said, field)
        if not isinstance(value, kind):
            raise TypeError(f"{field} is no {kind}")
        never = field == "returned" and value == math.inf  # what was begun, and not answered
        if kind is not str and isinstance(value, int | float) and not abs(value) <= _LARGEST and not never:
            raise TypeError(f"{field} is out of bounds")


def _kinds(of: type) -> Kinds:
    plain: dict[type, type | tuple[type, ...]] = {str: str, int: int, float: _NUMBER}
    return {field: plain[kind] for field, kind in get_type_hints(of).items() if kind in plain}


_OPERATION, _NOTE = _kinds(Operation), _kinds(Note)


def era_of(name: str) -> str:
    """Names end with their era: only what happened in the same one has to do with each other."""
    return name.rpartition(".")[2]


def write(
    path: Path,
    about: dict[str, Any],
    notes: Iterable[Note],
    journals: Iterable[Path],
    final: Callable[[str], tuple[Entry, ...] | None],
    folder: Path,
) -> None:
    """From what all processes wrote down, and what the registers held at the end. `folder` is for files in between."""
    with path.open("w", encoding="ascii") as file:
        file.write(f"{json.dumps({'holdfast verify': FORMAT, **about})}\n")
        for note in sorted(notes):
            file.write(f"{json.dumps(note._asdict())}\n")
        for bucket in _by_era(journals, folder):
            part = History()
            with bucket.open(encoding="ascii") as lines:
                for line in lines:
                    _take(json.loads(line), part)
            bucket.unlink()
            part.operations.sort(key=lambda one: one.invoked)
            for name in {one.name for one in part.operations}:
                held = final(name)
                if held is not None:
                    part.final[name] = held
            file.writelines(f"{line}\n" for line in lines_of(part))


def lines_of(part: History) -> Iterator[str]:
    yield json.dumps({"part": True})
    for one in part.operations:
        yield json.dumps(plain(one))
    for note in sorted(part.notes):
        yield json.dumps(note._asdict())
    for name, held in sorted(part.final.items()):
        yield json.dumps({"final": name, "value": held})


def _by_era(journals: Iterable[Path], folder: Path) -> list[Path]:
    """The steps of all, in a file for every era."""
    waiting: dict[str, list[str]] = defaultdict(list)
    buckets: dict[str, Path] = {}

    def flush() -> None:
        for era, lines in waiting.items():
            bucket = buckets.setdefault(era, folder / f"era-{len(buckets)}")
            with bucket.open("a", encoding="ascii") as file:
                file.writelines(lines)
        waiting.clear()

    lines = 0
    for journal in journals:
        for told in steps(journal):
            waiting[era_of(told["name"])].append(f"{json.dumps(told)}\n")
            lines += 1
            if lines % _AT_ONCE == 0:
                flush()
    flush()
    return [buckets[era] for era in sorted(buckets, key=lambda era: (len(era), era))]


def _take(told: dict[str, Any], history: History) -> None:
    if "final" in told:
        history.final[told["final"]] = entries(told["value"])
    elif "what" in told:
        history.notes.append(_note(told))
    else:
        one = operation(told)
        _check(one, _OPERATION)
        history.operations.append(one)


def _note(told: dict[str, Any]) -> Note:
    note = Note(**told)
    _check(note, _NOTE)
    return note


class Record:
    """A run that was written down."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.notes: list[Note] = []  # of the run as a whole
        lines = self._lines()
        try:
            self.about: dict[str, Any] = next(lines, {})
            if self.about.pop("holdfast verify") != FORMAT:
                raise Misuse(f"{str(path)!r} was kept by another version of holdfast")
            _check(self.about, _ABOUT)
            for told in lines:
                if "part" in told:
                    break
                self.notes.append(_note(told))
        except (KeyError, TypeError, AttributeError):
            raise self._nonsense() from None

    def parts(self) -> Iterator[History]:
        """One after the other; each knows the notes of the whole run too."""
        part: History | None = None
        lines = self._lines()
        next(lines)
        try:
            for told in lines:
                if "part" in told:
                    if part is not None:
                        yield part
                    part = History()
                    part.notes += self.notes
                elif part is not None:
                    _take(told, part)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise error if isinstance(error, Misuse) else self._nonsense() from None
        if part is not None:
            yield part

    def since(self, at: float) -> History:
        """What began after a moment."""
        recent = History()
        for part in self.parts():
            recent.operations += [one for one in part.operations if one.invoked >= at]
        recent.operations.sort(key=_invoked)
        recent.notes = [note for note in self.notes if note.at >= at]
        return recent

    def _lines(self) -> Iterator[dict[str, Any]]:
        with self._path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    told = json.loads(line)
                except (ValueError, RecursionError):
                    raise self._nonsense() from None
                if not isinstance(told, dict):
                    raise self._nonsense()
                yield told

    def _nonsense(self) -> Misuse:
        return Misuse(f"{str(self._path)!r} is no history that `holdfast verify --keep` has written")


def _invoked(one: Operation) -> float:
    return one.invoked
