"""psycopg's connection, for the old lock: every question has so long for its answer, however much is said meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

import psycopg

from ...drivers.base import boot_time

T = TypeVar("T")
SECONDS = 3  # for one conversation
_LOOKS = 200  # at what has come, likewise: an answer is a row, and psycopg keeps whatever else there is


class Asking(psycopg.Connection[Any]):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.add_notify_handler(lambda _: None)  # nobody listens, and psycopg would keep what it is told

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **settings: Any) -> T:
        return super().wait(_in_time(gen, boot_time() + SECONDS), *args, **settings)


def _in_time(conversation: Generator[Any, Any, T], deadline: float) -> Generator[Any, Any, T]:
    """psycopg looks at no clock while there is something to read, and comes by here whenever it has waited."""
    try:
        wanted = next(conversation)
        for _ in range(_LOOKS):
            ready = yield wanted
            if boot_time() >= deadline:
                break
            wanted = conversation.send(ready)
        raise psycopg.OperationalError(f"no answer within {SECONDS} s, or none that ends")
    except StopIteration as end:
        result: T = end.value
        return result
