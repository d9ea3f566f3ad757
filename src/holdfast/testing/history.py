"""What clients asked and were told, and when: plain data, from a simulation or from real servers alike.

An operation begins when it is invoked. It ends when its answer arrives; one whose answer never came, because it timed out, was
cancelled, or its process died, stays open for ever: it may have happened, at any time since, or never.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..claim import ROUND, Claim, Grant, Place, Verdict
from ..errors import HoldfastError, Unavailable
from ..stores.base import Store
from .around import Around

OPEN = float("inf")

# Kinds of operations
ACQUIRE = "acquire"  # what a user waits for: many claims
CHECK = "check"  # a guarded call: the lease said that it is held
CLAIM, RENEW, RELEASE, EVICT = "claim", "renew", "release", "evict"
READ, WRITE = "read", "write"  # of fenced storage

# Outcomes
UNKNOWN = "unknown"
GRANTED, PLACED, TURNED_AWAY = "granted", "placed", "turned away"
RENEWED, LOST = "renewed", "lost"
LEFT, GONE = "left", "gone"
DONE, STALE, FAILED = "done", "stale", "failed"

# Notes that checkers look for
CRASHED = "crashed"
CLOSED = "closes its connection"
TOLD_LOST = "lost"  # its owner heard of it
FORGOT = "forgot"  # a server that lost some of what it knew: of one name, or of all
SET_FORWARD, SET_BACK = "clock set forward", "clock set back"  # of a server that ends leases by it

Entry = tuple[str, int]  # an update of fenced storage, and the token that it was written with


@dataclass(slots=True)
class Operation:
    process: str
    kind: str
    name: str
    invoked: float
    returned: float = OPEN
    outcome: str = UNKNOWN
    holder: str = ""
    token: int = 0
    units: int = 1
    capacity: int = 1
    ttl: float = 0.0
    value: tuple[Entry, ...] = ()
    past: int = 0  # of an eviction: the token that outranks the evicted
    detail: str = ""

    def end(self, at: float, outcome: str, token: int = 0) -> None:
        self.returned = at
        self.outcome = outcome
        if token:
            self.token = token

    def __str__(self) -> str:
        end = "…" if self.returned == OPEN else f"{self.returned:.4f}"
        who = f" {self.holder}" if self.holder else ""
        what = f" {' '.join(one for one, _ in self.value)}" if self.value else ""
        token = f" token {self.token}" if self.token else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.invoked:.4f}..{end} {self.process}{who} {self.kind} {self.name}{what}: {self.outcome}{token}{detail}"


@dataclass(slots=True)
class Written(Operation):
    """One that is put on file when it begins, and again when it is answered."""

    number: int = 0
    write: Callable[[Written], None] = lambda _: None

    @classmethod
    def begun(cls, operation: Operation, number: int, write: Callable[[Written], None]) -> Written:
        written = cls(**{each: getattr(operation, each) for each in Operation.__slots__}, number=number, write=write)
        write(written)
        return written

    def end(self, at: float, outcome: str, token: int = 0) -> None:
        Operation.end(self, at, outcome, token)
        self.write(self)


class Note(NamedTuple):
    """Something that happened at one moment: a loss that was signalled, a crash, a pause."""

    at: float
    process: str
    what: str
    name: str = ""
    token: int = 0
    detail: str = ""

    def __str__(self) -> str:
        about = f" {self.name}" if self.name else ""
        token = f" token {self.token}" if self.token else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.at:.4f} {self.process} {self.what}{about}{token}{detail}"


class History:
    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.notes: list[Note] = []
        self.final: dict[str, tuple[Entry, ...]] = {}  # what fenced storage held when all was over
        self._aliases: dict[str, str] = {}

    def alias(self, holder: str) -> str:
        """A nonce releases the lock, so a history must not show it; and it would differ from run to run."""
        return self._aliases.setdefault(holder, f"h{len(self._aliases) + 1}")

    def begin(self, operation: Operation) -> Operation:
        self.operations.append(operation)
        return operation

    def note(self, at: float, process: str, what: str, name: str = "", token: int = 0, detail: str = "") -> None:
        self.notes.append(Note(at, process, what, name, token, detail))

    def of(self, *kinds: str) -> Iterator[Operation]:
        return (operation for operation in self.operations if operation.kind in kinds)

    def about(self, *kinds: str) -> dict[str, list[Operation]]:
        """The same, by name; without kinds, all of them."""
        found: dict[str, list[Operation]] = {}
        for one in self.operations:
            if one.kind in kinds or not kinds:
                found.setdefault(one.name, []).append(one)
        return {name: found[name] for name in sorted(found)}

    def names(self, *kinds: str) -> list[str]:
        return sorted({operation.name for operation in self.of(*kinds)})

    def story(self) -> str:
        """A timeline for people."""
        lines = [(operation.invoked, str(operation)) for operation in self.operations]
        lines += [(note.at, f"{note} ●") for note in self.notes]
        return "\n".join(text for _, text in sorted(lines, key=lambda line: line[0]))

    def json_lines(self) -> str:
        """The whole history, byte for byte the same for the same run."""
        fields = Operation.__slots__
        lines = [json.dumps({field: _plain(getattr(one, field)) for field in fields}) for one in self.operations]
        lines += [json.dumps(note._asdict()) for note in self.notes]
        lines += [json.dumps({"final": name, "value": value}) for name, value in sorted(self.final.items())]
        return "\n".join(lines)


def _plain(value: object) -> object:
    return None if value == OPEN else value


class Recording(Around):
    """A store, with everything that it is asked and answers written down. Wrap a real one, or one behind a simulated network."""

    def __init__(self, store: Store, history: History, process: str, clock: Callable[[], float]) -> None:
        super().__init__(store)
        self._history = history
        self.process = process
        self._clock = clock

    def begun(self, kind: str, claim: Claim, token: int = 0) -> Operation:
        return self._history.begin(
            Operation(
                self.process,
                kind,
                claim.name,
                self._clock(),
                holder=self._history.alias(claim.holder),
                token=token,
                units=claim.units,
                capacity=claim.capacity,
                ttl=claim.ttl,
            )
        )

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        operation = self.begun(CLAIM, claim)
        with self._answered(operation):
            answer = await self.store.claim(claim, within)
        if isinstance(answer, Grant):
            operation.ttl = answer.ttl
            operation.end(self._clock(), GRANTED, answer.token)
        else:
            operation.end(self._clock(), PLACED if claim.queue else TURNED_AWAY)
        return answer

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        operations = [self.begun(RENEW, grant.claim, grant.token) for grant in grants]
        with self._answered(*operations):
            answers = await self.store.renew(grants, within)
        for operation, answer in zip(operations, answers, strict=True):
            if isinstance(answer, Unavailable):
                self._failed(operation, answer)
            else:
                operation.end(self._clock(), LOST if answer is None else RENEWED)
        return answers

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        operation = self.begun(RELEASE, claim)
        with self._answered(operation):
            there = await self.store.release(claim, within)
        operation.end(self._clock(), LEFT if there else GONE)
        return there

    async def evict(self, name: str, token: int, by: str) -> int | None:
        operation = self._history.begin(Operation(self.process, EVICT, name, self._clock(), token=token))
        with self._answered(operation):
            past = await self.store.evict(name, token, by)
        operation.end(self._clock(), GONE if past is None else DONE)
        operation.past = past or 0
        return past

    @property
    def wanted(self) -> Any:
        return getattr(self.store, "wanted", None)

    @contextmanager
    def _answered(self, *operations: Operation) -> Iterator[None]:
        """With an error, of which they are told."""
        try:
            yield
        except HoldfastError as error:
            for operation in operations:
                self._failed(operation, error)
            raise

    def _failed(self, operation: Operation, error: HoldfastError) -> None:
        operation.detail = type(error).__name__
        if not isinstance(error, Unavailable):
            operation.end(self._clock(), FAILED)  # refused, and nothing was done
