"""The pool of connections: who may have one, and what becomes of it. In virtual time, over simulated streams."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import SimulatedStream, Streams
from holdfast.drivers.world import World
from holdfast.errors import Misuse, Unavailable
from holdfast.stores.kit.members import Members
from holdfast.stores.kit.pool import Connection, Loan, Pool, Unreachable

HERE, THERE = ("here", 1), ("there", 1)


async def serve(stream: SimulatedStream) -> None:
    """Until the client hangs up."""
    try:
        while await stream.receive(float("inf")):
            continue
    except OSError:
        return


class Stage:
    def __init__(self, world: World, room: int) -> None:
        self.world = world
        self.streams = Streams(world)
        self.streams.listen(HERE, Process(world, "server"), serve)
        self.client = Process(world, "client")
        self.pool = Pool(self.client.driver, "X", Members([HERE]), None, room)
        self.most = 0
        self.whole = True  # what is taken back can be lent again
        self.served: list[int] = []

    async def talk(self, number: int, within: float = 60.0, apart: bool = False) -> None:
        loan = Loan()
        try:
            await self.pool.lend(loan, self.client.driver.now() + within, apart=apart)
            self.served.append(number)
            self.most = max(self.most, len(self.pool._lent))
            await self.client.driver.sleep(0.1)
        finally:
            self.pool.take_back(loan, whole=self.whole)


def test_so_many_at_a_time_first_come_first_served_and_nobody_spins() -> None:
    with World(1) as world:
        stage = Stage(world, room=2)

        async def come(number: int) -> None:
            await stage.client.driver.sleep(number / 100)  # it takes up to 4 ms to connect
            await stage.talk(number)

        tasks = [stage.client.spawn(lambda one=number: come(one), f"{number}") for number in range(8)]  # type: ignore[misc]
        for task in tasks:
            world.run(task)
        assert not world.failures
        assert stage.served == list(range(8))
        assert stage.most == 2
        assert stage.streams.opened == 2
        assert world.steps < 400
        assert not stage.pool._lent
        assert not stage.pool._coming


def test_who_is_apart_waits_for_nobody() -> None:
    with World(2) as world:
        stage = Stage(world, room=1)

        async def main() -> None:
            crowd = [stage.client.spawn(lambda: stage.talk(1), "crowd") for _ in range(3)]
            await stage.client.driver.sleep(0.05)
            began = world.time
            await stage.talk(2, apart=True)
            assert world.time - began < 0.15
            for one in crowd:
                await one.join()

        world.run(stage.client.spawn(main, "main"))
        assert not world.failures


def test_who_waits_too_long_for_room_is_told_why() -> None:
    with World(3) as world:
        stage = Stage(world, room=1)

        async def main() -> None:
            first = stage.client.spawn(lambda: stage.talk(1), "first")
            await stage.client.driver.sleep(0.02)
            with pytest.raises(Unavailable, match="X at here:1: 1 requests of this process were before this one"):
                await stage.talk(2, within=0.03)
            await first.join()

        world.run(stage.client.spawn(main, "main"))
        assert not world.failures


def cancelled_at(step: int, seed: int = 4) -> bool:
    """Three come; the second is cancelled at this step of its own. Was there one? Nothing stays lent, all others are served."""
    with World(seed) as world:
        stage = Stage(world, room=1)
        stage.whole = False  # so each has to connect
        first = stage.client.spawn(lambda: stage.talk(1), "first")
        second = stage.client.spawn(lambda: stage.talk(2), "second")
        second.cancel_at_step = step
        third = stage.client.spawn(lambda: stage.talk(3), "third")
        for task in (first, second, third):
            world.run(task)
        assert not world.failures
        assert {1, 3} <= set(stage.served)
        assert not stage.pool._lent
        assert not stage.pool._coming
        return second.cancelled


def test_a_cancellation_at_any_await_leaves_nothing_lent() -> None:
    steps = range(1, 50)
    assert sum(cancelled_at(step) for step in steps) > 2


def forgetful(plain: Callable[..., None]) -> Callable[..., None]:
    def take_back(self: Pool, loan: Loan, *, whole: bool) -> None:
        if loan.connection is not None:
            plain(self, loan, whole=whole)

    return take_back


def test_a_loan_that_got_no_connection_and_is_not_taken_back_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pool, "take_back", forgetful(Pool.take_back))
    with pytest.raises((AssertionError, Unavailable)):
        for step in range(1, 50):
            cancelled_at(step)


def test_a_host_that_refuses_is_passed_over_and_the_next_is_asked_first_from_then_on() -> None:
    with World(5) as world:
        stage = Stage(world, room=1)
        stage.pool = Pool(stage.client.driver, "X", members := Members([THERE, HERE]), None, 1)

        async def main() -> None:
            await stage.talk(1)
            assert [address for address, _ in members.in_turn()] == [HERE, THERE]
            stage.pool.pass_over(HERE)
            assert [address for address, _ in members.in_turn()] == [THERE, HERE]
            assert not stage.pool._idle

        world.run(stage.client.spawn(main, "main"))
        assert not world.failures


def test_where_nobody_listens_every_host_is_named() -> None:
    with World(6) as world:
        stage = Stage(world, room=1)
        stage.pool = Pool(stage.client.driver, "X", Members([THERE, ("elsewhere", 2)]), None, 1)

        async def main() -> None:
            with pytest.raises(Unreachable, match=r"cannot connect to X at there:1: .*; elsewhere:2: "):
                await stage.talk(1)
            assert not stage.pool._lent

        world.run(stage.client.spawn(main, "main"))
        assert not world.failures


def test_closed_by_its_user_it_says_so_to_whoever_asks_and_hangs_up_under_whoever_listens() -> None:
    with World(7) as world:
        stage = Stage(world, room=1)
        told: list[BaseException] = []

        async def listen() -> None:
            loan = Loan()
            try:
                found = await stage.pool.lend(loan, stage.client.driver.now() + 100, apart=True)
                await found.stream.receive(loan.deadline)
            except OSError as error:
                told.append(error)
            finally:
                stage.pool.take_back(loan, whole=False)

        async def main() -> None:
            listener = stage.client.spawn(listen, "listen")
            await stage.client.driver.sleep(1)
            stage.pool.close()
            await listener.join()
            with pytest.raises(Misuse, match="was closed"):
                await stage.talk(1)

        world.run(stage.client.spawn(main, "main"))
        assert not world.failures
        assert len(told) == 1
        assert world.time < 10


class TakenMeanwhile(list[Connection]):
    """Between the look whether there is one and the taking of it, another thread takes all."""

    def pop(self, *_: Any) -> Connection:
        another = Thread(target=self.clear)
        another.start()
        another.join()
        return super().pop()


@pytest.mark.parametrize("what", ["closing", "lending"])
def test_another_thread_may_take_the_last_connection_under_whoever_looked(what: str) -> None:
    with World(8) as world:
        stage = Stage(world, room=1)

        async def main() -> None:
            await stage.talk(1)
            assert len(stage.pool._idle) == 1
            stage.pool._idle = TakenMeanwhile(stage.pool._idle)
            if what == "closing":
                stage.pool.close()
            else:
                await stage.talk(2)

        world.run(stage.client.spawn(main, "main"))
        assert not world.failures
        assert stage.streams.opened == (1 if what == "closing" else 2)


@pytest.mark.parametrize("asked", [False, True], ids=["as it is", "asked"])
def test_a_server_that_speaks_between_two_conversations_is_no_reason_to_hang_up_where_the_store_says_so(
    asked: bool,
) -> None:
    with World(1) as world:
        stage = Stage(world, room=2)
        heard: list[bytes] = []

        async def greet(stream: SimulatedStream) -> None:
            await stream.send(b"ping", float("inf"))
            await serve(stream)

        async def is_over(connection: Connection) -> bool:
            heard.append(await connection.stream.receive(stage.client.driver.now() + 1))
            return connection.stream.is_stale()

        stage.streams.listen(HERE, Process(world, "another"), greet)
        if asked:
            stage.pool = Pool(stage.client.driver, "X", Members([HERE]), None, 2, is_over)

        async def twice() -> None:
            await stage.talk(1)
            await stage.talk(2)

        world.run(stage.client.spawn(twice, "twice"))
        assert not world.failures
        assert (stage.streams.opened, heard) == ((1, [b"ping"]) if asked else (2, []))
