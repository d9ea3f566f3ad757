"""Out of the book: by one's own will, or by an admin's."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from ...claim import ROUND, Claim
from ...errors import HoldfastError
from . import keys as operations
from . import looking
from .book import NotOurs
from .keeper import Mine
from .keys import Step, pseudonym
from .wire import Failed

if TYPE_CHECKING:
    from .store import ConsulStore

RETENTION = 3600.0  # how long a forced release can be looked up


async def leave(store: ConsulStore, claim: Claim, mine: Mine | None, deadline: float) -> bool:
    """Was it there?"""
    leaving = _Leaving(store, claim, mine, deadline)
    there = await store.persistently(deadline, leaving.run)
    if mine is not None:
        store.keeper.forget(mine)
    return there


class _Leaving:
    def __init__(self, store: ConsulStore, claim: Claim, mine: Mine | None, deadline: float) -> None:
        self._store = store
        self._deadline = deadline
        self._claim = claim
        self._mine = mine
        self._who = mine.who if mine is not None else pseudonym(claim.holder)
        # If the answer was lost, the next attempt finds that we have left; also if it is another call's.
        self._sent = mine is not None and mine.leaving

    async def run(self) -> bool:
        return await self._store.books.writing(self._claim.name, self._deadline, self._attempt)

    async def _attempt(self) -> bool:
        store, books, name, mine = self._store, self._store.books, self._claim.name, self._mine
        doubted: set[str] = set()
        book = books.take(name)
        if mine is not None and mine.uncertain and not mine.session.lost:
            # What has not arrived by now never will.
            await store.sessions.stamp(mine.session, self._deadline)
            mine.uncertain, book = False, None
        tries = 0
        while True:
            if book is None:
                try:
                    book = await looking.read(store, name, self._deadline)
                except NotOurs:
                    return self._sent
            if not book.leave(self._who):
                if not book.known:
                    return self._sent
                book = None
                continue
            dead = await looking.dead_among(store, doubted, self._deadline) if doubted else set()
            if dead:
                book.without(dead)
            steps = store.keys.write(name, book, dead)
            if mine is not None and mine.token == 0:
                bell = store.keys.bell(mine.session.id, self._who)
                steps.append(Step(operations.delete(bell), "bell"))
            self._note(sent=True)
            done = await store.wire.commit(steps, self._deadline)
            if not isinstance(done, Failed):
                book.written(done)
                books.put(name, book, mine.session.id if mine is not None else "")
                return True
            self._note(sent=False)
            book = None
            if done.about == "theirs":
                doubted.add(done.session)
            await store.try_again(name, tries, self._deadline)
            tries += 1

    def _note(self, *, sent: bool) -> None:
        self._sent = sent
        if self._mine is not None:
            self._mine.leaving = sent


async def evict(store: ConsulStore, name: str, token: int, by: str, deadline: float) -> int | None:
    """The index of the write by which it is out, which outranks its token; None: it was not inside."""
    keys = store.keys
    store.books.take(name)  # what we knew of it is about to be wrong
    dead: set[str] = set()
    tries = 0
    while True:
        book = await looking.read(store, name, deadline)
        dead |= await looking.dead_among(store, {entry.session for entry in book.inside.values()} - dead, deadline)
        entry = next((one for one in book.inside.values() if one.token == token), None)
        if entry is None or entry.session in dead:
            return None
        del book.inside[entry.who]
        book.without(dead)
        record = json.dumps([entry.owner, token, by, store.wall_ms()]).encode()
        steps = store.keys.write(name, book, dead)
        steps.append(Step(operations.hold(keys.out(entry.session, entry.who), entry.session), "theirs"))
        steps.append(Step(operations.put(keys.eviction(name), record), "record"))
        done = await store.wire.commit(steps, deadline)
        if not isinstance(done, Failed):
            with contextlib.suppress(HoldfastError):  # it is done; who tidies up is no matter
                await _forget_old_evictions(store, store.by(ROUND))
            return done
        if done.session:
            dead |= await looking.dead_among(store, {done.session}, deadline)
        await store.try_again(name, tries, deadline)
        tries += 1


async def _forget_old_evictions(store: ConsulStore, deadline: float) -> None:
    now = store.wall_ms()
    for item in await store.wire.look([store.keys.evictions], deadline):
        old = looking.eviction(item, now)
        if old is not None and old.age > RETENTION:
            steps = [
                Step(operations.unchanged(item.key, item.at), "book"),
                Step(operations.delete(item.key), "book"),
            ]
            await store.wire.commit(steps, deadline)
