"""Messages of a queue: in order for each key, in the hands of one at a time, given back with a token."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...errors import Misuse
from ...fenced.mark import Mark, refusal


class Message(NamedTuple):
    """One message. `fenced.transaction(db, message.ticket)` refuses whoever handles it too late."""

    key: str
    data: Any
    id: str
    ticket: tuple[str, int]


class Batch(NamedTuple):
    """Messages of one partition, in order, and the token under which they were taken. Fenced storage takes it as a lease."""

    name: str
    token: int
    partition: int
    messages: tuple[Message, ...]


def overtaken(batch: Batch, seen: int) -> Exception:
    return refusal(Mark(batch.name, batch.token), seen)


def agreed(queue: str, counted: int, partitions: int) -> None:
    """Whoever came first has said how many partitions there are, for ever."""
    if counted != partitions:
        raise Misuse(
            f"the queue {queue!r} has {counted} partitions, and this one counts {partitions}: all must count the same, or a key "
            "would be in two hands. To change it, begin a queue of another name, and let this one run empty"
        )
