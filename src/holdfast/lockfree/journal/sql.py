"""Events in a table of PostgreSQL or SQLite.

In a transaction that is open, an append takes part in it, and is the user's to commit; else it commits by itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...databases.connections import ASYNCIO, wire_for
from ...databases.failures import lacks_table
from ...databases.statements import MYSQL, Statement, bind, load
from ...databases.transactions import create_all, rows_alone, run_alone
from ...errors import Misuse
from ..bell import PostgresBell
from .roll import Written


class SqlRoll:
    def __init__(self, connection: Any, world: str) -> None:
        self._connection = connection
        self._world = world
        self._wire = wire_for(connection, world)
        if self._wire.dialect == MYSQL:
            raise Misuse("the journal is kept in PostgreSQL, SQLite or Redis, not in MySQL")
        self._known = load(self._wire.dialect, __package__ or "")
        self._bell = PostgresBell(connection, self._wire, "holdfast_journal")

    _at: str | None = None  # the last position that was given here, or asked from

    def _say(self, name: str, **values: object) -> Statement:
        return bind(self._known[name], self._wire.style, values)

    async def create(self) -> None:
        await create_all(self._wire, self._known)

    async def append(self, stream: str, expected: int, texts: Sequence[str]) -> int | None:
        if len(texts) == 1:
            saying = self._say("append", stream=stream, expected=expected, data=texts[0])
        else:
            rest, all_ = json.dumps(texts[1:]), json.dumps(texts)
            saying = self._say("append_many", stream=stream, expected=expected, data=texts[0], rest=rest, all=all_)
        if not await self._run(saying):
            return await self.version(stream)
        return None

    async def _run(self, saying: Statement) -> int:
        try:
            return (await run_alone(self._wire, saying)).rows
        except Exception as error:
            _explain(error)
            raise

    async def version(self, stream: str) -> int:
        return int((await self._rows("version", stream=stream))[0][0])

    async def read(self, stream: str, after: int, most: int) -> list[Written]:
        found = await self._rows("read", stream=stream, after=after, most=most)
        return [Written(one[0], one[1], one[2], str(one[3])) for one in found]

    async def log(self, after: str, prefix: str, most: int) -> tuple[list[Written], str]:
        first, _, second = (after or "0:0").partition(":")
        if not (first.isdigit() and (second.isdigit() or not second)):
            raise Misuse(f"{after!r:.80} is no position of this journal: give `event.position` as it is, or ''")
        if after != self._at and await self._rows("astray", first=int(first)):
            raise Misuse(
                f"this journal was restored from a copy, or the position {after!r:.80} is of another server: events would be "
                "left out without a word. On PostgreSQL set xact to 0 in holdfast_journal; then let all subscribers begin anew"
            )
        values = {"first": int(first), "second": int(second or 0), "prefix": prefix, "most": most}
        found = [Written(one[0], one[1], one[2], str(one[3])) for one in await self._rows("log", **values)]
        self._at = found[-1].position if found else after
        return found, self._at

    async def save(self, stream: str, version: int, text: str) -> None:
        await self._run(self._say("snapshot", stream=stream, version=version, state=text))

    async def saved(self, stream: str) -> tuple[int, str] | None:
        found = await self._rows("last_snapshot", stream=stream)
        return (int(found[0][0]), str(found[0][1])) if found else None

    async def _rows(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        try:
            return await rows_alone(self._wire, self._say(name, **values))
        except Exception as error:
            _explain(error)
            raise

    async def listen(self) -> None:
        await self._bell.listen()

    async def wait(self, after: str, timeout: float) -> bool:
        return await self._bell.wait(timeout)

    async def unlisten(self) -> None:
        if self._world != ASYNCIO or not self._bell.crowded():
            await self._bell.unlisten()


def _explain(error: BaseException) -> None:
    if lacks_table(error, "holdfast_journal"):
        raise Misuse(
            "this database has no table holdfast_journal: create it once, with journal.create_table()"
        ) from error
