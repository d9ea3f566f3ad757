"""A queue in Redis: a stream a partition. Every step is one script, and all keys of a queue share one slot of a cluster."""

from __future__ import annotations

from typing import Any

from ...databases.redis import call, checked, nonce, patience, word
from ...databases.wire import settle
from .line import Taken
from .messages import agreed

_REMEMBERED = 300_000  # ms: for longer than any client goes on sending one command again
_ANSWERS = 86_400_000  # ms: for longer than anybody waits for one; who asked may have been killed


class RedisShelf:
    def __init__(self, client: Any, world: str, queue: str, partitions: int, private: bool) -> None:
        self._queue = queue
        self._until_forgotten = (_ANSWERS,) if private else ()
        self._partitions = partitions
        self._client = checked(client, world, __package__ or "")
        prefix = f"{{holdfast:queue:{queue.encode().hex()}}}:"  # in hex: a brace in a name must not end the tag
        self._stream = prefix + "partition:"
        self._until = prefix + "until"
        self._tokens = prefix + "tokens"
        self._bell = prefix + "bell"
        self._count = prefix + "count"
        self._sent = prefix + "sent:"

    async def _call(self, name: str, keys: list[str], *arguments: str | int) -> Any:
        return await call(self._client, __package__ or "", name, keys, *arguments)

    async def create(self) -> None:
        """Redis makes streams as they are written to."""

    async def put(self, partition: int, key: str, text: str) -> None:
        keys = [f"{self._stream}{partition}", self._until, self._bell, self._count, self._sent + nonce()]
        times = _REMEMBERED, *self._until_forgotten
        counted = await self._call("put", keys, partition, key, text, self._partitions, *times)
        agreed(self._queue, int(counted), self._partitions)

    async def take(self, most: int, ttl: float) -> Taken | None:
        keys = [self._until, self._tokens, self._count]
        found = await self._call("take", keys, self._stream, round(ttl * 1000), most, self._partitions)
        if found is None:
            return None
        if len(found) == 1:
            agreed(self._queue, int(found[0]), self._partitions)
        partition, token, entries = found
        messages = [(word(id_), word(fields[1]), word(fields[3])) for id_, fields in entries]
        return Taken(int(partition), int(token), messages)

    async def ack(self, partition: int, token: int, id_: str, ttl: float) -> tuple[int, bool]:
        keys = [f"{self._stream}{partition}", self._until, self._tokens]
        seen, there = await self._call("ack", keys, partition, token, id_, round(ttl * 1000))
        return int(seen), bool(there)

    async def release(self, partition: int, token: int) -> bool:
        return (await self.ack(partition, token, "", 0))[0] == token

    async def discard(self) -> None:
        partitions = await settle(self._client.zrange(self._until, 0, -1))
        streams = [f"{self._stream}{word(partition)}" for partition in partitions]
        await settle(self._client.delete(self._until, self._tokens, self._bell, self._count, *streams))

    async def count(self) -> int:
        """Partitions without messages leave the set when they are next looked at."""
        total = 0
        for partition in await settle(self._client.zrange(self._until, 0, -1)):
            total += int(await settle(self._client.xlen(f"{self._stream}{word(partition)}")))
        return total

    async def listen(self) -> None:
        """Waiting is listening."""

    async def wait(self, timeout: float) -> bool:
        await settle(self._client.blpop([self._bell], timeout=max(0.01, patience(self._client, timeout))))
        return True

    async def unlisten(self) -> None:
        """Nothing was left behind."""

    def crowded(self) -> bool:
        return False  # there is a pool
