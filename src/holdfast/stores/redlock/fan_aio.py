"""One question to all nodes at once, for all tasks of a loop: one shared connection a node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ...errors import HoldfastError
from ..redis.replies import Reply
from ..redis.url import Target
from ..redis.wire_aio import AioWire
from .fan import Enough

_REST = 1.0  # a node that could not be reached is left alone for so long


class AioFan:
    def __init__(self, target: Target) -> None:
        targets = [target._replace(kind="redis", addresses=(address,)) for address in target.addresses]
        self._wires = [AioWire(one) for one in targets]
        self._renewals = [AioWire(one) for one in targets]
        self._rests_until: dict[AioWire, float] = {}
        self._late: set[asyncio.Task[Reply]] = set()
        self.trouble: list[HoldfastError | None] = [None] * len(targets)

    async def ask(self, request: bytes, enough: Enough, within: float) -> list[Reply]:
        return await self._ask(self._wires, request, enough, within)

    async def ask_apart(self, request: bytes, enough: Enough, within: float) -> list[Reply]:
        return await self._ask(self._renewals, request, enough, within)

    async def _ask(self, wires: Sequence[AioWire], request: bytes, enough: Enough, within: float) -> list[Reply]:
        loop = asyncio.get_running_loop()
        answers: list[Reply] = [None] * len(wires)
        open_ = len(wires)
        done = loop.create_future()

        def answered(index: int, future: asyncio.Future[Reply]) -> None:
            nonlocal open_
            open_ -= 1
            error = None if future.cancelled() else future.exception()
            if isinstance(error, HoldfastError):
                self.trouble[index] = error
                self._rests_until[wires[index]] = loop.time() + _REST
            elif error is None and not future.cancelled() and not done.done():
                answers[index] = future.result()
            if not done.done() and (open_ == 0 or enough(answers)):
                done.set_result(None)

        def too_late() -> None:
            if not done.done():
                done.set_result(None)

        for index, wire in enumerate(wires):
            pipe = wire.ready()
            if pipe is None and loop.time() < self._rests_until.get(wire, 0.0):
                open_ -= 1
                continue
            if pipe is not None:
                future: asyncio.Future[Reply] = pipe.ask(request)
            else:
                future = task = loop.create_task(wire.ask_anew(request))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
            future.add_done_callback(partial(answered, index))
        if open_ > 0:
            timer = loop.call_later(within, too_late)
            try:
                await done
            finally:
                timer.cancel()
        return answers

    def forked(self) -> None:
        for wire in (*self._wires, *self._renewals):
            wire.forked()
        self._late = set()
        self._rests_until = {}

    async def close(self) -> None:
        for task in self._late:
            task.cancel()
        for wire in (*self._wires, *self._renewals):
            await wire.close()
