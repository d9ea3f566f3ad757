"""The real client of etcd, from the engine down to its bytes, over simulated streams that delay, split and cut."""

from __future__ import annotations

from typing import NamedTuple
from uuid import uuid4

import pytest

from holdfast.asking import Ask
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import ROUGH_STREAMS, StreamFaults, Streams
from holdfast.drivers.world import World
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, Unavailable
from holdfast.lease import Lease
from holdfast.stores.etcd import open_store
from holdfast.stores.etcd.gather import Gatherer

from . import over_streams
from .over_streams import Service
from .scripted_etcd import ScriptedEtcd

ETCD = Service("etcd://etcd", open_store, lambda process, streams: ScriptedEtcd(process, streams, ("etcd", 2379)))


class Outcome(NamedTuple):
    steps: int
    tokens: list[int]  # in the order of entering
    worst: int  # how many were inside at once
    cuts: int
    connections: int
    largest: int  # how many transactions were sent as one
    left: int  # keys of those inside or in line, when all had gone


def contend(seed: int, faults: StreamFaults, clients: int = 2, ttl: float = 10.0, tasks: str = "abc") -> Outcome:
    """Some tasks of each process take one lock of all, and one of their own, twice; holders write down who is inside."""
    inside: dict[str, Lease] = {}
    tokens: list[int] = []
    worst = 0
    with World(seed) as world:
        streams = Streams(world, faults)
        etcd = ETCD.serve(Process(world, "server"), streams)

        async def work(process: Process, engine: Engine, who: str) -> None:
            nonlocal worst
            for _ in range(2):
                for name in ("lock", who) if who.endswith("a") else (who, "lock"):
                    try:
                        lease = await engine.acquire(Ask(name, ttl), 200, Lease)
                    except Unavailable:
                        continue
                    if name == "lock":
                        tokens.append(lease.token)
                        inside[who] = lease
                        worst = max(worst, sum(one.held for one in inside.values()))
                    await process.driver.sleep(world.random.uniform(0, 0.05))
                    inside.pop(who, None)
                    try:
                        await engine.release(lease)
                    except HoldfastError:
                        continue  # in the background it goes on

        working, engines = [], []
        for number in range(clients):
            process = Process(world, f"client{number}")
            engine = Engine(open_store(ETCD.url, process.driver), process.driver)
            engines.append((process, engine))
            for task in tasks:
                who = f"{process.name}{task}"
                working.append(process.spawn(lambda p=process, e=engine, w=who: work(p, e, w), who))  # type: ignore[misc]
        for one in working:
            world.run(one)
        for process, engine in engines:
            world.run(process.spawn(engine.close, "close"))
        left = sum(b"/@left/" not in key for key in etcd.pairs)
        return Outcome(world.steps, tokens, worst, streams.cuts, streams.opened, etcd.largest, left)


def right(found: Outcome) -> bool:
    return found.tokens == sorted(set(found.tokens)) and found.worst == 1 and bool(found.tokens)


def test_clients_take_turns_over_calm_streams_and_every_token_is_greater_than_the_last() -> None:
    found = contend(1, StreamFaults(), tasks="abcdef")  # of these, the first goes alone, and the others gather
    assert len(found.tokens) == 24
    assert right(found)
    assert found.left == 0
    assert found.largest > 1, "no two were ever sent together: gathering was not tried"


@pytest.mark.parametrize("seed", range(5))
def test_bytes_that_are_late_split_or_cut_off_let_no_two_in(seed: int) -> None:
    assert right(contend(seed, ROUGH_STREAMS))


LATER_THAN_THE_TTL = StreamFaults(slow=0.05, slow_by=(1.0, 2.5))


@pytest.mark.parametrize("seed", range(3))
def test_answers_that_come_later_than_the_ttl_let_no_two_in(seed: int) -> None:
    assert right(contend(seed, LATER_THAN_THE_TTL, ttl=1.0))


def test_rough_streams_do_cut_connections() -> None:
    assert sum(contend(seed, ROUGH_STREAMS).cuts for seed in range(3)) > 5


def test_the_same_seed_gives_the_same_run() -> None:
    assert contend(7, ROUGH_STREAMS) == contend(7, ROUGH_STREAMS)
    assert contend(7, ROUGH_STREAMS) != contend(8, ROUGH_STREAMS)


def test_a_connection_that_was_cut_while_it_lay_idle_is_replaced() -> None:
    over_streams.a_connection_that_was_cut_while_it_lay_idle_is_replaced(ETCD)


def test_a_silent_host_is_passed_over_in_time() -> None:
    over_streams.a_silent_host_is_passed_over_in_time(ETCD, ("silent", 2379), "etcd://silent,etcd")


def test_a_holder_that_crashed_is_replaced_when_its_lease_ends() -> None:
    etcd = over_streams.a_crashed_holder_is_replaced(ETCD, 5)
    assert len(etcd.leases) == 1


# ---- what these runs are for


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "with the mistake"])
def test_two_of_one_name_are_never_sent_together(monkeypatch: pytest.MonkeyPatch, mistaken: bool) -> None:
    """They would enter at one revision, and so with one token."""
    transact = Gatherer.transact
    if mistaken:
        monkeypatch.setattr(Gatherer, "transact", lambda self, name, *rest: transact(self, uuid4().hex, *rest))
    assert all(right(contend(seed, StreamFaults(), tasks="aaaaaa")) for seed in range(2)) is not mistaken
