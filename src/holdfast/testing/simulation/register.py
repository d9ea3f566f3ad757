"""Simulated storage that checks tokens, or does not, or does it wrong: what a lock is there to protect."""

from __future__ import annotations

from collections.abc import Coroutine
from enum import Enum
from typing import Any

from ...drivers.simulated import Process
from ...errors import StaleToken
from ..history import DONE, READ, STALE, WRITE, Entry, History, Operation
from .network import Network

Value = tuple[Entry, ...]


class Fence(Enum):
    NONE = "no fence"
    WRITES = "writes only"
    READS_AND_WRITES = "reads and writes"
    NOT_EQUAL = "refuses what differs"  # a mutant: compares with != where < is right


class Register:
    """At the server. Holds the updates that were made, each with its token, oldest first."""

    def __init__(self, fence: Fence = Fence.READS_AND_WRITES) -> None:
        self.fence = fence
        self.values: dict[str, Value] = {}
        self._seen: dict[str, int] = {}

    def read(self, resource: str, token: int) -> Value:
        if self.fence not in (Fence.NONE, Fence.WRITES):
            self._touch(resource, token)
        return self.peek(resource)

    def write(self, resource: str, token: int, value: Value) -> None:
        if self.fence is not Fence.NONE:
            self._touch(resource, token)
        self.values[resource] = value

    def peek(self, resource: str) -> Value:
        """Without a token: for those who only look."""
        return self.values.get(resource, ())

    def _touch(self, resource: str, token: int) -> None:
        seen = self._seen.get(resource, 0)
        wrong = (seen not in (0, token)) if self.fence is Fence.NOT_EQUAL else token < seen
        if wrong:
            raise StaleToken(f"{resource!r} has seen token {seen}, not {token}", resource, seen, token)
        self._seen[resource] = max(seen, token)


class RegisterClient:
    """A process's way to the register, over the same network as its locks, and recorded.

    A write that was not answered may still arrive, and its own token would let it pass: whoever is told Unavailable
    must not write again under the same token.
    """

    def __init__(self, register: Register, network: Network, process: Process, history: History) -> None:
        self._register = register
        self._network = network
        self._process = process
        self._history = history

    async def read(self, resource: str, token: int) -> Value:
        async def execute() -> Value:
            return self._register.read(resource, token)

        operation = self._begun(READ, resource, token)
        operation.value = value = await self._ended(operation, self._network.call(self._process, READ, execute))
        return value

    async def write(self, resource: str, token: int, value: Value) -> None:
        async def execute() -> Value:
            self._register.write(resource, token, value)
            return value

        operation = self._begun(WRITE, resource, token)
        operation.value = value[-1:]
        await self._ended(operation, self._network.call(self._process, WRITE, execute))

    def _begun(self, kind: str, resource: str, token: int) -> Operation:
        return self._history.begin(Operation(self._process.name, kind, resource, self._process.world.time, token=token))

    async def _ended(self, operation: Operation, call: Coroutine[Any, Any, Value]) -> Value:
        try:
            value = await call
        except StaleToken as error:
            operation.end(self._process.world.time, STALE)
            operation.detail = f"seen {error.seen}"
            raise
        operation.end(self._process.world.time, DONE)
        return value
