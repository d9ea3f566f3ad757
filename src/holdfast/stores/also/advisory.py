"""pg_advisory_lock(id): a lock that lives with a connection of its own.

The server ends a connection that has been silent for a ttl (PostgreSQL 14 and later): a holder that hangs, or whose network is
cut, keeps nobody out for longer.

The id is the name, if that is a number; else `?hash=` says how the old code makes one of a text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...claim import Claim
from ...drivers.base import Driver
from ...errors import Misuse
from .errands import Errands
from .old import Kept, Names
from .sql import PostgreSQL

HASHES = {"hashtext": "hashtext(%s)", "hashtextextended": "hashtextextended(%s, 0)"}


def open_format(whose: str, url: str, names: Names, driver: Driver) -> Advisory:
    url, _, query = url.partition("?")
    options = dict(one.partition("=")[::2] for one in query.split("&") if one)
    how = options.pop("hash", None)
    if how is not None and how not in HASHES:
        raise Misuse(f"also=advisory+…?hash={how}: there are {', '.join(HASHES)}")
    rest = "&".join(f"{key}={value}" for key, value in options.items())
    return Advisory(url + ("?" + rest if rest else ""), names.checked(), how, driver)


class Advisory:
    whose = "pg_advisory_lock"
    mutexes_only = True

    def __init__(self, url: str, names: Names, how: str | None, driver: Driver) -> None:
        self._database = PostgreSQL(url, "pg_catalog")
        self._names = names
        self._id = HASHES[how] if how else "%s::bigint"
        self._how = how
        self._connections: dict[str, Any] = {}  # one per holder: the lock is the connection's
        self._errands = Errands(driver, self._database.where, self._let_go)

    async def take(self, claim: Claim, within: float) -> float:
        key = self._key(claim.name)
        return await self._errands.do(lambda: self._take(claim, key), within)

    async def keep(self, claims: Sequence[Claim], within: float) -> Sequence[Kept]:
        return await self._errands.do(lambda: [self._keep(claim) for claim in claims], within)

    async def give_back(self, claim: Claim, within: float) -> None:
        await self._errands.do(lambda: self._let_go(claim.holder), within)

    async def is_taken(self, name: str, within: float) -> bool:
        key = self._key(name)
        return await self._errands.do(lambda: self._is_taken(key), within)

    def forked(self) -> None:
        for connection in self._connections.values():
            self._database.disown(connection)
        self._connections = {}
        self._errands.forked()

    async def close(self, within: float) -> None:
        await self._errands.close(self._hang_up, within)

    def _key(self, name: str) -> str | int:
        old = self._names.of(name)
        if self._how is not None:
            return old
        try:
            number = int(old)
        except ValueError:
            number = 2**63
        if not -(2**63) <= number < 2**63:
            raise Misuse(
                f"{old!r} is no id of a pg_advisory_lock: name the lock by its number, as in locks.lock('42'), or say with "
                f"also=advisory+…?hash=hashtext how the old code makes one of a text (there are: {', '.join(HASHES)})"
            )
        return number

    # ---- in the thread

    def _take(self, claim: Claim, key: str | int) -> float:
        if self._keep(claim):
            return claim.ttl
        connection = self._database.connect(claim.ttl)
        try:
            (got,) = connection.execute(f"SELECT pg_try_advisory_lock({self._id})", (key,)).fetchone()
        except BaseException:
            connection.close()
            raise
        if not got:
            connection.close()
            return 0.0
        self._connections[claim.holder] = connection
        self._errands.hold(claim.holder, claim.ttl)
        return claim.ttl

    def _keep(self, claim: Claim) -> float:
        connection = self._connections.get(claim.holder)
        try:
            if connection is None:
                return 0.0
            self._database.patience(connection, claim.ttl)  # it answers, so the lock is still there
        except Exception:
            self._drop(claim.holder)
            return 0.0
        self._errands.hold(claim.holder, claim.ttl)
        return claim.ttl

    def _drop(self, holder: str) -> None:
        """Its connection is broken, and the lock with it."""
        self._errands.forget(holder)
        if (connection := self._connections.pop(holder, None)) is not None:
            connection.close()

    def _let_go(self, holder: str) -> None:
        self._errands.forget(holder)
        connection = self._connections.pop(holder, None)
        if connection is None:
            return
        try:
            connection.execute("SELECT pg_advisory_unlock_all()")  # the server notices a closed connection only later
        finally:
            connection.close()

    def _hang_up(self) -> None:
        for holder in tuple(self._connections):
            self._let_go(holder)

    def _is_taken(self, key: str | int) -> bool:
        with self._database.connect() as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND "
                f"((classid::bigint << 32) | objid::bigint) = {self._id}::bigint",
                (key,),
            ).fetchone()
        return found is not None
