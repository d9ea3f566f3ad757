"""Which errors mean "nothing happened, try the whole transaction again", in every driver."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, overload

from ..databases.failures import collided, was_busy
from ..drivers.base import uniform
from ..errors import Misuse, Unavailable

W = TypeVar("W", bound=Callable[..., Any])

_LONGEST_PAUSE = 1.0


def is_conflict(error: BaseException) -> bool:
    """Was the transaction undone because of another one, so that running it again may succeed?"""
    return collided(error) or was_busy(error)


@overload
def retrying(work: W, /) -> W: ...
@overload
def retrying(*, attempts: int = 10, pause: float = 0.01) -> Callable[[W], W]: ...


def retrying(work: W | None = None, /, *, attempts: int = 10, pause: float = 0.01) -> W | Callable[[W], W]:
    """A function that runs a whole transaction, from its begin to its commit, and is run again when the database undid it
    because of another one: a deadlock, or a serialisation failure. The pauses between are random and grow.

    With the last attempt it raises Unavailable, whose cause is the database's error. Any other error comes through at once.
    """
    if type(attempts) is not int or attempts < 1:
        raise Misuse(f"attempts must be a whole number from 1, not {attempts!r:.80}")

    def wrap(work: W) -> W:
        name = getattr(work, "__qualname__", "the transaction")

        def pause_after(attempt: int, error: Exception) -> float:
            if not is_conflict(error):
                raise error
            if attempt == attempts:
                raise Unavailable(
                    f"{name} was undone {attempts} times because of other transactions: are many of them long, or do they take "
                    "their locks in different orders?"
                ) from error
            return uniform(0, min(pause * 2**attempt, _LONGEST_PAUSE))

        if inspect.iscoroutinefunction(work):

            @wraps(work)
            async def run_async(*args: Any, **more: Any) -> Any:
                for attempt in range(1, attempts + 1):
                    try:
                        return await work(*args, **more)
                    except Exception as error:
                        seconds = pause_after(attempt, error)
                    await asyncio.sleep(seconds)
                raise AssertionError("the last attempt returns or raises")

            return run_async  # type: ignore[return-value]

        @wraps(work)
        def run(*args: Any, **more: Any) -> Any:
            for attempt in range(1, attempts + 1):
                try:
                    return work(*args, **more)
                except Exception as error:
                    seconds = pause_after(attempt, error)
                time.sleep(seconds)
            raise AssertionError("the last attempt returns or raises")

        return run  # type: ignore[return-value]

    return wrap if work is None else wrap(work)
