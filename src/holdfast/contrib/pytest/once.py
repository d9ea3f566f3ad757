"""Something that all workers of pytest-xdist share, made by the first who needs it and undone by the last.

A mutex over making and undoing, and beside it a lock that every user reads: whoever can write it is alone.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import quote

from ...connecting import quote as quoted
from ...errors import Misuse, NotAcquired
from ...sync import Lease, RWLock, connect

if TYPE_CHECKING:
    import pytest

T = TypeVar("T")


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder of this run that all its workers see: each worker's own is below it."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


class Once:
    """Called with a name and what makes it: the result, from whichever worker made it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._locks = connect(f"sqlite://{quoted(str(folder / 'holdfast-once.db'))}")
        self._ours: dict[str, tuple[Lease, Callable[[Any], object] | None]] = {}
        self._made: dict[str, Any] = {}

    def __call__(self, name: str, make: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        """`make()` runs in one worker; what it returns is written down as JSON, and given to all. If it raises, the next tries.

        `undo(result)` is called at the end of the session by the last worker that used it.
        """
        if name not in self._made:
            with self._locks.lock(f"make {name}"):
                self._made[name] = self._made_or_found(name, make, undo)
        return cast(T, self._made[name])

    def _made_or_found(self, name: str, make: Callable[[], T], undo: Callable[[T], object] | None) -> Any:
        file = self._file(name)
        using = self._users(name).read().acquire(timeout=0)
        try:
            if not file.exists():
                _write(file, name, make())
            self._ours[name] = using, undo
            return json.loads(file.read_text(encoding="utf-8"))
        except BaseException:
            using.release()
            raise

    def _leave(self, name: str, using: Lease, undo: Callable[[Any], object] | None) -> None:
        with self._locks.lock(f"make {name}"):
            using.release()
            with contextlib.suppress(NotAcquired), self._users(name).write().acquire(timeout=0):
                self._file(name).unlink(missing_ok=True)  # who comes now makes it anew
                if undo is not None:
                    undo(self._made[name])

    def _users(self, name: str) -> RWLock[Any]:
        return self._locks.rwlock(f"use {name}")

    def _file(self, name: str) -> Path:
        return self._folder / f"holdfast-once-{quote(name, safe='')}.json"

    def __enter__(self) -> Once:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with contextlib.ExitStack() as leaving:
            leaving.callback(self._locks.close)
            for name, (using, undo) in self._ours.items():
                leaving.callback(self._leave, name, using, undo)


def _write(file: Path, name: str, result: object) -> None:
    try:
        text = json.dumps(result)
    except (TypeError, ValueError) as error:
        raise Misuse(
            f"what makes {name!r} must return what JSON can say, for the other workers to read: {error}"
        ) from None
    partly = file.with_suffix(".new")
    partly.write_text(text, encoding="utf-8")
    partly.replace(file)
