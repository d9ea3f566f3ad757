"""Who sleeps until the first deadline, and who tries again. In virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from holdfast.drivers.aio import Asyncio
from holdfast.drivers.simulated import Process
from holdfast.drivers.threads import Threads
from holdfast.drivers.world import World
from holdfast.errors import Unavailable
from holdfast.stores.kit.again import again
from holdfast.stores.kit.alarm import NEVER, Alarm
from holdfast.stores.kit.pool import Unreachable

SOON = 20.0


class Work:
    """Deadlines, and when each was seen to."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.deadlines: list[float] = []
        self.done: list[tuple[float, float]] = []
        self.rounds = 0
        self.finished: asyncio.Event | None = None

    def due(self) -> float:
        return min(self.deadlines, default=NEVER)

    async def work(self) -> None:
        self.rounds += 1
        for deadline in [one for one in self.deadlines if one <= self._now()]:
            self.deadlines.remove(deadline)
            self.done.append((deadline, self._now()))
            if self.finished is not None:
                self.finished.set()


def stage(world: World, idle: float = 30.0) -> tuple[Process, Work, Alarm]:
    process = Process(world, "client")
    work = Work(process.driver.now)
    return process, work, Alarm(process.driver, "alarm", idle, work.due, work.work)


def test_each_deadline_is_seen_to_when_it_comes_and_nobody_looks_in_between() -> None:
    with World(1) as world:
        process, work, alarm = stage(world)

        async def main() -> None:
            began = process.driver.now()
            for after in (20.0, 5.0, 10.0):  # an earlier one, after a later one
                work.deadlines.append(began + after)
                alarm.expect(began + after)
                await process.driver.sleep(1.0)
            await process.driver.sleep(25.0)
            assert [deadline - began for deadline, _ in work.done] == [5.0, 10.0, 20.0]
            assert all(at - deadline < 0.01 for deadline, at in work.done)
            assert work.rounds <= 8
            alarm.close()

        world.run(process.spawn(main, "main"))
        assert not world.failures


def test_it_goes_home_when_there_is_nothing_to_do_and_comes_again() -> None:
    with World(2) as world:
        process, work, alarm = stage(world, idle=3.0)
        gone: list[float] = []

        async def at_home() -> None:
            gone.append(process.driver.now())

        async def main() -> None:
            alarm.at_home = at_home
            for count in (1, 2):
                deadline = process.driver.now() + 1.0
                work.deadlines.append(deadline)
                alarm.expect(deadline)
                await process.driver.sleep(10.0)
                assert len(work.done) == len(gone) == count
                assert alarm._bell is None

        world.run(process.spawn(main, "main"))
        assert not world.failures


def test_what_comes_while_it_looks_is_not_slept_through() -> None:
    """Between its look at the deadlines and its sleep, another thread comes, and finds that it would be woken in time."""
    driver = Threads()
    done, looked = threading.Event(), threading.Event()
    deadlines: list[float] = [driver.now() + 0.01]

    def due() -> float:
        found = min(deadlines, default=NEVER)
        if not deadlines and not looked.is_set():  # the rest of the world is quicker than we
            looked.set()
            deadlines.append(driver.now() + 0.05)
            threading.Thread(target=lambda: alarm.expect(deadlines[0]), daemon=True).start()
            threading.Event().wait(0.1)
        return found

    async def work() -> None:
        for one in [one for one in deadlines if one <= driver.now()]:
            deadlines.remove(one)
            if looked.is_set():
                done.set()

    alarm = Alarm(driver, "alarm", 60.0, due, work)
    alarm.expect(deadlines[0])
    try:
        assert done.wait(SOON), "it sleeps"
    finally:
        alarm.close()


def test_one_whose_event_loop_was_closed_is_replaced() -> None:
    driver = Asyncio()
    work = Work(driver.now)
    alarm = Alarm(driver, "alarm", 60.0, work.due, work.work)

    async def expect(after: float) -> None:
        work.deadlines.append(driver.now() + after)
        alarm.expect(work.deadlines[-1])
        await asyncio.sleep(0)

    async def second() -> None:
        work.finished = asyncio.Event()
        await expect(0.02)
        await asyncio.wait_for(work.finished.wait(), SOON)

    asyncio.run(expect(30.0))
    asyncio.run(second())
    alarm.close()


def test_one_whose_event_loop_stands_still_is_replaced_and_goes_home_when_that_goes_on() -> None:
    driver = Asyncio()
    work = Work(driver.now)
    alarm = Alarm(driver, "alarm", 60.0, work.due, work.work)
    gone: list[str] = []

    async def at_home() -> None:
        gone.append("home")

    async def begin() -> None:
        alarm.at_home = at_home
        work.deadlines.append(
            driver.now() + 0.3
        )  # sooner than what is expected in the other loop: that one need not ring
        alarm.expect(work.deadlines[-1])
        await asyncio.sleep(0)

    async def beside() -> None:
        work.finished = asyncio.Event()
        work.deadlines.append(driver.now() + 0.5)
        alarm.expect(work.deadlines[-1])
        while len(work.done) < 2:
            await asyncio.wait_for(work.finished.wait(), SOON)
            work.finished.clear()

    async def again() -> int:
        while len(driver._background) > 1:  # noqa: ASYNC110 - nobody says so
            await asyncio.sleep(0.01)
        return len(driver._background)

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(begin())
    second.run_until_complete(beside())
    assert first.run_until_complete(asyncio.wait_for(again(), SOON)) == 1
    assert gone == [], "what it does last is for whoever has taken over"
    alarm.close()
    second.run_until_complete(asyncio.sleep(0.05))
    first.close()
    second.close()


# ---- again


def trying(world: World, answers: list[Exception | str], within: float = 1.0) -> tuple[list[float], object]:
    process = Process(world, "client")
    tries: list[float] = []
    outcome: list[object] = []

    async def attempt() -> str:
        tries.append(world.time)
        answer = answers.pop(0) if answers else Unavailable("still")
        await process.driver.sleep(0.01)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main() -> None:
        deadline = process.driver.now() + within
        try:
            outcome.append(await again(process.driver, Unavailable("first"), deadline, attempt))
        except Unavailable as error:
            outcome.append(error)

    world.run(process.spawn(main, "main"))
    assert not world.failures
    return tries, outcome[0]


def test_what_was_not_answered_is_tried_at_once_and_then_after_a_moment() -> None:
    with World(3) as world:
        tries, outcome = trying(world, [Unavailable("second"), Unavailable("third"), "done"])
    assert outcome == "done"
    assert tries[0] < 0.001
    assert len(tries) == 3


def test_when_time_runs_out_it_is_told_what_was_wrong_before_that() -> None:
    with World(4) as world:
        tries, outcome = trying(world, [Unavailable("the leader is gone"), Unavailable("no time")], within=0.005)
    assert len(tries) == 1
    assert str(outcome) == "first"


@pytest.mark.parametrize("seed", range(5))
def test_it_does_not_go_on_past_its_deadline(seed: int) -> None:
    with World(seed) as world:
        tries, outcome = trying(world, [])
        assert isinstance(outcome, Unavailable)
        assert world.time < 1.02
        assert 5 < len(tries) < 100


def test_nobody_is_asked_again_where_nobody_can_be_reached() -> None:
    with World(6) as world:
        tries, outcome = trying(world, [Unreachable("refused"), "done"])
    assert isinstance(outcome, Unreachable)
    assert len(tries) == 1


def test_that_there_was_no_time_left_to_connect_is_not_told_instead_of_what_was_wrong() -> None:
    """An address at which something else answers, say."""
    with World(7) as world:
        tries, outcome = trying(world, [Unreachable("no time was left")], within=0.005)
    assert len(tries) == 1
    assert str(outcome) == "first"
