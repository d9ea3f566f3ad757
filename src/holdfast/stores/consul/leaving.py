"""Out of the book: by one's own will, or by an admin's."""

from __future__ import annotations

import contextlib
import json

from ...claim import ROUND, Claim
from ...errors import HoldfastError
from . import keys as operations
from .keeper import Mine
from .keys import pseudonym
from .ledger import Failed, Step
from .parts import Parts, wall_ms

RETENTION = 3600.0  # how long a forced release can be looked up


async def leave(parts: Parts, claim: Claim, deadline: float) -> bool:
    """Was it there?"""
    mine = parts.keeper.find(claim.holder)
    leaving = _Leaving(parts, claim, mine, deadline)
    there = await parts.desk.at(claim.name, deadline, lambda: parts.persistently(deadline, leaving.attempt))
    if mine is not None:
        parts.keeper.forget(mine)
    return there


class _Leaving:
    def __init__(self, parts: Parts, claim: Claim, mine: Mine | None, deadline: float) -> None:
        self._parts = parts
        self._deadline = deadline
        self._claim = claim
        self._mine = mine
        self._who = pseudonym(claim.holder)
        # If the answer was lost, the next attempt finds that we have left; also if it is another call's.
        self._sent = mine is not None and mine.leaving

    async def attempt(self) -> bool:
        ledger, desk, name, mine = self._parts.ledger, self._parts.desk, self._claim.name, self._mine
        doubted: set[str] = set()
        book = desk.take(name)
        if mine is not None and mine.uncertain and not mine.session.lost:
            # What has not arrived by now never will.
            await self._parts.sessions.stamp(mine.session, self._deadline)
            mine.uncertain, book = False, None
        tries = 0
        while True:
            if book is None:
                book = await ledger.read(name, self._deadline)
            if not book.leave(self._who):
                if not book.known:
                    return self._sent
                book = None
                continue
            dead = await ledger.dead_among(doubted, self._deadline)
            book.without(dead)
            steps = ledger.write(name, book, dead)
            if mine is not None and mine.token == 0:
                bell = self._parts.keys.bell(mine.session.id, self._who)
                steps.append(Step(operations.delete(bell), "bell"))
            self._note(sent=True)
            done = await ledger.commit(steps, self._deadline)
            if not isinstance(done, Failed):
                book.written(done)
                desk.put(name, book, mine.session.id if mine is not None else "")
                return True
            self._note(sent=False)
            book = None
            if done.about == "theirs":
                doubted.add(done.session)
            await self._parts.try_again(name, tries, self._deadline)
            tries += 1

    def _note(self, *, sent: bool) -> None:
        self._sent = sent
        if self._mine is not None:
            self._mine.leaving = sent


async def evict(parts: Parts, name: str, token: int, by: str, deadline: float) -> int | None:
    """The index of the write by which it is out, which outranks its token; None: it was not inside."""
    ledger, keys = parts.ledger, parts.keys
    parts.desk.take(name)  # what we knew of it is about to be wrong
    dead: set[str] = set()
    tries = 0
    while True:
        book = await ledger.read(name, deadline)
        dead |= await ledger.dead_among({entry.session for entry in book.inside.values()} - dead, deadline)
        entry = next((one for one in book.inside.values() if one.token == token), None)
        if entry is None or entry.session in dead:
            return None
        del book.inside[entry.who]
        book.without(dead)
        record = json.dumps([entry.owner, token, by, wall_ms()]).encode()
        steps = ledger.write(name, book, dead)
        steps.append(Step(operations.hold(keys.out(entry.session, entry.who), entry.session), "theirs"))
        steps.append(Step(operations.put(keys.eviction(name), record), "record"))
        done = await ledger.commit(steps, deadline)
        if not isinstance(done, Failed):
            with contextlib.suppress(HoldfastError):  # it is done; who tidies up is no matter
                await _forget_old_evictions(parts, parts.by(ROUND))
            return done
        if done.session:
            dead |= await ledger.dead_among({done.session}, deadline)
        await parts.try_again(name, tries, deadline)
        tries += 1


async def _forget_old_evictions(parts: Parts, deadline: float) -> None:
    now = wall_ms()
    for item in await parts.ledger.look([parts.keys.evictions], deadline):
        if now - json.loads(item.value)[3] > RETENTION * 1000:
            steps = [
                Step(operations.unchanged(item.key, item.at), "book"),
                Step(operations.delete(item.key), "book"),
            ]
            await parts.ledger.commit(steps, deadline)
