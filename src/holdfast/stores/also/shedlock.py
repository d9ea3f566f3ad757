"""ShedLock's table: a row per name, taken until `lock_until`, by the database's clock in UTC, as with its `usingDbTime()`.

On MySQL its `lock_until` is read in the time zone of the connection, by ShedLock as by us: it is left as the server has it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...claim import Claim
from ...drivers.base import Driver
from .errands import Errands
from .old import Kept, Names, mark
from .sql import MySQL, open_database, refused


class Words(NamedTuple):
    """What differs between databases. Each `take` is tried until one changes a row."""

    now: str
    until: str
    insert: str

    @property
    def take(self) -> tuple[str, str]:
        update = (
            f"UPDATE shedlock SET lock_until = {self.until}, locked_at = {self.now}, locked_by = %(by)s "
            f"WHERE name = %(name)s AND (lock_until <= {self.now} OR locked_by = %(by)s)"
        )
        return update, self.insert.format(
            f"INTO shedlock (name, lock_until, locked_at, locked_by) VALUES (%(name)s, {self.until}, {self.now}, %(by)s)"
        )

    @property
    def keep(self) -> tuple[str, ...]:
        return (f"UPDATE shedlock SET lock_until = {self.until} {self._mine}",)

    @property
    def give_back(self) -> tuple[str, ...]:
        return (f"UPDATE shedlock SET lock_until = {self.now} {self._mine}",)

    @property
    def _mine(self) -> str:
        return f"WHERE name = %(name)s AND locked_by = %(by)s AND lock_until > {self.now}"


_POSTGRESQL = Words(
    "timezone('utc', CURRENT_TIMESTAMP)",
    "timezone('utc', CURRENT_TIMESTAMP) + %(ttl)s * interval '1 second'",
    "INSERT {} ON CONFLICT (name) DO NOTHING",
)
_MYSQL = Words(
    "UTC_TIMESTAMP(3)",
    "TIMESTAMPADD(MICROSECOND, CEIL(%(ttl)s * 1000000), UTC_TIMESTAMP(3))",
    "INSERT {}",  # not INSERT IGNORE, which would cut a name that is too long
)


def open_format(whose: str, url: str, names: Names, driver: Driver) -> ShedLock:
    return ShedLock(url, names.checked(), driver)


class ShedLock:
    whose = "ShedLock"
    mutexes_only = True

    def __init__(self, url: str, names: Names, driver: Driver) -> None:
        self._database = open_database(url)
        self._words = _MYSQL if isinstance(self._database, MySQL) else _POSTGRESQL
        self._names = names
        self._connection: Any = None
        self._errands = Errands(driver, self._database.where, lambda holder: None)  # it has a ttl by itself

    async def take(self, claim: Claim, within: float) -> float:
        return await self._errands.do(lambda: self._lives(self._words.take, claim), within)

    async def keep(self, claims: Sequence[Claim], within: float) -> Sequence[Kept]:
        return await self._errands.do(lambda: [self._lives(self._words.keep, claim) for claim in claims], within)

    async def give_back(self, claim: Claim, within: float) -> None:
        await self._errands.do(lambda: self._changes(self._words.give_back, claim), within)

    async def is_taken(self, name: str, within: float) -> bool:
        return await self._errands.do(lambda: self._is_taken(name), within)

    def forked(self) -> None:
        if self._connection is not None:
            self._database.disown(self._connection)
        self._connection = None
        self._errands.forked()

    async def close(self, within: float) -> None:
        await self._errands.close(self._hang_up, within)

    # ---- in the thread

    def _lives(self, statements: Sequence[str], claim: Claim) -> float:
        return claim.ttl if self._changes(statements, claim) else 0.0

    def _changes(self, statements: Sequence[str], claim: Claim) -> bool:
        words = {"name": self._names.of(claim.name), "ttl": claim.ttl, "by": mark(claim.holder)}
        try:
            return any(self._run(one, words).rowcount for one in statements)
        except self._database.already_there:
            return False

    def _is_taken(self, name: str) -> bool:
        found = self._run(
            f"SELECT 1 FROM shedlock WHERE name = %(name)s AND lock_until > {self._words.now}",
            {"name": self._names.of(name)},
        )
        return found.fetchone() is not None

    def _run(self, statement: str, words: dict[str, Any]) -> Any:
        if self._connection is not None:
            with contextlib.suppress(
                self._database.broken
            ):  # perhaps long ago: once more on another, which is harmless
                return self._say(statement, words)
        self._connection = self._database.connect()
        return self._say(statement, words)

    def _say(self, statement: str, words: dict[str, Any]) -> Any:
        try:
            cursor = self._connection.cursor()
            cursor.execute(statement, words)
        except self._database.already_there:
            raise
        except BaseException as error:
            self._hang_up()  # whatever it was: the next one begins afresh
            if isinstance(error, self._database.mistakes):
                raise refused(self.whose, error) from None
            raise
        return cursor

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
