"""The real client of Redis, from the engine down to its bytes, over simulated streams that delay, split and cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from holdfast.asking import Ask
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import ROUGH_STREAMS, SimulatedStream, StreamFaults, Streams
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, Unavailable
from holdfast.lease import Lease
from holdfast.stores.redis import open_store
from holdfast.stores.redis.replies import Reply
from holdfast.stores.redis.stream_wire import StreamWire

from .scripted_redis import ScriptedRedis

ADDRESS = ("redis", 6379)
LOCK = Ask("lock", ttl=10.0)


class Outcome(NamedTuple):
    steps: int
    tokens: list[int]
    worst: int  # how many were inside at once
    cuts: int
    left: int  # who is inside, or in line, when all have closed


def contend(seed: int, faults: StreamFaults, clients: int = 3, times: int = 4, flushed: bool = False) -> Outcome:
    """Each takes the same lock several times; holders write down who is inside."""
    inside: set[str] = set()
    tokens: list[int] = []
    worst = 0
    with World(seed) as world:
        streams = Streams(world, faults)
        redis = ScriptedRedis(Process(world, "server"), streams, ADDRESS)

        async def work(process: Process) -> None:
            nonlocal worst
            engine = Engine(open_store("redis://redis", process.driver), process.driver)
            for _ in range(times):
                try:
                    lease = await engine.acquire(LOCK, 200, Lease)
                except Unavailable:
                    continue
                tokens.append(lease.token)
                inside.add(process.name)
                worst = max(worst, len(inside))
                await process.driver.sleep(world.random.uniform(0, 0.05))
                if flushed:
                    redis.forget_scripts()
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
        left = sum(len(name.inside) + len(name.line) for name in redis.names.values())
        return Outcome(world.steps, tokens, worst, streams.cuts, left)


@pytest.mark.parametrize("flushed", [False, True], ids=["", "scripts are forgotten"])
def test_clients_take_turns_over_calm_streams_and_every_token_is_greater_than_the_last(flushed: bool) -> None:
    found = contend(1, StreamFaults(), flushed=flushed)
    assert len(found.tokens) == 12
    assert found.tokens == sorted(set(found.tokens))
    assert found.worst == 1
    assert found.left == 0


@pytest.mark.parametrize("seed", range(12))
def test_bytes_that_are_late_split_or_cut_off_let_no_two_in(seed: int) -> None:
    found = contend(seed, ROUGH_STREAMS, flushed=seed % 2 == 0)
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
        ScriptedRedis(Process(world, "server"), streams, ADDRESS)
        client = Process(world, "client")
        store = open_store("redis://redis", client.driver)

        async def work() -> None:
            mine = Claim("x", new_holder(), "somebody", 10.0)
            grant = await store.claim(mine)
            assert isinstance(grant, Grant)
            streams.cut_all()
            assert list(await store.renew([grant], 1.0)) == [grant]
            assert await store.release(mine)

        world.run(client.spawn(work, "work"))
        assert not world.failures
        assert streams.opened == 2


LATE = StreamFaults(slow=0.05, slow_by=(3.0, 8.0))  # longer than anybody waits for an answer


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "with the mistake"])
def test_a_connection_whose_answer_is_still_to_come_is_not_used_again(
    monkeypatch: pytest.MonkeyPatch, mistaken: bool
) -> None:
    """The mistake of redis-py, CVE-2023-28859: the next to ask is given the answer to another question."""
    plain = StreamWire._converse

    async def kept(self: StreamWire, requests: Sequence[bytes], within: float) -> list[Reply]:
        before = list(self._idle)
        try:
            return await plain(self, requests, within)
        except Unavailable:
            self._idle += [one for one in before if one not in self._idle]  # also the one that owes an answer
            raise

    if mistaken:
        monkeypatch.setattr(StreamWire, "_converse", kept)
        monkeypatch.setattr(SimulatedStream, "close", lambda self: None)
        monkeypatch.setattr(SimulatedStream, "is_stale", lambda self: False)
    found = [contend(seed, LATE) for seed in range(6)]
    right = all(one.tokens == sorted(set(one.tokens)) and one.worst == 1 for one in found)
    assert right is not mistaken
