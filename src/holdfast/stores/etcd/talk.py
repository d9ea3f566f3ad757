"""What the store asks of a wire. A wire holds no logic, and repeats nothing; a store holds no sockets.

Deadlines are by `boot_time`. Of several members, none that has fallen silent is given all the time that is left: see `share`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ...drivers.base import Bell, boot_time
from ...errors import Unavailable
from .ear import Watch
from .proto import Done

Call = tuple[bytes, bytes]  # the method's path, the message
Outcome = bytes | Exception  # Refused by etcd, or Unavailable: no answer


class Unreachable(Unavailable):
    """No member could be connected to: to try again at once would not help."""


class Ear(Protocol):
    async def watch(self, key: bytes, range_end: bytes, since: int, bell: Bell, deadline: float) -> Watch: ...
    def cancel(self, watch: Watch) -> None: ...


class Wire(Protocol):
    """The connections of one store. Raises Unavailable when they fail, Refused when etcd says no."""

    @property
    def where(self) -> str: ...
    @property
    def ear(self) -> Ear: ...
    async def ask(self, path: bytes, message: bytes, deadline: float) -> bytes: ...
    async def transact(self, name: str, transaction: bytes, deadline: float) -> Done: ...

    async def ask_apart(self, calls: Sequence[Call], deadline: float) -> list[Outcome]:
        """All at once, on a connection that user work cannot keep busy."""
        ...

    def forked(self) -> None: ...
    async def close(self) -> None: ...


def share(deadline: float, members: int) -> float:
    """Until when one member may keep us waiting."""
    now = boot_time()
    return now + (deadline - now) / min(members, 3)


def answer_of(outcome: Outcome) -> bytes:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
