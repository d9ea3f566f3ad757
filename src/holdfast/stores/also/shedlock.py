"""ShedLock's table: a row per name, taken until `lock_until`, by the database's clock in UTC, as with its `usingDbTime()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...claim import Claim
from ...drivers.base import Driver
from .errands import Errands
from .old import Kept, Names, mark
from .postgres import connect, target

_NOW = "timezone('utc', CURRENT_TIMESTAMP)"
_UNTIL = f"{_NOW} + %(ttl)s * interval '1 second'"
_TAKE = f"""
INSERT INTO shedlock (name, lock_until, locked_at, locked_by) VALUES (%(name)s, {_UNTIL}, {_NOW}, %(by)s)
ON CONFLICT (name) DO UPDATE SET lock_until = {_UNTIL}, locked_at = {_NOW}, locked_by = %(by)s
WHERE shedlock.lock_until <= {_NOW} OR shedlock.locked_by = %(by)s
"""
_KEEP = (
    f"UPDATE shedlock SET lock_until = {_UNTIL} WHERE name = %(name)s AND locked_by = %(by)s AND lock_until > {_NOW}"
)
_GIVE_BACK = (
    f"UPDATE shedlock SET lock_until = {_NOW} WHERE name = %(name)s AND locked_by = %(by)s AND lock_until > {_NOW}"
)
_IS_TAKEN = f"SELECT 1 FROM shedlock WHERE name = %(name)s AND lock_until > {_NOW}"


def open_format(whose: str, url: str, names: Names, driver: Driver) -> ShedLock:
    return ShedLock(url, names.checked(), driver)


class ShedLock:
    whose = "ShedLock"
    mutexes_only = True

    def __init__(self, url: str, names: Names, driver: Driver) -> None:
        self._target = target(url)
        self._names = names
        self._connection: Any = None
        self._errands = Errands(
            driver, f"PostgreSQL at {self._target.where}", lambda holder: None
        )  # it has a ttl by itself

    async def take(self, claim: Claim, within: float) -> float:
        return await self._errands.do(lambda: self._lives(_TAKE, claim), within)

    async def keep(self, claims: Sequence[Claim], within: float) -> Sequence[Kept]:
        return await self._errands.do(lambda: [self._lives(_KEEP, claim) for claim in claims], within)

    async def give_back(self, claim: Claim, within: float) -> None:
        await self._errands.do(lambda: self._changes(_GIVE_BACK, claim), within)

    async def is_taken(self, name: str, within: float) -> bool:
        return await self._errands.do(
            lambda: bool(self._run(_IS_TAKEN, {"name": self._names.of(name)}).fetchone()), within
        )

    def forked(self) -> None:
        self._connection = None  # psycopg closes no connection of another process
        self._errands.forked()

    async def close(self) -> None:
        if self._connection is not None:
            await self._errands.do(self._hang_up, 1.0)
        self._errands.stop()

    # ---- in the thread

    def _lives(self, statement: str, claim: Claim) -> float:
        return claim.ttl if self._changes(statement, claim) else 0.0

    def _changes(self, statement: str, claim: Claim) -> bool:
        by = mark(claim.holder)
        return bool(self._run(statement, {"name": self._names.of(claim.name), "ttl": claim.ttl, "by": by}).rowcount)

    def _run(self, statement: str, words: dict[str, Any]) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._target)
        try:
            return self._connection.execute(statement, words)
        except BaseException:
            self._hang_up()  # whatever it was: the next one begins afresh
            raise

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
