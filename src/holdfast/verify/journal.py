"""The history on file: a line for every step, written before it is taken and again when it is answered.

A line is one write() to a file that is only appended to: a process that is killed loses nothing that it did, but for the answer
that it was waiting for, and such a step stays open.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import Misuse
from ..testing import crowd
from ..testing.history import History, Note, Operation

FORMAT = 1
_NUMBER = (int, float)
# What a run says of itself. A history may come from somebody else, and its page is opened in a browser.
_ABOUT: dict[str, type | tuple[type, ...]] = {
    "store": str,
    "own": (str, type(None)),
    "seconds": _NUMBER,
    "seed": int,
    "workers": int,
    "ttl": _NUMBER,
    "fenced": bool,
    "allowed": list,
    "bound": _NUMBER,
    "begun": _NUMBER,
    "healed": _NUMBER,
    "wrong": list,
    "environment": dict,
}


class Journal(crowd.Journal):
    """One process's."""

    def __init__(self, process: str, path: Path) -> None:
        raw = path.open("ab", buffering=0)
        super().__init__(process, io.TextIOWrapper(raw, encoding="ascii", write_through=True))
        self.process = process
        self._mutex = threading.RLock()  # leases are renewed, and their losses told, by other threads

    def begin(self, operation: Operation) -> Operation:
        with self._mutex:
            return super().begin(operation)

    def write(self, operation: Any) -> None:
        with self._mutex:
            super().write(operation)

    def step(self, kind: str, name: str, **fields: Any) -> Operation:
        return self.begin(Operation(self.process, kind, name, time.monotonic(), **fields))

    def tell(self, what: str, name: str, token: int) -> None:
        """A note, on file too."""
        with self._mutex:
            self._file.write(json.dumps(Note(time.monotonic(), self.process, what, name, token)._asdict()) + "\n")

    def close(self) -> None:
        self._file.close()


def gathered(paths: Iterable[Path]) -> History:
    """What all processes wrote down."""
    history = History()
    for path in paths:
        steps: dict[int, Operation] = {}
        for line in path.read_text(encoding="ascii").splitlines():
            with suppress(json.JSONDecodeError):  # the last line of one that was killed may be half a line
                fields = json.loads(line)
                if "number" in fields:
                    number = fields.pop("number")
                    steps[number] = _operation(fields)
                else:
                    history.notes.append(Note(**fields))
        history.operations += steps.values()
    history.operations.sort(key=lambda one: one.invoked)
    history.notes.sort()
    return history


def keep(history: History, about: dict[str, Any], path: Path) -> None:
    """The whole run in one file, to be checked again."""
    path.write_text(f"{json.dumps({'holdfast verify': FORMAT, **about})}\n{history.json_lines()}\n")


def kept(path: Path) -> tuple[History, dict[str, Any]]:
    history = History()
    try:
        first, *lines = path.read_text().splitlines()
        about = json.loads(first)
        if about.pop("holdfast verify") != FORMAT:
            raise Misuse(f"{str(path)!r} was kept by another version of holdfast")
        _check(about, _ABOUT)
        for line in lines:
            _take(json.loads(line), history)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, Misuse):
            raise
        raise Misuse(f"{str(path)!r} is no history that `holdfast verify --keep` has written") from None
    return history, about


def _check(said: Any, kinds: dict[str, type | tuple[type, ...]]) -> None:
    for field, kind in kinds.items():
        if not isinstance(said[field] if isinstance(said, dict) else getattr(said, field), kind):
            raise TypeError(f"{field} is no {kind}")


def _take(fields: dict[str, Any], history: History) -> None:
    if "final" in fields:
        history.final[fields["final"]] = _entries(fields["value"])
    elif "what" in fields:
        history.notes.append(_note(fields))
    else:
        history.operations.append(_operation(fields))


def _operation(fields: dict[str, Any]) -> Operation:
    if fields.get("returned", 0.0) is None:
        del fields["returned"]  # open
    operation = Operation(**{**fields, "value": _entries(fields["value"])})
    _check(operation, _OPERATION)
    return operation


def _note(fields: dict[str, Any]) -> Note:
    note = Note(**fields)
    _check(note, _NOTE)
    return note


def _kinds(of: type) -> dict[str, type | tuple[type, ...]]:
    plain: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "float": _NUMBER}
    return {field: plain[kind] for field, kind in of.__annotations__.items() if kind in plain}


_OPERATION, _NOTE = _kinds(Operation), _kinds(Note)


def _entries(value: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    return tuple((entry, token) for entry, token in value)


class Tail:
    """Follows a journal as it grows, from another process."""

    def __init__(self, path: Path, seen: Callable[[dict[str, Any]], None]) -> None:
        self._path = path
        self._seen = seen
        self._at = 0

    def read(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                new = file.read()
        except FileNotFoundError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            self._seen(json.loads(line))
