"""What groups and queues have in common, for threads and for asyncio."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from ..coding import MAX_BYTES, Decode, Encode, to_json
from .line import Line
from .membership import Member, Plan
from .messages import Batch


class AnyWorker:
    _member: Member

    @property
    def name(self) -> str:
        return self._member.worker

    def __repr__(self) -> str:
        plan = self._member.plan
        return f"<Worker {self.name!r} of {plan.name!r}, has {len(self.owned())} of {plan.partitions} partitions>"

    def owned(self) -> dict[int, Any]:
        """The partitions in our hands, with their leases."""
        return self._member.leases()

    @contextmanager
    def working(self, key: str) -> Iterator[Any]:
        """Work on a key under its partition's lease; `NotOwner` if that is not ours. A rebalance waits until this is left."""
        _, owned = self._member.enter(key)
        try:
            yield owned.lease
        finally:
            self._member.leave(owned)


class AnyGroup:
    def __init__(
        self, locks: Any, name: str, *, partitions: int = 64, ttl: float = 30.0, drain: float | None = None
    ) -> None:
        self._plan = Plan(locks, name, partitions, ttl, drain)

    def __repr__(self) -> str:
        return f"<Group {self._plan.name!r}, {self._plan.partitions} partitions>"

    def partition_of(self, key: str) -> int:
        """The number of a key's partition."""
        return self._plan.partition_of(key)


class AnyQueue:
    _world: ClassVar[str]

    def __init__(
        self,
        connection: Any,
        name: str,
        *,
        partitions: int = 64,
        ttl: float = 30.0,
        encode: Encode = to_json,
        decode: Decode = json.loads,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._line = Line(connection, self._world, name, partitions, ttl, (encode, decode, max_bytes))
        self._left: list[Batch] = []  # to be given back

    def __repr__(self) -> str:
        return f"<Queue {self._line.name!r}, {self._line.partitions} partitions>"
