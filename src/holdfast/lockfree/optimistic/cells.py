"""Stores that keep one value a key, each with a version of its own: Redis, etcd, ZooKeeper, HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ...databases.wire import settle
from ...errors import Misuse
from .retry import ABSENT, Absent, Attempt, Pauses, Retry, outdated, persist, retry_of, valid_expected

Change = Callable[[Any], Any]
ChangeAll = Callable[[list[Any]], Sequence[Any] | Awaitable[Sequence[Any]]]


class Cell(NamedTuple):
    """One key as it was read. Version 0: there was nothing."""

    key: Any
    seen: Any
    value: Any
    kind: str | None = None  # HTTP: the content type

    def at(self, expected: Any) -> bool:
        # Not by the version alone: a hash that others made has none, and is there all the same.
        return self.value is None or self.value == {} if expected == ABSENT else bool(self.seen == expected)


class KeysOfBytes:
    """What Redis and etcd have in common."""

    system: str

    def valid_key(self, key: str | bytes) -> str | bytes:
        if not isinstance(key, (str, bytes)) or not key:
            raise Misuse(f"a key of {self.system} must be a str or bytes that is not empty, not {key!r:.80}")
        return key

    def valid_expected(self, expected: object) -> int | Absent | None:
        return valid_expected(expected, "a key")


class Cells(Protocol):
    def valid_key(self, key: Any) -> Any:
        """The key, or `Misuse`."""

    def valid_expected(self, expected: Any) -> Any: ...

    async def read(self, keys: Sequence[Any]) -> list[Cell]: ...

    def after(self, before: Any, answer: Any) -> Any:
        """What the value will be; `Misuse` if `answer` can be none."""

    async def write(self, cells: Sequence[Cell], answers: Sequence[Any]) -> bool:
        """All of them if each is still at the version seen, else none. An answer None only checks."""


async def update(
    driver: Pauses, cells: Cells, key: Any, change: Change, expected: Any = None, retry: Retry | None = None
) -> Any:
    async def change_one(values: list[Any]) -> list[Any]:
        return [await settle(change(values[0]))]

    (after,) = await update_all(driver, cells, [key], change_one, cells.valid_expected(expected), retry)
    return after


async def update_all(
    driver: Pauses,
    cells: Cells,
    keys: Sequence[Any],
    change: ChangeAll,
    expected: Any = None,
    retry: Retry | None = None,
) -> list[Any]:
    keys = [cells.valid_key(key) for key in keys]
    if not keys:
        raise Misuse("no keys were given")
    if len(set(keys)) < len(keys):
        raise Misuse("one key was given twice: which of its two changes would count?")
    what = " and ".join(map(str, keys))

    async def attempt() -> Attempt[list[Any]]:
        found = await cells.read(keys)
        if expected is not None and not found[0].at(expected):
            raise outdated(what, expected, found[0].seen)
        seen = tuple(cell.seen for cell in found)
        before = [cell.value for cell in found]
        answers = await settle(change([dict(one) if isinstance(one, dict) else one for one in before]))
        if isinstance(answers, (dict, str, bytes)) or answers is None or len(answers) != len(keys):
            raise Misuse(
                f"the change of {len(keys)} keys must answer with a list of {len(keys)}, one a key (None: as it is)"
            )
        after = [old if new is None else cells.after(old, new) for old, new in zip(before, answers, strict=True)]
        written = all(one is None for one in answers) or await cells.write(found, answers)
        return Attempt(seen[0] if len(seen) == 1 else seen, written, after)

    return await persist(driver, retry_of(retry, expected), what, attempt)
