"""What a queue does, once for threads and asyncio. A *shelf* keeps the messages: PostgreSQL or Redis."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...claim import valid_name, valid_ttl
from ...databases.connections import ASYNCIO, THREADS
from ...errors import Misuse
from ..coding import Coder, Decode, Encode
from .messages import Batch, Message, overtaken
from .ring import partition_of, valid_partitions

__all__ = ["ASYNCIO", "THREADS", "Line", "Shelf", "Taken"]

MAX_TAKE = 1000


class Taken(NamedTuple):
    partition: int
    token: int
    messages: list[tuple[str, str, str]]  # id, key, text


class Shelf(Protocol):
    async def create(self) -> None: ...

    async def put(self, partition: int, key: str, text: str) -> None: ...

    async def take(self, most: int, ttl: float) -> Taken | None:
        """A partition that nobody has and that holds messages, under a new token."""

    async def ack(self, partition: int, token: int, id_: str, ttl: float) -> tuple[int, bool]:
        """The partition's token, and whether the message was there. Nothing is done unless the token is ours."""

    async def release(self, partition: int, token: int) -> bool: ...

    async def count(self) -> int: ...

    async def discard(self) -> None:
        """Forget the whole queue. Only for one whose name is never used again: its tokens go, too."""

    async def listen(self) -> None: ...

    async def wait(self, timeout: float) -> bool: ...

    async def unlisten(self) -> None: ...

    def crowded(self) -> bool:
        """Of asyncio: others may be speaking through the connection, which takes one at a time."""


class Line:
    def __init__(
        self,
        connection: Any,
        world: str,
        name: str,
        partitions: int,
        ttl: float,
        coding: tuple[Encode, Decode, int],
        private: bool = False,
    ) -> None:
        """`private`: nobody else chooses this name, so nobody can count its partitions otherwise."""
        self.name = valid_name(name, "queue's name")
        self.partitions = valid_partitions(partitions)
        self._ttl = valid_ttl(ttl)
        self._coder = Coder(*coding)
        valid_name(self._resource(self.partitions), "queue's name, with what is added to it,")
        self.shelf = _shelf(connection, world, self.name, self.partitions, private)
        self._made_of = connection, world, ttl, coding

    def replies(self, name: str) -> Line:
        """A queue of one partition on the same connection, for the answers to one who asks."""
        connection, world, ttl, coding = self._made_of
        return Line(connection, world, name, 1, ttl, coding, private=True)

    def _resource(self, partition: int) -> str:
        return f"{self.name}/partition/{partition}"

    async def put(self, key: str, data: object) -> None:
        partition = partition_of(key, self.partitions)
        await self.shelf.put(partition, key, self._coder.text(data, f"the message for {key!r}"))

    async def take(self, most: int) -> Batch | None:
        if type(most) is not int or not 1 <= most <= MAX_TAKE:
            raise Misuse(f"take() wants an int from 1 to {MAX_TAKE}, not {most!r:.80}")
        taken = await self.shelf.take(most, self._ttl)
        if taken is None:
            return None
        ticket = self._resource(taken.partition), taken.token
        messages = tuple(Message(key, self._coder.decode(text), id_, ticket) for id_, key, text in taken.messages)
        return Batch(*ticket, taken.partition, messages)

    async def ack(self, batch: Batch, message: Message) -> bool:
        self._check(batch)
        if message.ticket != (batch.name, batch.token):
            raise Misuse("this message was not taken in that batch")
        seen, there = await self.shelf.ack(batch.partition, batch.token, message.id, self._ttl)
        if seen != batch.token:
            raise overtaken(batch, seen)
        return there

    async def release(self, batch: Batch) -> bool:
        self._check(batch)
        return await self.shelf.release(batch.partition, batch.token)

    def _check(self, batch: Batch) -> None:
        if not isinstance(batch, Batch) or batch.name != self._resource(batch.partition):
            raise Misuse(f"a batch that was taken from the queue {self.name!r} is wanted, not {batch!r:.80}")


def _shelf(connection: Any, world: str, name: str, partitions: int, private: bool) -> Shelf:
    if hasattr(connection, "xadd"):
        from .redis import RedisShelf

        return RedisShelf(connection, world, name, partitions, private)
    from .postgresql import PostgresShelf

    return PostgresShelf(connection, world, name, partitions, private)
