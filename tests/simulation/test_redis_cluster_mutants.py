"""The simulation of a Redis Cluster can fail: each of these mistakes is found, by the plans that any seed draws."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.claim import Claim, Grant
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.errors import HoldfastError
from holdfast.stores import redis
from holdfast.stores.redis.cluster import ClusterWire
from holdfast.stores.redis.keys import slot
from holdfast.testing.simulation.servers.redis import ClusterNode
from holdfast.testing.simulation.swarm import REDIS_CLUSTER

from .spoiling import Mutant, check_that_it_is_found, spoilt

STUCK = ("failure", "liveness", "handoff", "leak")


def _of_the_wire(wrong: str, seed: int, function: str, old: str, new: str) -> Mutant:
    where: Any = ClusterWire
    return Mutant(wrong, REDIS_CLUSTER, seed, STUCK, where, function, old, new)


ON_ITS_WAY = [
    _of_the_wire(
        "a slot that is on its way is taken for moved", 20, "_redirected", 'code == "MOVED"', 'code in ("MOVED", "ASK")'
    ),
    _of_the_wire(
        "a node that is just getting the slot is not told that we know", 2, "_routed", "_ASKING, requests", "requests"
    ),
]
MUTANTS = [
    _of_the_wire(
        "who is sent elsewhere asks the same node again",
        0,
        "_redirected",
        "self._slots[int(number) % SLOTS] = address",
        "pass",
    ),
    _of_the_wire("a node that is gone is asked for ever", 16, "_routed", "self._forget(address)", "pass"),
    *ON_ITS_WAY,
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_what_is_wrong_is_found_out(mutant: Mutant) -> None:
    check_that_it_is_found(mutant)


def _renewed_on_its_way() -> bool:
    """A lease whose key is at one node, and its slot still at the other."""
    with World(1) as world:
        streams, process = Streams(world), Process(world, "p")
        names = ("one", "two", "three")
        nodes = [ClusterNode(Process(world, name), streams, (name, 6379), (f"{name}r", 6379)) for name in names]
        for node in nodes:
            node.nodes = nodes
        store = redis.open_store(f"redis+cluster://{','.join(names)}", process.driver)

        async def story() -> bool:
            grant = await store.claim(Claim("lock", "a" * 32, "a", 9.0))
            assert isinstance(grant, Grant)
            number = slot(b"{lock}")
            source = nodes[0].owner(number)
            source.hand_over(number, source.others[0], 4.0, lambda: None, together=True)
            await process.driver.sleep(3.0)
            try:
                return list(await store.renew([grant], 0.5)) == [grant]
            except HoldfastError:
                return False

        task = process.spawn(story, "story")
        world.run(task)
        return bool(task.result)


def test_a_lease_is_renewed_while_its_slot_is_on_its_way() -> None:
    assert _renewed_on_its_way()


@pytest.mark.parametrize("mutant", ON_ITS_WAY, ids=lambda mutant: mutant.wrong)
def test_what_is_wrong_on_the_way_is_found_out(mutant: Mutant) -> None:
    with spoilt(mutant):
        assert not _renewed_on_its_way()
