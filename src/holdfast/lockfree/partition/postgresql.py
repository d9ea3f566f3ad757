"""A queue in two tables of PostgreSQL: messages, and who has which partition."""

from __future__ import annotations

from typing import Any

from ...databases.connections import wire_for
from ...databases.failures import lacks_table
from ...databases.statements import POSTGRESQL, Statement, bind, load
from ...databases.transactions import create_all, rows_alone, run_alone
from ...errors import Misuse
from ..bell import PostgresBell
from .line import Taken
from .messages import agreed


class PostgresShelf:
    def __init__(self, connection: Any, world: str, queue: str, partitions: int, private: bool) -> None:
        self._queue = queue
        self._partitions = partitions
        self._agreed = private
        self._wire = wire_for(connection, world)
        if self._wire.dialect != POSTGRESQL:
            raise Misuse(f"a queue is kept in PostgreSQL or Redis, not in {self._wire.dialect}")
        self._known = load(POSTGRESQL, __package__ or "")
        self._bell = PostgresBell(connection, self._wire, "holdfast_queue")

    def _say(self, name: str, **values: object) -> Statement:
        return bind(self._known[name], self._wire.style, {"queue": self._queue, **values})

    async def _rows(self, name: str, **values: object) -> list[tuple[Any, ...]]:
        try:
            return await rows_alone(self._wire, self._say(name, **values), writes=True)
        except Exception as error:
            _explain(error)
            raise

    async def create(self) -> None:
        await create_all(self._wire, self._known)

    async def _agree(self) -> None:
        """Asked once for each queue that is opened; in an open transaction again, since that may be rolled back."""
        if self._agreed:
            return
        found = await self._rows("size")
        if not found:
            await run_alone(self._wire, self._say("agree", partitions=self._partitions))
            found = await self._rows("size")
        agreed(self._queue, int(found[0][0]), self._partitions)
        self._agreed = not self._wire.busy()

    async def put(self, partition: int, key: str, text: str) -> None:
        await self._agree()
        await self._rows("put", partition=partition, key=key, data=text)

    async def take(self, most: int, ttl: float) -> Taken | None:
        if self._wire.busy():
            raise Misuse(
                "a transaction is open on this connection: what is taken in it is ours only when it is committed"
            )
        await self._agree()
        for partition, token in await self._rows("take", ttl=float(ttl)):
            found = await self._rows("messages", partition=partition, most=most)
            if found:
                return Taken(partition, token, [(str(id_), key, text) for id_, key, text in found])
            await self.release(partition, token)  # its last owner has just acknowledged the rest
        return None

    async def ack(self, partition: int, token: int, id_: str, ttl: float) -> tuple[int, bool]:
        values = {"partition": partition, "token": token}
        [(mine, done)] = await self._rows("ack", id=int(id_), ttl=float(ttl), **values)
        if mine:
            return token, bool(done)
        found = await self._rows("token", partition=partition)
        return (int(found[0][0]) if found else 0), False

    async def release(self, partition: int, token: int) -> bool:
        return (await run_alone(self._wire, self._say("release", partition=partition, token=token))).rows > 0

    async def discard(self) -> None:
        await run_alone(self._wire, self._say("discard"))

    async def count(self) -> int:
        return int((await self._rows("count"))[0][0])

    async def listen(self) -> None:
        await self._bell.listen()

    async def wait(self, timeout: float) -> bool:
        return await self._bell.wait(timeout)

    async def unlisten(self) -> None:
        await self._bell.unlisten()

    def crowded(self) -> bool:
        return self._bell.crowded()


def _explain(error: BaseException) -> None:
    if lacks_table(error, "holdfast_queue"):
        raise Misuse(
            "this database lacks a table of holdfast_queue: create it once, with queue.create_table()"
        ) from error
