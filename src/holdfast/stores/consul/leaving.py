"""Out of the book: by one's own will, or by an admin's."""

from __future__ import annotations

import json

from ...claim import Claim
from . import keys as operations
from .keeper import Mine
from .keys import pseudonym
from .ledger import Failed, Step
from .parts import Parts, wall_ms

RETENTION = 3600.0  # how long a forced release can be looked up


async def leave(parts: Parts, claim: Claim) -> bool:
    """Was it there?"""
    mine = parts.keeper.find(claim.holder)
    leaving = _Leaving(parts, claim, mine)
    async with parts.desk.at(claim.name):
        there = await parts.persistently(leaving.attempt)
    if mine is not None:
        parts.keeper.forget(mine)
    return there


class _Leaving:
    def __init__(self, parts: Parts, claim: Claim, mine: Mine | None) -> None:
        self._parts = parts
        self._claim = claim
        self._mine = mine
        self._who = pseudonym(claim.holder)
        self._sent = False  # if the answer was lost, the next attempt finds that we have left

    async def attempt(self) -> bool:
        ledger, desk, name, mine = self._parts.ledger, self._parts.desk, self._claim.name, self._mine
        doubted: set[str] = set()
        book = desk.take(name)
        if mine is not None and mine.uncertain and not mine.session.lost:
            # What has not arrived by now never will.
            await self._parts.sessions.stamp(mine.session, self._parts.target.timeout)
            mine.uncertain, book = False, None
        tries = 0
        while True:
            if book is None:
                book = await ledger.read(name)
            if not book.leave(self._who):
                if not book.known:
                    return self._sent
                book = None
                continue
            dead = await ledger.dead_among(doubted)
            book.without(dead)
            steps = ledger.write(name, book, dead)
            if mine is not None and mine.token == 0:
                bell = self._parts.keys.bell(mine.session.id, self._who)
                steps.append(Step(operations.delete(bell), "bell"))
            self._sent = True
            done = await ledger.commit(steps)
            if not isinstance(done, Failed):
                book.written(done)
                desk.put(name, book, mine.session.id if mine is not None else "")
                return True
            self._sent, book = False, None
            if done.about == "theirs":
                doubted.add(done.session)
            await self._parts.try_again(name, tries)
            tries += 1


async def evict(parts: Parts, name: str, token: int, by: str) -> int | None:
    """The index of the write by which it is out, which outranks its token; None: it was not inside."""
    ledger, keys = parts.ledger, parts.keys
    parts.desk.take(name)  # what we knew of it is about to be wrong
    dead: set[str] = set()
    tries = 0
    while True:
        book = await ledger.read(name)
        dead |= await ledger.dead_among({entry.session for entry in book.inside.values()} - dead)
        entry = next((one for one in book.inside.values() if one.token == token), None)
        if entry is None or entry.session in dead:
            return None
        del book.inside[entry.who]
        book.without(dead)
        record = json.dumps([entry.owner, token, by, wall_ms()]).encode()
        steps = ledger.write(name, book, dead)
        steps.append(Step(operations.hold(keys.out(entry.session, entry.who), entry.session), "theirs"))
        steps.append(Step(operations.put(keys.eviction(name), record), "record"))
        done = await ledger.commit(steps)
        if not isinstance(done, Failed):
            await _forget_old_evictions(parts)
            return done
        if done.session:
            dead |= await ledger.dead_among({done.session})
        await parts.try_again(name, tries)
        tries += 1


async def _forget_old_evictions(parts: Parts) -> None:
    now = wall_ms()
    for item in await parts.ledger.look([parts.keys.evictions]):
        if now - json.loads(item.value)[3] > RETENTION * 1000:
            steps = [
                Step(operations.unchanged(item.key, item.at), "book"),
                Step(operations.delete(item.key), "book"),
            ]
            await parts.ledger.commit(steps)
