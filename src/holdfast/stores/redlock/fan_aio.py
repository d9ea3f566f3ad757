"""One question to all nodes at once, for all tasks of a loop: one shared connection a node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ...errors import HoldfastError
from ..redis.connection import Disconnected
from ..redis.replies import Reply
from ..redis.url import Target
from ..redis.wire_aio import AioWire
from .fan import REST, Enough


class AioFan:
    def __init__(self, target: Target) -> None:
        targets = [target._replace(kind="redis", addresses=(address,)) for address in target.addresses]
        self._wires = [AioWire(one) for one in targets]
        self._renewals = [AioWire(one) for one in targets]
        self._rests_until: dict[AioWire, float] = {}
        self._late: set[asyncio.Task[Reply]] = set()
        self.trouble: list[HoldfastError | None] = [None] * len(targets)

    async def ask(self, request: bytes, enough: Enough, within: float, *, everybody: bool = False) -> list[Reply]:
        return await self._ask(self._wires, request, enough, within, everybody=everybody)

    async def ask_apart(self, request: bytes, enough: Enough, within: float) -> list[Reply]:
        return await self._ask(self._renewals, request, enough, within, everybody=False)

    async def _ask(
        self, wires: Sequence[AioWire], request: bytes, enough: Enough, within: float, *, everybody: bool
    ) -> list[Reply]:
        loop = asyncio.get_running_loop()
        answers: list[Reply] = [None] * len(wires)
        open_ = 0
        resting: list[int] = []
        done = loop.create_future()

        def anew(index: int) -> asyncio.Future[Reply]:
            task = loop.create_task(wires[index].ask_once(request, within))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return task

        def begin(index: int, future: asyncio.Future[Reply], *, again: bool) -> None:
            nonlocal open_
            open_ += 1
            future.add_done_callback(partial(answered, index, again))

        def answered(index: int, again: bool, future: asyncio.Future[Reply]) -> None:
            nonlocal open_, resting
            open_ -= 1
            error = None if future.cancelled() else future.exception()
            if isinstance(error, HoldfastError):
                self.trouble[index] = error
                if isinstance(error, Disconnected) and not again and not done.done():
                    begin(index, anew(index), again=True)  # a healthy node hangs up, too: once more, on a new one
                    return
                self._rests_until[wires[index]] = loop.time() + REST
            elif error is None and not future.cancelled() and not done.done():
                answers[index] = future.result()
                self.trouble[index] = None
            if not done.done():
                wake_if_few()
            if not done.done() and (open_ == 0 or enough(answers)):
                done.set_result(None)

        def wake_if_few() -> None:
            """Without those who rest, there may be no majority."""
            nonlocal resting
            if resting and 2 * (open_ + len(wires) - answers.count(None)) <= len(wires):
                some, resting = resting, []
                for index in some:
                    begin(index, anew(index), again=True)

        def too_late() -> None:
            if not done.done():
                done.set_result(None)

        for index, wire in enumerate(wires):
            pipe = wire.ready()
            if pipe is not None:
                begin(index, pipe.ask(request), again=False)
            elif not everybody and loop.time() < self._rests_until.get(wire, 0.0):
                resting.append(index)
            else:
                begin(index, anew(index), again=True)
        wake_if_few()
        if open_ > 0:
            timer = loop.call_later(within, too_late)
            try:
                await done
            finally:
                timer.cancel()
                if not done.done():
                    done.cancel()
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
