"""PostgreSQL, MySQL and MariaDB, SQLite: the table holdfast_idempotency, in the user's own database."""

from __future__ import annotations

import contextlib
from typing import Any

from ...databases.connections import wire_for
from ...databases.failures import collided
from ...databases.sharing import Stay
from ...databases.statements import MYSQL, Statement, bind, load
from ...databases.transactions import create_table, row_alone, run_alone
from ...databases.wire import Outcome, Wire
from ...errors import Misuse
from ..optimistic.retry import Pauses, Retry
from .rule import FLAWED, KEPT, Entry, entry_of

TABLE = "holdfast_idempotency"
PACKAGE = "holdfast.lockfree.idempotency"
_POLLS = Retry(attempts=1, first=0.01, longest=0.25)  # no database pushes to a connection that is also used for work
_COLLISIONS = 10


def statements(dialect: str) -> dict[str, str]:
    return load(dialect, __package__ or "")


class SqlLedger:
    transactional = True

    def __init__(self, driver: Pauses, world: str, connection: Any) -> None:
        self.connection = connection
        self._driver = driver
        self._wire: Wire = wire_for(connection, world, PACKAGE)
        self._texts = statements(self._wire.dialect)

    def ready(self) -> None:
        """Asked before anything is begun; what can be read without that may be read inside of a transaction as well."""
        if self._wire.busy():
            raise Misuse(
                "a transaction is open already on this connection, and the key must be claimed for all to see before the work "
                "begins. Commit it or roll it back first, or give this another connection"
            )

    def _statement(self, name: str, key: str, **values: object) -> Statement:
        values["name_hex" if self._wire.dialect == MYSQL else "name"] = (
            key.encode().hex() if self._wire.dialect == MYSQL else key
        )
        return bind(self._texts[name], self._wire.style, values)

    async def look(self, key: str) -> Entry | None:
        wire, look = self._wire, self._statement("look", key)
        if not (wire.reads_apart or wire.standalone()):
            self.ready()
        return _entry(await row_alone(wire, look))

    async def claim(self, key: str, payload: str | None, runner: str, ttl: float, keep: float) -> Entry:
        claim = self._statement("claim", key, payload=payload, runner=runner, ttl=round(ttl * 1e6))
        look = self._statement("look", key)
        for left in reversed(range(_COLLISIONS)):
            try:
                found = _entry(await row_alone(self._wire, look, after=claim))
            except Exception as error:
                if not (left and collided(error)):  # MySQL: two first claims can meet in the gap where the row will be
                    raise
                continue
            if found is not None:  # else it was released just now
                return found
        raise Misuse(f"the entry of {key!r} vanishes as soon as it is written: who deletes from {TABLE}?")

    async def finish(self, key: str, entry: Entry, result: bytes | None, flaw: str | None, keep: float) -> bool:
        kept = (flaw or "").encode() if result is None else result
        values = {"result": kept, "result_hex": kept.hex(), "done": FLAWED if result is None else KEPT}
        outcome = await self._alone("finish", key, token=entry.token, keep=round(keep * 1e6), **values)
        return outcome.rows > 0

    async def release(self, key: str, runner: str) -> None:
        await self._alone("release", key, runner=runner)

    async def _alone(self, name: str, key: str, **values: object) -> Outcome:
        """In the open transaction, or in one of its own."""
        wire, statement = self._wire, self._statement(name, key, **values)
        return await (wire.run(statement) if self._begun else run_alone(wire, statement))

    async def wait(self, key: str, entry: Entry, seconds: float, round_: int) -> None:
        longest = _POLLS.ceiling(round_)
        await self._driver.sleep(min(seconds, self._driver.uniform(longest / 2, longest)))

    _begun = False
    _stay: Stay | None = None

    async def begin(self) -> None:
        self._stay = Stay(self._wire.shared())
        self._begun = True
        try:
            await self._wire.begin(None, watched=True)
        except BaseException as error:
            await self.end(error)
            raise

    async def end(self, error: BaseException | None) -> None:
        begun, self._begun = self._begun, False
        stay, self._stay = self._stay, None
        try:
            if begun:
                await self._wire.end(error)
        finally:
            if stay is not None:
                stay.end()

    async def create(self) -> None:
        with contextlib.suppress(Exception):  # two may create it at once; whether it is there, the next statement tells
            await create_table(self._wire, self._texts)

    async def purge(self, keep: float) -> int:
        return (await self._alone("purge", "", keep=round(keep * 1e6))).rows


def _entry(found: tuple[Any, ...] | None) -> Entry | None:
    if found is None:
        return None
    if len(found) == 2:  # MySQL
        text = found[0].decode() if isinstance(found[0], bytes) else found[0]
        token, runner, done, left, payload = text.split(" ")
    else:
        token, runner, payload, done, left, _ = found
    return entry_of(int(token), runner, payload or None, int(done), int(left) / 1e6, found[-1])
