"""Locks between the processes of one machine, in one SQLite file. Survives kill -9; needs no server.

Times are those of the machine's boot clock, which all its processes share and nobody can set; the file remembers the boot.
`machine.py` knows what that means in a container.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

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
    Verdict,
    Waiting,
    new_holder,
)
from ...drivers.base import Doorbell, Driver
from ...errors import Unavailable
from .. import promises
from .database import BUSY_PATIENCE, RETENTION, Database, Execute, Row, load_statements
from .machine import boot_id, shared_clock

_RENEWALS_A_TRANSACTION = 1000  # the file is locked for others while one runs: a few ms
_UNWATCH = 0.2  # seconds to take a watcher out of the file, beyond the time that it was given
_DEAF = 0.05  # how long to sleep at a time when no doorbell could be had
_WATCHES, _KEEPS = -1, -2  # in place of a token: who is told of those who enter, and of those who join the line
_SWEEP = 8  # rows looked at whenever a new name is founded: idle names are swept faster than they can grow

SQL = load_statements()
_TAKE, _GIVE_BACK = SQL["take"], SQL["give_back"]


Look = Callable[[Execute], float]  # how long what it found is worth waiting for


class Near(NamedTuple):
    """What a decision needs to know of a name."""

    mine: Row | None
    head: Row | None  # of the line
    capacity: int  # 0: not in use
    used: int
    mark: int  # -1: the name is not known
    newest: int  # the newest token inside; 0: nobody is
    soonest: float  # expiry among those inside and the head of the line
    inside: tuple[Row, ...]
    watchers: tuple[str, ...]
    keepers: tuple[str, ...]  # who is inside and wants to know when somebody joins the line


class Heir(NamedTuple):
    """Whom to ring: the head of the line, if it may enter, or who need not wait for it; and those who watch the name."""

    holder: str
    bell: str | None
    watchers: tuple[str, ...] = ()


NOBODY = Heir("", None)


class SqliteStore:
    traits = promises.SQLITE

    def __init__(self, path: str, driver: Driver) -> None:
        boot = boot_id()
        self._driver = driver
        self._now = shared_clock(driver.now)
        self._wall_us = driver.wall_us
        self._database = Database(path, driver, self._now, boot)
        self._renewals = Database(path, driver, self._now, boot)  # its own connection, which user work cannot keep busy
        self._bells: dict[str, Doorbell] = {}
        self._listening: set[str] = set()
        self._database.connect()

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        name, holder, owner, ttl, units, capacity, fair, _, note = claim
        if holder not in self._bells:
            token = self._wall_us()
            now = self._now()
            # An int, not a bool: sqlite3 looks for an adapter of everything that is not exactly int, float or str.
            row = (name, holder, owner, units, capacity, 1 if fair else 0, token, now, now + ttl, note, ttl)
            if token <= MAX_TOKEN and self._database.at_once(_TAKE, row, now):
                return Grant(claim, token, ttl)
        give_up = self._driver.now() + within
        answer, heir = await self._database.transact(partial(self._claim, claim), within)
        if type(answer) is Grant:
            self._put_away_bell(holder)
        if heir is not NOBODY:
            await self._ring(name, heir, give_up)
        return answer

    def _put_away_bell(self, holder: str) -> None:
        bell = self._bells.pop(holder, None)
        if bell is not None:
            bell.close()

    async def wait(self, place: Place, timeout: float) -> None:
        holder = place.claim.holder
        self._listening.add(holder)  # first: a bell that is listened to is not closed
        try:
            bell = self._bells.get(holder)
            await (bell.wait(timeout) if bell is not None else self._doze(timeout))
        finally:
            self._listening.discard(holder)

    async def _doze(self, timeout: float) -> None:
        """No more sockets to be had, and so no bell: look again at short intervals instead."""
        await self._driver.sleep(min(timeout, self._driver.uniform(_DEAF / 2, _DEAF)))

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        answers: list[Verdict] = []
        give_up = self._driver.now() + within
        for start in range(0, len(grants), _RENEWALS_A_TRANSACTION):
            some = grants[start : start + _RENEWALS_A_TRANSACTION]
            left = max(0.0, give_up - self._driver.now())
            try:
                answers += await self._renewals.transact(partial(self._renew, some), left)
            except Unavailable as trouble:  # those before have been renewed
                answers += [trouble] * len(some)
        return answers

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        self._put_away_bell(claim.holder)
        give_up = self._driver.now() + within
        now = self._now()
        if self._database.at_once(_GIVE_BACK, (claim.name, claim.holder, now, now + RETENTION), now):
            return True
        there, heir = await self._database.transact(partial(self._release, claim), within)
        if heir is not NOBODY:
            await self._ring(claim.name, heir, give_up)
        return there

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self._hear(name, timeout, lambda watcher, bell: partial(self._watch, watcher, token, bell))

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        until = self._driver.now() + timeout
        await self._hear(
            grant.claim.name, timeout, lambda keeper, bell: partial(self._keeps, keeper, grant.token, bell)
        )
        return self._driver.now() < until

    async def _hear(self, name: str, timeout: float, looking: Callable[[Claim, str], Look]) -> None:
        """With a bell in the file, while what `looking` finds is worth waiting for."""
        until = self._driver.now() + timeout
        try:
            bell = self._driver.doorbell(self._database.real)
        except OSError:
            await self._doze(timeout)
            return
        watcher = Claim(name, new_holder(), "", timeout + BUSY_PATIENCE)
        try:
            self._listening.add(watcher.holder)
            self._bells[watcher.holder] = bell  # to be found by `wake_waiters`
            left = await self._database.transact(looking(watcher, bell.address), min(timeout, BUSY_PATIENCE))
            if left > 0:
                await bell.wait(min(until - self._driver.now(), left))
        finally:
            self._listening.discard(watcher.holder)
            self._put_away_bell(watcher.holder)
            # If that fails, its bell is found to be gone by whoever rings it, and the row ends by itself.
            with contextlib.suppress(Unavailable):
                await self._database.transact(partial(_unwatch, name, watcher.holder), _UNWATCH)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        past, heir = await self._database.transact(partial(self._evict, name, token, by))
        await self._ring(name, heir, self._driver.now() + BUSY_PATIENCE)
        return past

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        def look(execute: Execute) -> tuple[list[Row], Row | None]:
            rows = execute(SQL["all"], (name, self._now())).fetchall()
            return rows, execute(SQL["last_eviction"], (name,)).fetchone()

        rows, evicted = await self._database.transact(look, within)
        now = self._now()
        inside = tuple(
            Holding(owner, token, units, now - since, expires - now, note, float(ttl or 0))
            for owner, units, _, _, token, since, expires, note, ttl in rows
            if token > 0
        )
        line = tuple(
            Waiting(owner, units, now - since, expires - now, bool(fair))
            for owner, units, _, fair, token, since, expires, _, _ in rows
            if token == 0
        )
        eviction = None
        if evicted is not None:
            owner, evicted_token, token, by, at = evicted
            eviction = Eviction(owner, evicted_token, token, by, max(0.0, time.time() - at))
        return Snapshot(name, rows[0][2] if rows else 0, inside, line, eviction)

    async def names(self, prefix: str = "") -> Sequence[str]:
        rows = await self._database.transact(lambda execute: execute(SQL["names"], (self._now(), prefix)).fetchall())
        return [name for (name,) in rows]

    def wake_waiters(self) -> None:
        for bell in list(self._bells.values()):
            bell.ring()

    def forked(self) -> None:
        bells, self._bells = self._bells, {}
        self._listening = set()
        for bell in bells.values():
            bell.close()
        self._database.forked()
        self._renewals.forked()

    async def close(self, within: float = LAST_WORDS) -> None:
        bells, self._bells = self._bells, {}
        for holder, bell in list(bells.items()):
            if holder in self._listening:  # it wakes up, leaves the line, and closes its bell itself
                self._bells[holder] = bell
                bell.ring()
            else:
                bell.close()
        self._renewals.close()
        self._database.close()

    # ---- inside a transaction

    def _near(self, execute: Execute, name: str, holder: str, now: float) -> Near:
        rows = execute(SQL["near"], (name, holder)).fetchall()
        if any(row[5] <= now and row[1] for row in rows):
            execute(SQL["expire"], (name, now))
            execute(SQL["expire_row_0"], (name, now, now + RETENTION))
            rows = execute(SQL["near"], (name, holder)).fetchall()
        mine = head = None
        inside: list[Row] = []
        watchers: list[str] = []
        keepers: list[str] = []
        mark = -1
        for row in rows:
            seq, who, _, _, token, _, bell, its_mark, _ = row
            if seq == 0:
                mark = its_mark
                if not who:
                    continue
            if who == holder:
                mine = row
            if token > 0:
                inside.append(row)
            elif token < 0:
                (watchers if token == _WATCHES else keepers).append(bell)
            elif head is None:
                head = row
        present = [*inside, head] if head else inside
        return Near(
            mine,
            head,
            present[0][3] if present else 0,
            sum(row[2] for row in inside),
            mark,
            max((row[4] for row in inside), default=0),
            min((row[5] for row in present), default=float("inf")),
            tuple(inside),
            tuple(watchers),
            tuple(keepers),
        )

    def _claim(self, claim: Claim, execute: Execute) -> tuple[Grant | Place, Heir]:
        now = self._now()
        name, holder, _, ttl, units, capacity, fair, queue, _ = claim
        near = self._near(execute, name, holder, now)
        mine, head = near.mine, near.head
        if mine is not None and mine[4] > 0:  # repeated: the answer was lost, or fewer units will do
            kept = min(mine[2], units)
            execute(SQL["refresh"], (name, mine[0], now + ttl, kept))
            return Grant(claim, mine[4], ttl), _heir(execute, name, near, head, near.used - mine[2] + kept)
        if near.capacity:
            rule.same_capacity(name, capacity, near.capacity)
        ahead = head is not None and head[1] != holder
        if rule.admit(units, capacity, near.used, ahead=ahead, fair=fair):
            token = rule.next_token(near.mark, self._wall_us(), name)
            self._enter(execute, claim, near, token, now)
            if mine is not None:
                head = self._near(execute, name, "", now).head
            return Grant(claim, token, ttl), _heir(execute, name, near, head, near.used + units)
        if queue:
            self._join(execute, claim, mine, now)
        told = Heir("", None, near.keepers) if queue and near.keepers else NOBODY
        return Place(claim, max(near.soonest - now, 0.001)), told

    def _enter(self, execute: Execute, claim: Claim, near: Near, token: int, now: float) -> None:
        name, holder, owner, ttl, units, capacity, fair, _, note = claim
        row = (name, holder, owner, units, capacity, fair, token, now, now + ttl)
        if near.mark < 0:
            execute(SQL["found"], (*row, ttl, note))
            self._sweep(execute, now)
            return
        execute(SQL["remember"], (token, name))
        if near.mine is None:
            execute(SQL["add"], (*row, ttl, note))
        else:
            execute(SQL["enter"], (name, near.mine[0], token, now, now + ttl, ttl))

    def _join(self, execute: Execute, claim: Claim, mine: Row | None, now: float) -> None:
        name, holder, owner, ttl, units, capacity, fair, _, note = claim
        if mine is not None:
            execute(SQL["refresh"], (name, mine[0], now + ttl, mine[2]))
            return
        # The bell stands in the line from the start: nobody can leave between our looking and our listening.
        address: str | None = None
        try:
            bell = self._bells.get(holder) or self._driver.doorbell(self._database.real)
        except OSError:
            pass  # then it will doze
        else:
            self._bells[holder] = bell
            address = bell.address
        execute(SQL["add"], (name, holder, owner, units, capacity, fair, 0, now, now + ttl, address, note))

    def _sweep(self, execute: Execute, now: float) -> None:
        """Look at the next few rows of the file, and drop those that nobody has used for long."""
        start = execute(SQL["swept_to"]).fetchone() or ("", 0)
        rows = execute(SQL["next_rows"], (*start, _SWEEP)).fetchall()
        for name, seq, holder, expires in rows:
            if expires > now:
                continue
            if seq == 0 and holder:  # it died inside, and nobody has asked for the name since: idle from now on
                execute(SQL["expire_row_0"], (name, now, now + RETENTION))
            else:
                execute(SQL["sweep"], (name, seq, self._wall_us()))
        reached = rows[-1][:2] if len(rows) == _SWEEP else ("", 0)
        if reached != start:
            execute(SQL["sweep_on_from"], reached)

    def _renew(self, grants: Sequence[Grant], execute: Execute) -> list[Grant | None]:
        now = self._now()
        statement = SQL["renew"]
        return [
            grant
            if execute(statement, (claim.name, claim.holder, now + claim.ttl, now, grant.token, claim.ttl)).rowcount
            else None
            for grant in grants
            for claim in (grant.claim,)
        ]

    def _release(self, claim: Claim, execute: Execute) -> tuple[bool, Heir]:
        now = self._now()
        near = self._near(execute, claim.name, claim.holder, now)
        mine = near.mine
        if mine is not None:
            self._leave(execute, claim.name, mine, now)
            near = self._near(execute, claim.name, "", now)
        return mine is not None, _heir(execute, claim.name, near, near.head, near.used)

    def _drop_from_line(self, name: str, holder: str, execute: Execute) -> Heir:
        """Of one who does not hear. If it is inside by now, it has put its bell away because it needs none: let it be."""
        now = self._now()
        near = self._near(execute, name, holder, now)
        if near.mine is not None and near.mine[4] == 0:
            self._leave(execute, name, near.mine, now)
            near = self._near(execute, name, "", now)
        return _heir(execute, name, near, near.head, near.used)

    def _leave(self, execute: Execute, name: str, row: Row, now: float) -> None:
        if row[0] == 0:
            execute(SQL["leave_row_0"], (now + RETENTION, name))
        else:
            execute(SQL["leave"], (name, row[0]))

    def _watch(self, watcher: Claim, token: int, bell: str, execute: Execute) -> float:
        """How long to wait for the bell at most; 0 if the newest token inside is another one already."""
        now = self._now()
        near = self._near(execute, watcher.name, "", now)
        if near.newest != token:
            return 0.0
        _listen(execute, watcher, _WATCHES, now, bell)
        return max(near.soonest - now, 0.001)

    def _keeps(self, keeper: Claim, token: int, bell: str, execute: Execute) -> float:
        """The same for whoever is inside, and waits for others to come; 0 if somebody is in line already, or it is not inside."""
        now = self._now()
        near = self._near(execute, keeper.name, "", now)
        if near.head is not None or all(row[4] != token for row in near.inside):
            return 0.0
        _listen(execute, keeper, _KEEPS, now, bell)
        return keeper.ttl

    def _evict(self, name: str, token: int, by: str, execute: Execute) -> tuple[int | None, Heir]:
        now = self._now()
        near = self._near(execute, name, "", now)
        row = next((row for row in near.inside if row[4] == token), None)
        if row is None:
            return None, NOBODY
        past = rule.next_token(near.mark, self._wall_us(), name)
        self._leave(execute, name, row, now)
        execute(SQL["remember"], (past, name))
        execute(SQL["audit"], (time.time(), name, row[8], token, past, by))
        execute(SQL["trim_audit"])
        keepers = near.keepers  # who was lent it must not be lent it again
        near = self._near(execute, name, "", now)
        heir = _heir(execute, name, near, near.head, near.used)
        return past, heir._replace(watchers=(*heir.watchers, *keepers))

    # ---- after it

    async def _ring(self, name: str, heir: Heir, give_up: float) -> None:
        """A bell whose process is gone says so: then that waiter leaves the line, and the next is rung."""
        path = self._database.real
        for watcher in heir.watchers:
            self._driver.ring(watcher, path)
        while heir.bell is not None and self._driver.ring(heir.bell, path) is False:
            drop = partial(self._drop_from_line, name, heir.holder)
            heir = await self._database.transact(drop, max(0.0, give_up - self._driver.now()))


def _listen(execute: Execute, listener: Claim, as_what: int, now: float, bell: str) -> None:
    name, holder, owner, ttl, *_ = listener
    execute(SQL["add"], (name, holder, owner, 0, 0, True, as_what, now, now + ttl, bell, ""))


def _unwatch(name: str, holder: str, execute: Execute) -> None:
    execute(SQL["unwatch"], (name, holder))


def _heir(execute: Execute, name: str, near: Near, head: Row | None, used: int) -> Heir:
    if head is not None:
        room = head[3] - used
        if head[2] <= room:
            return Heir(head[1], head[6], near.watchers)
        if room and (pushy := execute(SQL["pushy"], (name, room)).fetchone()):
            holder, bell = pushy
            return Heir(holder, bell, near.watchers)
    return Heir("", None, near.watchers) if near.watchers else NOBODY
