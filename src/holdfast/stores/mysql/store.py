"""Locks in one MySQL or MariaDB: the line, the capacity, the tokens and the clock are the server's, one CALL each.

What people choose (names, owners, notes) goes to the server as hexadecimal literals: no sql_mode, character set or collation
can make anything else of it than the bytes that it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import rule
from ...claim import (
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
from .conversation import Conversation
from .ear import Ear
from .pool import Dial, Rows
from .url import Target

TRAITS = Traits(
    system="mysql",
    scope="network",
    fenced="yes: last token + 1, or the server's time in µs if that is more, committed with the claim, so they rise through "
    "a rollback, a crash, an empty restart and a restored backup (unless the clock lags by more: then the storage refuses)",
    fair=True,
    bell=True,
    durable="every claim is on the server's disk before it is answered, if innodb_flush_log_at_trx_commit is 1, as it is by "
    "default",
    clock="the server's wall clock: set forward it ends leases early, set back it lengthens them by a ttl at most",
    survives="kill -9 of any client; a crash of the server; a failover only if replication is synchronous: else the new "
    "primary may not know a lock and grant it again, and only fenced storage stays correct",
)

RENEWALS_A_CALL = 10_000
_SECOND = 1_000_000
_tuple = tuple.__new__


def literal(text: str) -> str:
    return f"x'{text.encode('utf-8', 'replace').hex()}'"


def spent(name: str, last: int) -> None:
    rule.next_token(last, MAX_TOKEN + 1, name)


class MySqlStore:
    def __init__(self, target: Target, dial: Dial, driver: Driver) -> None:
        self._target = target
        self._driver = driver
        self._server = Conversation(target, dial, driver)
        self._ear = Ear(self._server.dial, driver, target.timeout)
        self._retention = int(target.retention * _SECOND)

    @property
    def traits(self) -> Traits:
        return TRAITS._replace(durable=self._server.forgetful) if self._server.forgetful else TRAITS

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        ear, holder = self._ear, claim.holder
        if claim.queue and (ear.is_open or ear.expects(holder)):
            answer = await self._join(claim)
        else:
            answer = await self._claim(claim, "")
            if type(answer) is Place and claim.queue:
                # Now that there is a line to join, make sure that the bell will be heard, and only then join.
                answer = await self._join(claim)
        if type(answer) is Grant:
            ear.forget(holder)
        return answer

    async def wait(self, place: Place, timeout: float) -> None:
        await self._ear.hear(place.claim.holder, timeout)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        renewed: list[Grant | None] = [None] * len(grants)
        give_up = self._driver.now() + within
        for start in range(0, len(grants), RENEWALS_A_CALL):
            asked = ",".join(
                [
                    f'[{number},"{claim.name.encode().hex()}","{claim.holder.encode().hex()}",{token}]'
                    for number, (claim, token, _) in enumerate(grants[start : start + RENEWALS_A_CALL], start)
                ]
            )
            left = max(give_up - self._driver.now(), 0.001)
            (rows,) = await self._server.ask(f"CALL holdfast_renew_1('[{asked}]')", within=left, apart=True)
            for (number,) in rows:
                renewed[number] = grants[number]
        return renewed

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        if self._ear.expects(claim.holder):
            self._ear.forget(claim.holder)
        return await self._release(claim.name, claim.holder)

    async def watch(self, name: str, token: int, timeout: float) -> None:
        watcher = new_holder()
        self._ear.expect(watcher)
        try:
            bell = await self._ear.open()
            ttl = int((timeout + self._target.timeout) * _SECOND)
            (((left,),),) = await self._server.ask(
                f"CALL holdfast_watch_1({literal(name)}, '{watcher}', {token}, {ttl}, '{bell}', {self._retention})"
            )
            if left:
                await self._ear.hear(watcher, min(timeout, left / _SECOND))
        finally:
            self._ear.forget(watcher)
            await self._driver.shield(lambda: self._release(name, watcher))

    async def evict(self, name: str, token: int, by: str) -> int | None:
        (((verdict, number),),) = await self._server.ask(
            f"CALL holdfast_evict_1({literal(name)}, {token}, {literal(by)}, {self._retention})"
        )
        if verdict == "spent":
            spent(name, number)
        return number if verdict == "evicted" else None

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        present, evicted = await self._server.ask(f"CALL holdfast_inspect_1({literal(name)})")
        return _snapshot(name, present, evicted)

    async def names(self, prefix: str = "") -> Sequence[str]:
        (rows,) = await self._server.ask(f"CALL holdfast_names_1({literal(prefix)})")
        return sorted(name.decode() for (name,) in rows)

    def forked(self) -> None:
        self._server.forked()
        self._ear.forked()

    async def close(self) -> None:
        self._ear.close()
        self._server.close()
        await self._driver.sleep(0)  # asyncio closes aborted sockets in its next turn

    # ---- conversations

    async def _join(self, claim: Claim) -> Grant | Place:
        """Claim with a bell, which is in place before the server hears of it."""
        self._ear.expect(claim.holder)
        return await self._claim(claim, await self._ear.open())

    async def _claim(self, claim: Claim, bell: str) -> Grant | Place:
        name, holder, owner, ttl, units, capacity, fair, _, note = claim
        (((verdict, number),),) = await self._server.ask(
            f"CALL holdfast_claim_1({literal(name)}, {literal(holder)}, {literal(owner)}, {int(ttl * _SECOND)}, {units}, "
            f"{capacity}, {1 if fair else 0}, {1 if bell else 0}, {literal(note)}, '{bell}', {self._retention})"
        )
        if verdict == "granted":
            return _tuple(Grant, (claim, number, ttl))
        if verdict == "capacity":
            rule.same_capacity(name, capacity, number)
        if verdict == "spent":
            spent(name, number)
        return Place(claim, number / _SECOND)

    async def _release(self, name: str, holder: str) -> bool:
        (((there,),),) = await self._server.ask(
            f"CALL holdfast_release_1({literal(name)}, {literal(holder)}, {self._retention})"
        )
        return bool(there)


def last_eviction(rows: Rows) -> Eviction | None:
    if not rows:
        return None
    owner, evicted_token, token, by, age = rows[0]
    return Eviction(owner.decode(), evicted_token, token, by.decode(), max(0.0, age / _SECOND))


def _snapshot(name: str, rows: list[Any], evicted: Rows) -> Snapshot:
    holders = tuple(
        Holding(owner.decode(), token, units, age / _SECOND, left / _SECOND, note.decode())
        for owner, units, _, _, token, age, left, note in rows
        if token > 0
    )
    waiters = tuple(
        Waiting(owner.decode(), units, age / _SECOND, left / _SECOND, bool(fair))
        for owner, units, _, fair, token, age, left, _ in rows
        if token == 0
    )
    return Snapshot(name, rows[0][2] if rows else 0, holders, waiters, last_eviction(evicted))
