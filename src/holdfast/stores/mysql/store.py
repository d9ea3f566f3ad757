"""Locks in one MySQL or MariaDB: the line, the capacity, the tokens and the clock are the server's, one CALL each.

What people choose (names, owners, notes) goes to the server as hexadecimal literals: no sql_mode, character set or collation
can make anything else of it than the bytes that it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from ... import rule
from ...claim import (
    LAST_WORDS,
    MAX_TOKEN,
    ROUND,
    Claim,
    Eviction,
    Grant,
    Holding,
    Place,
    Snapshot,
    Traits,
    Verdict,
    Waiting,
    new_holder,
)
from ...drivers.base import Driver
from ...errors import Unavailable
from .. import promises
from ..kit.wary import wary
from .connections import Dial, Rows
from .conversation import Conversation
from .ear import Ear
from .url import Target

RENEWALS_A_CALL = 2_000
_SECOND = 1_000_000
_tuple = tuple.__new__


def literal(text: str) -> str:
    return f"x'{text.encode('utf-8', 'replace').hex()}'"


def spent(name: str, last: int) -> None:
    rule.next_token(last, MAX_TOKEN + 1, name)


@wary("MySQL", lambda store: store._target.shown())
class MySqlStore:
    def __init__(self, target: Target, dial: Dial, driver: Driver) -> None:
        self._target = target
        self._driver = driver
        self._server = Conversation(target, dial, driver)
        self._ear = Ear(self._server.dial, driver, target.timeout)
        self._retention = int(target.retention * _SECOND)

    @property
    def traits(self) -> Traits:
        return promises.MYSQL._replace(durable=self._server.forgetful) if self._server.forgetful else promises.MYSQL

    @property
    def reached(self) -> bool:
        return self._server.reached

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        ear, holder = self._ear, claim.holder
        give_up = self._driver.now() + within
        if claim.queue and (ear.is_open or ear.expects(holder)):
            answer = await self._join(claim, give_up)
        else:
            answer = await self._claim(claim, "", give_up)
            if type(answer) is Place and claim.queue:
                # Now that there is a line to join, make sure that the bell will be heard, and only then join.
                answer = await self._join(claim, give_up)
        if type(answer) is Grant:
            ear.forget(holder)
        return answer

    async def wait(self, place: Place, timeout: float) -> None:
        await self._ear.hear(place.claim.holder, timeout)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        """First all that nobody is changing at this moment; then, one by one, whoever was passed over."""
        give_up = self._driver.now() + within
        verdicts: list[Verdict] = [None] * len(grants)
        busy: list[int] = []
        for start in range(0, len(grants), RENEWALS_A_CALL):
            some = range(start, min(start + RENEWALS_A_CALL, len(grants)))
            busy += await self._renew(grants, some, 0, give_up, verdicts)
        for done, number in enumerate(busy):
            # Each has its share of the time, so that a row that somebody never lets go of costs the next little.
            share = self._server.left(give_up) / (len(busy) - done)
            await self._renew(grants, [number], 1, self._driver.now() + share, verdicts)
        if verdicts and all(isinstance(verdict, Unavailable) for verdict in verdicts):
            raise next(verdict for verdict in verdicts if isinstance(verdict, Unavailable))
        return verdicts

    async def _renew(
        self, grants: Sequence[Grant], some: Sequence[int], wait: int, give_up: float, verdicts: list[Verdict]
    ) -> list[int]:
        """Fills in the verdicts; returns those whose rows were locked."""
        asked = ",".join(
            [
                f'[{number},"{grants[number].claim.name.encode().hex()}","{grants[number].claim.holder.encode().hex()}",'
                f"{grants[number].token}]"
                for number in some
            ]
        )
        try:
            (rows,) = await self._server.ask(
                f"CALL holdfast_renew_1('[{asked}]', {wait})", self._server.left(give_up), apart=True
            )
        except Unavailable as error:
            for number in some:
                verdicts[number] = error
            return []
        busy = []
        for number, kept in rows:
            verdicts[number] = grants[number] if kept else Unavailable("its row is being changed by somebody else")
            if not kept:
                busy.append(number)
        return busy

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        if self._ear.expects(claim.holder):
            self._ear.forget(claim.holder)
        return await self._release(claim.name, claim.holder, within)

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self._told_of(
            name,
            timeout,
            lambda watcher, ttl, bell: (
                f"CALL holdfast_watch_1({literal(name)}, '{watcher}', {token}, {ttl}, '{bell}', {self._retention})"
            ),
        )

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        claim, token, _ = grant
        until, mine = self._driver.now() + timeout, f"{literal(claim.name)}, {literal(claim.holder)}, {token}"
        while (left := until - self._driver.now()) > 0:
            listened = await self._told_of(
                claim.name,
                left,
                lambda listener, ttl, bell: f"CALL holdfast_wanted_1({mine}, '{listener}', {ttl}, '{bell}')",
            )
            if claim.capacity == 1 or not listened:
                break  # else readers come and go: look again
        return self._driver.now() < until

    async def _told_of(self, name: str, timeout: float, call: Callable[[str, int, str], str]) -> bool:
        """Stand among those who are told of a name, until that happens, for so long as the server says. False: not at all."""
        give_up = self._driver.now() + timeout
        within = min(max(timeout, 0.1), self._target.timeout)
        watcher, wakes = new_holder(), self._ear.wakes
        self._ear.expect(watcher)
        try:
            bell = await self._ear.open(within)
            ttl = int((timeout + self._target.timeout) * _SECOND)
            (((left,),),) = await self._server.ask(call(watcher, ttl, bell), within)
            if left:
                await self._ear.hear(watcher, min(max(give_up - self._driver.now(), 0.0), left / _SECOND))
            return bool(left) and self._ear.wakes == wakes
        finally:
            self._ear.forget(watcher)
            with contextlib.suppress(Unavailable):  # its row ends by itself
                await self._driver.shield(lambda: self._release(name, watcher, min(within, 1.0)))

    def wake_waiters(self) -> None:
        self._ear.wake()

    async def evict(self, name: str, token: int, by: str) -> int | None:
        (((verdict, number),),) = await self._server.ask(
            f"CALL holdfast_evict_1({literal(name)}, {token}, {literal(by)}, {self._retention})"
        )
        if verdict == "spent":
            spent(name, number)
        return number if verdict == "evicted" else None

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        present, evicted = await self._server.ask(f"CALL holdfast_inspect_1({literal(name)})", within)
        return _snapshot(name, present, evicted)

    async def names(self, prefix: str = "") -> Sequence[str]:
        (rows,) = await self._server.ask(f"CALL holdfast_names_1({literal(prefix)})")
        return sorted(name.decode() for (name,) in rows)

    def forked(self) -> None:
        self._server.forked()
        self._ear.forked()

    async def close(self, within: float = LAST_WORDS) -> None:
        asleep = self._ear.close()
        if asleep:  # the server would notice the end of that connection only after its nap
            self._server.strays.add(asleep)
        with contextlib.suppress(Unavailable):
            await self._server.end_strays(within)
        self._server.close()
        await self._driver.sleep(0)  # asyncio closes aborted sockets in its next turn

    # ---- conversations

    async def _join(self, claim: Claim, give_up: float) -> Grant | Place:
        """Claim with a bell, which is in place before the server hears of it."""
        self._ear.expect(claim.holder)
        return await self._claim(claim, await self._ear.open(self._server.left(give_up)), give_up)

    async def _claim(self, claim: Claim, bell: str, give_up: float) -> Grant | Place:
        name, holder, owner, ttl, units, capacity, fair, _, note = claim
        (((verdict, number),),) = await self._server.ask(
            f"CALL holdfast_claim_1({literal(name)}, {literal(holder)}, {literal(owner)}, {int(ttl * _SECOND)}, {units}, "
            f"{capacity}, {1 if fair else 0}, {1 if bell else 0}, {literal(note)}, '{bell}', {self._retention})",
            self._server.left(give_up),
        )
        if verdict == "granted":
            return _tuple(Grant, (claim, number, ttl))
        if verdict == "capacity":
            rule.same_capacity(name, capacity, number)
        if verdict == "spent":
            spent(name, number)
        return Place(claim, number / _SECOND)

    async def _release(self, name: str, holder: str, within: float) -> bool:
        twice: list[bool] = []
        (((there,),),) = await self._server.ask(
            f"CALL holdfast_release_1({literal(name)}, {literal(holder)}, {self._retention})",
            within,
            repeated=lambda: twice.append(True),
        )
        # Not there any more: since the first one arrived, as far as anybody can tell. That is no loss.
        return bool(there or twice)


def last_eviction(rows: Rows) -> Eviction | None:
    if not rows:
        return None
    owner, evicted_token, token, by, age = rows[0]
    return Eviction(owner.decode(), evicted_token, token, by.decode(), max(0.0, age / _SECOND))


def _snapshot(name: str, rows: list[Any], evicted: Rows) -> Snapshot:
    holders = tuple(
        Holding(owner.decode(), token, units, age / _SECOND, left / _SECOND, note.decode(), sum(ttl) / _SECOND)
        for owner, units, _, _, token, age, left, note, *ttl in rows  # procedures of an older holdfast do not tell it
        if token > 0
    )
    waiters = tuple(
        Waiting(owner.decode(), units, age / _SECOND, left / _SECOND, bool(fair))
        for owner, units, _, fair, token, age, left, *_ in rows
        if token == 0
    )
    return Snapshot(name, rows[0][2] if rows else 0, holders, waiters, last_eviction(evicted))
