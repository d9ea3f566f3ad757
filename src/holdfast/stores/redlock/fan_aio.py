"""One question to all nodes at once, for all tasks of a loop: one shared connection a node."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from ...claim import ROUND
from ...errors import HoldfastError
from ..redis.connection import Disconnected
from ..redis.replies import Reply
from ..redis.url import Target
from ..redis.wire_aio import AioWire
from .answers import Question, are_few
from .node import LAST, REST


class AioFan:
    def __init__(self, target: Target) -> None:
        # What is late is still an answer, and a connection that is slow is kept: those who ask have deadlines of their own.
        patient = target._replace(kind="redis", timeout=max(target.timeout, ROUND))
        targets = [patient._replace(addresses=(address,)) for address in target.addresses]
        self._wires = [AioWire(one) for one in targets]
        self._renewals = [AioWire(one) for one in targets]
        self._rests_until: dict[AioWire, float] = {}
        self._slow_until: dict[AioWire, float] = {}  # others do not wait for it, if they can do without
        self._late: set[asyncio.Task[Reply]] = set()
        self._leaving: set[asyncio.Future[Reply]] = set()  # answers that are still wanted, though nobody waits for them
        self.trouble: list[HoldfastError | None] = [None] * len(targets)

    async def ask(self, question: Question, share: float, within: float) -> list[Reply]:
        return await self._ask(self._wires, question, share, within)

    async def ask_apart(self, question: Question, share: float, within: float) -> list[Reply]:
        return await self._ask(self._renewals, question, share, within)

    async def _ask(self, wires: Sequence[AioWire], question: Question, share: float, within: float) -> list[Reply]:
        request, _, enough, _, leaving = question
        loop = asyncio.get_running_loop()
        answers: list[Reply] = [None] * len(wires)
        pending: set[int] = set()
        resting: list[int] = []
        repeated: set[int] = set()
        overdue = False  # a majority is waited for, the rest only for its share of the time
        done = loop.create_future()

        def anew(index: int) -> asyncio.Future[Reply]:
            task = loop.create_task(wires[index].ask_once(request, max(share, within)))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            return task

        def begin(index: int, future: asyncio.Future[Reply], *, again: bool) -> None:
            pending.add(index)
            future.add_done_callback(partial(answered, index, again))
            if leaving:
                self._leaving.add(future)
                future.add_done_callback(self._leaving.discard)

        def answered(index: int, again: bool, future: asyncio.Future[Reply]) -> None:
            pending.discard(index)
            error = None if future.cancelled() else future.exception()
            if isinstance(error, HoldfastError):
                self.trouble[index] = error
                if isinstance(error, Disconnected) and not again and not done.done():
                    repeated.add(index)
                    begin(index, anew(index), again=True)  # a healthy node hangs up, too: once more, on a new one
                    return
                self._rests_until[wires[index]] = loop.time() + REST
            elif error is None and not future.cancelled() and (leaving or not done.done()):
                answers[index] = answer = question.understood(future.result(), wires[index].where)
                self.trouble[index] = answer if isinstance(answer, HoldfastError) else None
                if leaving and index in repeated and answers[index] == 0:
                    answers[index] = 1  # not there any more: since the first one arrived, as far as anybody can tell
            if not done.done():
                wake_if_few()
            if not done.done() and (not pending or enough(answers) or not (are_few(answers) or worth_waiting())):
                done.set_result(None)

        def worth_waiting() -> bool:
            return not overdue and any(loop.time() >= self._slow_until.get(wires[at], 0.0) for at in pending)

        def wake_if_few() -> None:
            """Without those who rest, there may be no majority."""
            nonlocal resting
            if resting and are_few(answers, len(pending)):
                some, resting = resting, []
                for index in some:
                    begin(index, anew(index), again=True)

        def late() -> None:
            nonlocal overdue
            overdue = True
            self._slow_until.update({wires[at]: loop.time() + REST for at in pending})
            if not are_few(answers):
                too_late()

        def too_late() -> None:
            if not done.done():
                done.set_result(None)

        for index, wire in enumerate(wires):
            pipe = wire.ready()
            if pipe is not None:
                begin(index, pipe.ask(request), again=False)
            elif not leaving and loop.time() < self._rests_until.get(wire, 0.0):
                resting.append(index)
            else:
                begin(index, anew(index), again=True)
        wake_if_few()
        if pending:
            timers = loop.call_later(share, late), loop.call_later(max(share, within), too_late)
            try:
                await done
            finally:
                for timer in timers:
                    timer.cancel()
                if not done.done():
                    done.cancel()
        return answers

    async def settle(self) -> None:
        """Nothing to do: the loop reads whatever comes."""

    def forked(self) -> None:
        for wire in (*self._wires, *self._renewals):
            wire.forked()
        self._leaving = set()
        self._late = set()
        self._rests_until = {}
        self._slow_until = {}

    async def close(self) -> None:
        loop = asyncio.get_running_loop()  # what a loop that is over was about to answer will not come
        if leaving := [answer for answer in self._leaving if answer.get_loop() is loop]:
            await asyncio.wait(leaving, timeout=LAST)
        for task in [task for task in self._late if task.get_loop() is loop]:
            task.cancel()
        for wire in (*self._wires, *self._renewals):
            await wire.close()
