"""Where tasks stand whose event loop was closed under them: they were not cancelled, and never go on.

`loop.run_until_complete(main())`, then `loop.close()`, leaves every other task where it is. What it waits for refers to it, so
the collector never comes for it: its place in line would keep others out, what it holds would be renewed for as long as the
process lives, and whoever closes the connection would wait for it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any

_AWAITED = ("cr_await", "ag_await", "gi_yieldfrom")
_FRAMES = ("cr_frame", "ag_frame", "gi_frame")
# Around a coroutine, or an asynchronous generator, and without a word of which.
_WRAPPERS = ("coroutine_wrapper", "async_generator_asend", "async_generator_athrow", "anext_awaitable")


def end_calls(loop: asyncio.AbstractEventLoop, ours: Callable[[Any], bool]) -> None:
    """What tasks of this loop, which is closed, were in the middle of. `ours` is asked of what a frame calls self, or engine.

    Only that, and nothing of whoever called it: what is his he may still have, and end as he likes.
    """
    for task in asyncio.all_tasks(loop):
        for called in _standing(task):
            if isinstance(called, CoroutineType) and any(ours(one) for one in _selves(called)):
                with suppress(Exception):  # it can wait for nothing any more
                    called.close()
                break


def _standing(task: asyncio.Task[Any]) -> Iterator[Any]:
    """What it awaits, and what that awaits, and so on."""
    at: Any = task.get_coro()
    while at is not None:
        yield at
        at = _awaited(at)


def _awaited(at: Any) -> Any:
    for name in _AWAITED:
        if hasattr(at, name):
            return getattr(at, name)
    if type(at).__name__ in _WRAPPERS or isinstance(at, Coroutine):
        inside = CoroutineType, AsyncGeneratorType, GeneratorType
        return next((one for one in gc.get_referents(at) if isinstance(one, inside)), None)
    return None


def _selves(called: Any) -> list[Any]:
    frame = next((frame for name in _FRAMES if (frame := getattr(called, name, None)) is not None), None)
    return [] if frame is None else [frame.f_locals.get("self"), frame.f_locals.get("engine")]
