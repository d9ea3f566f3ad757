"""What one worker writes down: a line for every step, before it is taken and again when it is answered.

A line is one write() to a file that is only appended to: a process that is killed loses nothing that it did, but for the answer
that it was waiting for, and such a step stays open. Nothing is kept in memory: a worker may work for hours.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import MISSING, fields
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any

from ..testing.history import History, Note, Operation, Written

_DEFAULTS = {each.name: each.default for each in fields(Operation)}
_NOTHING = {name: default for name, default in _DEFAULTS.items() if default is not MISSING}


def plain(one: Operation) -> dict[str, Any]:
    """An operation as it stands on file: what is as usual is left out."""
    values = {name: getattr(one, name) for name in _DEFAULTS}
    return {name: value for name, value in values.items() if name not in _NOTHING or value != _NOTHING[name]}


def operation(told: dict[str, Any]) -> Operation:
    """Back from what `plain` made of it."""
    return Operation(**{**told, "value": entries(told.get("value", ()))})


def entries(value: Iterable[Any]) -> tuple[tuple[str, int], ...]:
    found = tuple((entry, token) for entry, token in value)
    if not all(isinstance(entry, str) and isinstance(token, int) for entry, token in found):
        raise TypeError("an entry is a text and a token")
    return found


class Journal(History):
    """One process's. Leases are renewed, and their losses told, by other threads."""

    def __init__(self, process: str, path: Path) -> None:
        super().__init__()
        self.process = process
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._numbers = count()
        self._salt = os.urandom(16)
        self._mutex = threading.Lock()  # what is closed is not written to

    def alias(self, holder: str) -> str:
        """A nonce releases the lock, so no history shows it."""
        return f"{self.process}.{blake2b(holder.encode(), key=self._salt, digest_size=5).hexdigest()}"

    def begin(self, operation: Operation) -> Operation:
        return Written.begun(operation, next(self._numbers), self._write)

    def _write(self, step: Written) -> None:
        self.write({"number": step.number, **plain(step)})

    def step(self, kind: str, name: str, **more: Any) -> Operation:
        return self.begin(Operation(self.process, kind, name, time.monotonic(), **more))

    def tell(self, what: str, name: str, token: int) -> None:
        """A note."""
        self.write(Note(time.monotonic(), self.process, what, name, token)._asdict())

    def write(self, told: dict[str, Any]) -> None:
        with self._mutex:
            if self._file >= 0:
                os.write(self._file, f"{json.dumps(told)}\n".encode())

    def close(self) -> None:
        with self._mutex:
            os.close(self._file)
            self._file = -1


def steps(path: Path) -> Iterator[dict[str, Any]]:
    """What one process wrote down, every step once: as it was answered, or else as it was begun. And its notes."""
    begun: dict[int, dict[str, Any]] = {}
    with path.open(encoding="ascii") as file:
        for line in file:
            with suppress(json.JSONDecodeError):  # the last line of one that was killed may be half a line
                told = json.loads(line)
                if "number" not in told:
                    yield told
                elif "returned" in told:
                    begun.pop(told.pop("number"), None)
                    yield told
                else:
                    begun[told.pop("number")] = told
    yield from begun.values()


class Tail:
    """Follows a journal as it grows, from another process: those steps whose line has one of the words in it."""

    def __init__(self, path: Path, words: Iterable[bytes], seen: Callable[[dict[str, Any]], None]) -> None:
        self._path = path
        self._words = tuple(words)
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
            if any(word in line for word in self._words):
                self._seen(json.loads(line))
