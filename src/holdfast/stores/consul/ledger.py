"""Books in Consul: read them, and change them by transactions that fail when anybody else was quicker.

A book whose entries all belong to one session is held by that session, so that Consul deletes it with the session: a
name whose only holder was killed leaves nothing behind, and Consul's own lock-delay holds for it. As soon as a second
session writes itself into the book, the key is let go, and entries of the dead are struck out by whoever comes next.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from ...errors import Misuse
from . import keys as operations
from .book import Book
from .http import checked, refusal, told
from .keys import MOST_OPERATIONS, Keys, Operation
from .wire import Wire, left_of


class Step(NamedTuple):
    """An operation, and what it means if it fails."""

    operation: Operation
    about: str  # "book": somebody else was quicker; "alive": our session is over; "theirs": that session is; "prune"
    session: str = ""


class Failed(NamedTuple):
    """A transaction that changed nothing."""

    about: str
    session: str
    delayed: bool  # by the lock-delay of a session that died


class Item(NamedTuple):
    key: str
    value: bytes
    at: int
    session: str


class Ledger:
    def __init__(self, wire: Wire, keys: Keys) -> None:
        self._wire = wire
        self._keys = keys

    # ---- reading

    async def look(self, trees: Sequence[str], deadline: float, *, apart: bool = False) -> list[Item]:
        """All keys that begin so, as the quorum has them: a leader that was deposed would not notice."""
        ask = self._wire.ask_apart if apart else self._wire.ask
        found: list[Item] = []
        for at in range(0, len(trees), MOST_OPERATIONS):
            body = json.dumps([operations.tree(key) for key in trees[at : at + MOST_OPERATIONS]]).encode()
            answer = await ask("PUT", "/v1/txn?consistent", body, left_of(deadline, self._wire.where))
            if checked(answer, self._wire.where).status != 200:
                raise self._refused(answer.body)
            found += told(answer, self._wire.where, _items)
        return found

    async def read(self, name: str, deadline: float) -> Book:
        found = await self.look([self._keys.book(name)], deadline)
        return self.open(name, found[0]) if found else Book()

    def open(self, name: str, item: Item) -> Book:
        try:
            return Book.read(item.value, item.at, item.session)
        except (ValueError, TypeError, zlib.error):
            raise Misuse(
                f"the key {item.key!r} in Consul at {self._wire.where} is not holdfast's: delete it, or choose another prefix"
            ) from None

    async def dead_among(self, sessions: Iterable[str], deadline: float) -> set[str]:
        asked = set(sessions)
        if not asked:
            return set()
        trees = [self._keys.alive(session) for session in sorted(asked)]
        found = {item.key for item in await self.look(trees, deadline)}
        return {session for session in asked if self._keys.alive(session) not in found}

    # ---- writing

    def write(self, name: str, book: Book, dead: Container[str] = ()) -> list[Step]:
        """Keep the book as it is now, if nobody has changed it since it was read; and ring for whoever may enter."""
        key = self._keys.book(name)
        steps = [Step(operations.unchanged(key, book.index), "book")]
        if book.empty:
            return [*steps, Step(operations.delete(key), "book")] if book.index else []
        value = book.packed()
        keeper = book.only_session()
        if keeper in dead:  # it waits for its lock-delay to end
            keeper = ""
        book.next_keeper = keeper
        if book.keeper and book.keeper != keeper:
            steps.append(Step(operations.let_go(key, book.keeper, value), "book"))
        elif not keeper:
            steps.append(Step(operations.put(key, value), "book"))
        if keeper:
            steps.append(Step(operations.hold(key, keeper, value), "theirs", keeper))
        heir = book.heir()
        if heir is not None:
            steps.append(
                Step(operations.hold(self._keys.bell(heir.session, heir.who), heir.session), "theirs", heir.session)
            )
        return steps

    async def commit(self, steps: Sequence[Step], deadline: float) -> int | Failed:
        """The index of the change, by which it is known for ever; or why there was none."""
        body = json.dumps([step.operation for step in steps]).encode()
        answer = await self._wire.ask("PUT", "/v1/txn", body, left_of(deadline, self._wire.where))
        checked(answer, self._wire.where)
        if answer.status == 200:
            return told(answer, self._wire.where, _index)
        if b"Permission denied" in answer.body:
            raise self._refused(answer.body)
        at, what = told(answer, self._wire.where, _first_error)
        if not 0 <= at < len(steps):
            raise self._refused(answer.body)
        return Failed(steps[at].about, steps[at].session, "lock delay" in what)

    def _refused(self, body: bytes) -> Exception:
        return refusal(403 if b"Permission denied" in body else 500, body, self._wire.where)


def _items(said: Any) -> list[Item]:
    return [_item(result["KV"]) for result in said["Results"] or ()]


def _item(pair: Any) -> Item:
    value = base64.b64decode(pair["Value"] or "")
    return Item(str(pair["Key"]), value, int(pair["ModifyIndex"]), str(pair.get("Session", "")))


def _index(said: Any) -> int:
    return max((int(result["KV"]["ModifyIndex"]) for result in said["Results"] or ()), default=0)


def _first_error(said: Any) -> tuple[int, str]:
    return min((int(error["OpIndex"]), str(error["What"])) for error in said["Errors"])
