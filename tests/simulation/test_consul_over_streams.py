"""The real client of Consul, from the engine down to its bytes, over simulated streams that delay, split and cut."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from holdfast.asking import Ask
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import ROUGH_STREAMS, SimulatedStream, StreamFaults, Streams
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, Misuse, Unavailable
from holdfast.lease import Lease
from holdfast.stores.consul import open_store
from holdfast.stores.kit.pool import Loan, Pool

from .scripted_consul import ScriptedConsul

ADDRESS = ("consul", 8500)
LOCK = Ask("lock", ttl=10.0)


class Outcome(NamedTuple):
    steps: int
    tokens: list[int]
    worst: int  # how many were inside at once
    cuts: int
    connections: int


def contend(seed: int, faults: StreamFaults, clients: int = 3, times: int = 4) -> Outcome:
    """Each takes the same lock several times; holders write down who is inside."""
    inside: set[str] = set()
    tokens: list[int] = []
    worst = 0
    with World(seed) as world:
        streams = Streams(world, faults)
        ScriptedConsul(Process(world, "server"), streams, ADDRESS)

        async def work(process: Process) -> None:
            nonlocal worst
            engine = Engine(open_store("consul://consul", process.driver), process.driver)
            for _ in range(times):
                try:
                    lease = await engine.acquire(LOCK, 200, Lease)
                except Unavailable:
                    continue
                tokens.append(lease.token)
                inside.add(process.name)
                worst = max(worst, len(inside))
                await process.driver.sleep(world.random.uniform(0, 0.05))
                inside.discard(process.name)
                try:
                    await engine.release(lease)
                except HoldfastError:
                    continue  # in the background it goes on
            await engine.close()

        tasks = []
        for number in range(clients):
            process = Process(world, f"client{number}")
            tasks.append(process.spawn(lambda process=process: work(process), "work"))  # type: ignore[misc]
        for task in tasks:
            world.run(task)
        return Outcome(world.steps, tokens, worst, streams.cuts, streams.opened)


def test_clients_take_turns_over_calm_streams_and_every_token_is_greater_than_the_last() -> None:
    found = contend(1, StreamFaults())
    assert len(found.tokens) == 12
    assert found.tokens == sorted(set(found.tokens))
    assert found.worst == 1


@pytest.mark.parametrize("seed", range(12))
def test_bytes_that_are_late_split_or_cut_off_let_no_two_in(seed: int) -> None:
    found = contend(seed, ROUGH_STREAMS)
    assert found.tokens == sorted(set(found.tokens))
    assert found.tokens
    assert found.worst == 1


def test_rough_streams_do_cut_connections() -> None:
    assert sum(contend(seed, ROUGH_STREAMS).cuts for seed in range(3)) > 5


def test_the_same_seed_gives_the_same_run() -> None:
    assert contend(7, ROUGH_STREAMS) == contend(7, ROUGH_STREAMS)
    assert contend(7, ROUGH_STREAMS) != contend(8, ROUGH_STREAMS)


def test_a_connection_that_was_cut_while_it_lay_idle_is_replaced() -> None:
    with World(3) as world:
        streams = Streams(world)
        ScriptedConsul(Process(world, "server"), streams, ADDRESS)
        client = Process(world, "client")
        store = open_store("consul://consul", client.driver)

        async def work() -> None:
            mine = Claim("x", new_holder(), "somebody", 10.0)
            assert isinstance(await store.claim(mine), Grant)
            streams.cut_all()
            assert await store.release(mine)

        world.run(client.spawn(work, "work"))
        assert not world.failures
        assert streams.opened == 2


def test_a_silent_host_is_passed_over_in_time() -> None:
    with World(4) as world:
        streams = Streams(world)
        ScriptedConsul(Process(world, "server"), streams, ADDRESS)
        streams.silence(("silent", 8500))
        client = Process(world, "client")
        store = open_store("consul://silent,consul", client.driver)

        async def work() -> None:
            began = client.driver.now()
            assert isinstance(await store.claim(Claim("x", new_holder(), "somebody", 10.0), 4.0), Grant)
            assert client.driver.now() - began < 4.0

        world.run(client.spawn(work, "work"))
        assert not world.failures


def a_crashed_holder_is_replaced(seed: int) -> None:
    with World(seed) as world:
        streams = Streams(world)
        consul = ScriptedConsul(Process(world, "server"), streams, ADDRESS)
        first, second = Process(world, "first"), Process(world, "second")
        told: list[Grant | Place] = []

        async def hold() -> None:
            store = open_store("consul://consul", first.driver)
            told.append(await store.claim(Claim("x", new_holder(), "first", 10.0)))

        async def wait() -> None:
            store = open_store("consul://consul", second.driver)
            mine = Claim("x", new_holder(), "second", 10.0)
            while isinstance(place := await store.claim(mine), Place):
                await store.wait(place, 5.0)
                assert second.driver.now() < 100
            told.append(place)

        world.run(first.spawn(hold, "hold"))
        first.crash()
        world.run(second.spawn(wait, "wait"))
        assert not world.failures
        before, after = told
        assert isinstance(before, Grant)
        assert isinstance(after, Grant)
        assert after.token > before.token
        assert len(consul.sessions) == 1


def test_a_holder_that_crashed_is_replaced_when_its_session_ends() -> None:
    a_crashed_holder_is_replaced(5)


LATE = StreamFaults(slow=0.05, slow_by=(3.0, 8.0))  # longer than anybody waits for an answer


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "with the mistake"])
def test_a_connection_whose_answer_is_still_to_come_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch, mistaken: bool
) -> None:
    """The mistake of redis-py, CVE-2023-28859: the next to ask is given the answer to another question."""
    plain = Pool.take_back

    def always_whole(self: Pool, loan: Loan, *, whole: bool) -> None:
        plain(self, loan, whole=True)

    if mistaken:
        monkeypatch.setattr(Pool, "take_back", always_whole)
        monkeypatch.setattr(SimulatedStream, "is_stale", lambda self: False)

    def is_right(seed: int) -> bool:
        try:
            found = contend(seed, LATE)
        except Misuse:
            return False  # "the key … is not holdfast's": it was the answer to another question
        return found.tokens == sorted(set(found.tokens)) and found.worst == 1

    assert all(map(is_right, range(30))) is not mistaken
