"""The simulated driver: same seed, same history; pauses, crashes and cancellations are what they say they are."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from functools import partial

import pytest

from holdfast.asking import Ask
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.base import Driver
from holdfast.drivers.simulated import Process
from holdfast.drivers.world import Cancelled, Stuck, Task, World
from holdfast.engine import Engine
from holdfast.lease import Lease
from holdfast.stores.memory import MemoryStore
from holdfast.testing.simulation import run

_names = itertools.count()
LOCK = Ask("lock", ttl=3.0)


def engine_of(process: Process, space: str) -> Engine:
    return Engine(MemoryStore(process.driver, space), process.driver)


def fresh_space() -> str:
    return f"test-{next(_names)}"


def test_it_is_a_driver() -> None:
    with World(1) as world:
        driver: Driver = Process(world, "a").driver
        assert driver.now() == 0.0


def test_the_same_seed_gives_the_same_history_and_others_differ() -> None:
    histories = [run(seed).history.json_lines() for seed in (1, 1, 2)]
    assert histories[0] == histories[1]
    assert histories[0] != histories[2]


def test_another_interpreter_with_other_hashes_gives_the_same_history() -> None:
    script = "from holdfast.testing.simulation import run; print(run(5).history.json_lines())"
    told = [
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        for seed in ("1", "2")
    ]
    assert told[0].stdout == told[1].stdout
    assert told[0].stdout.decode().strip() == run(5).history.json_lines()


def test_the_seed_chooses_who_runs() -> None:
    def order(seed: int) -> str:
        said: list[str] = []

        async def say(name: str) -> None:
            said.append(name)

        with World(seed) as world:
            process = Process(world, "p")
            tasks = [process.spawn(partial(say, name), name) for name in "abcd"]
            world.run(*tasks)
        return "".join(said)

    assert len({order(seed) for seed in range(200)}) == 24


def test_virtual_hours_pass_at_once_and_in_order() -> None:
    with World(1) as world:
        process = Process(world, "p", ahead=100.0)

        async def main() -> float:
            await process.driver.sleep(3600)
            return process.driver.now()

        task = process.spawn(main, "main")
        world.run(task)
        assert task.result == pytest.approx(3700, abs=0.01)


def test_a_fast_clock_sleeps_less() -> None:
    with World(1) as world:
        process = Process(world, "p", rate=2.0)
        task = process.spawn(lambda: process.driver.sleep(10), "main")
        world.run(task)
        assert world.time == pytest.approx(5, abs=0.01)


def test_a_paused_process_does_not_run_and_finds_its_lease_lost_on_waking() -> None:
    with World(1) as world:
        space = fresh_space()
        slow, other = Process(world, "slow"), Process(world, "other")
        told: list[object] = []

        async def hold() -> None:
            lease = await engine_of(slow, space).acquire(LOCK, None, Lease)
            lease.on_lost(told.append)
            await slow.driver.sleep(1.0)
            assert not lease.held
            await slow.driver.sleep(0.1)

        async def take_over() -> float:
            await other.driver.sleep(0.1)
            await engine_of(other, space).acquire(LOCK, None, Lease)
            return world.time

        holder, successor = slow.spawn(hold, "hold"), other.spawn(take_over, "take over")
        world.at(0.5, lambda: slow.pause(5.0))
        world.run(successor)
        assert successor.result == pytest.approx(3.0, abs=0.1)
        assert not told, "it cannot have been told while it was paused"
        world.run(holder)
        assert len(told) == 1
        assert world.time == pytest.approx(5.6, abs=0.1)


def test_a_crash_runs_no_cleanup_and_its_bells_are_gone() -> None:
    with World(1) as world:
        process, other = Process(world, "p"), Process(world, "other")
        cleaned: list[str] = []
        bell = process.driver.doorbell()

        async def main() -> None:
            try:
                await bell.wait(100)
            finally:
                cleaned.append("up")

        task = process.spawn(main, "main")
        world.at(1.0, process.crash)
        assert other.driver.ring(bell.address) is True
        bell._rung = False
        world.run(task)
        world.run_until(200)
        assert not cleaned
        assert other.driver.ring(bell.address) is False
        assert bell.ring() is False


def test_a_shield_holds_a_cancellation_off() -> None:
    with World(1) as world:
        process = Process(world, "p")
        done: list[str] = []

        async def slowly() -> None:
            await process.driver.sleep(1.0)
            done.append("shielded")

        async def main() -> None:
            await process.driver.shield(slowly)
            done.append("not reached")

        task = process.spawn(main, "main")
        world.at(0.5, task.cancel)
        world.run(task)
        assert done == ["shielded"]
        assert task.cancelled


def test_a_run_that_cannot_go_on_says_who_waits_for_what() -> None:
    with World(1) as world:
        process = Process(world, "p")

        async def main() -> None:
            await world.park("Godot")

        task = process.spawn(main, "vladimir")
        with pytest.raises(Stuck, match="p/vladimir waits for Godot"):
            world.run(task)


def test_a_run_that_does_not_end_is_ended() -> None:
    async def spin(process: Process) -> None:
        while True:
            await process.driver.sleep(0)

    with World(1, max_steps=1000) as world:
        process = Process(world, "p")
        task = process.spawn(lambda: spin(process), "spin")
        with pytest.raises(Stuck, match="1000 steps were not enough"):
            world.run(task)
    with World(1, max_time=10) as world:
        process = Process(world, "p")
        task = process.spawn(lambda: process.driver.sleep(11), "sleep")
        with pytest.raises(Stuck, match="10 virtual seconds are over"):
            world.run(task)


def test_an_error_of_a_task_comes_out_of_run() -> None:
    async def fail() -> None:
        raise ValueError("as expected")

    with World(1) as world:
        task = Process(world, "p").spawn(fail, "fail")
        with pytest.raises(ValueError, match="as expected"):
            world.run(task)


def _contended(seed: int, cancel_at: int) -> Task:
    """A holder, and a second client that waits, works and releases, cancelled at one of its awaits: nothing may be left."""
    with World(seed) as world:
        space = fresh_space()
        first, second = Process(world, "first"), Process(world, "second")
        engine = engine_of(second, space)

        async def hold() -> None:
            holding = engine_of(first, space)
            lease = await holding.acquire(LOCK, None, Lease)
            await first.driver.sleep(1.5)
            await holding.release(lease)

        async def visit() -> None:
            await second.driver.sleep(0.5)
            lease = await engine.acquire(LOCK, None, Lease)
            try:
                await second.driver.sleep(0.5)
            finally:
                await engine.release(lease)

        holder, visitor = first.spawn(hold, "hold"), second.spawn(visit, "visit")
        visitor.cancel_at_step = cancel_at
        world.run(holder, visitor)
        assert not engine.renewer.leases()

        async def enter_at_once() -> Grant:
            answer = await MemoryStore(first.driver, space).claim(Claim("lock", new_holder(), "", 1.0, queue=False))
            assert isinstance(answer, Grant), "a ghost was left behind"
            return answer

        world.run(first.spawn(enter_at_once, "look"))
        return visitor


def test_cancelled_at_any_await_it_leaves_nothing_behind() -> None:
    cancelled = 0
    for cancel_at in itertools.count(1):
        visitor = _contended(1, cancel_at)
        cancelled += visitor.cancelled
        if visitor.steps < cancel_at:
            break
    assert cancelled >= 4


def test_cancelled_is_not_an_exception_that_could_be_swallowed() -> None:
    assert not issubclass(Cancelled, Exception)
