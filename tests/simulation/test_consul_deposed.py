"""A leader of Consul's that was deposed, and does not know it, renews sessions in its own memory: for how long that counts.

What a real Consul does is in tests/stores/consul/test_sessions.py.
"""

from __future__ import annotations

import json

import pytest

from holdfast.drivers.base import finish
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.testing.simulation.searching import search
from holdfast.testing.simulation.servers.consul import ConsulCluster
from holdfast.testing.simulation.swarm import CONSUL

WISH = {"TTL": "2s", "LockDelay": "0s", "Behavior": "delete"}
ELECTED = 0.5


@pytest.mark.parametrize(
    ("patience", "after", "counts"),
    [(2.0, -0.1, True), (2.0, 0.9, True), (2.0, 1.1, False), (1.0, -0.1, True), (1.0, 0.1, False)],
)
def test_a_deposed_leader_renews_only_what_the_next_one_has_time_for(
    patience: float, after: float, counts: bool
) -> None:
    with World(1) as world:
        cluster = ConsulCluster(world, Streams(world), [(f"consul{number}", 1) for number in (1, 2, 3)], patience)
        old = cluster.members[0]
        _, _, told = cluster.ask("/v1/session/create", json.dumps(WISH).encode())
        cluster.elect(ELECTED, unaware=60.0)
        world.run_until(ELECTED + after)
        assert old.believes
        answer = old._answer("PUT", f"/v1/session/renew/{told['ID']}", b"")
        if counts:
            assert finish(answer)[0] == 200
        else:
            asking = old.process.spawn(lambda: answer, "renewal")
            world.run(asking)
            assert asking.result[0] == 500  # No cluster leader


@pytest.mark.parametrize("patience", [1.0, 2.0])
def test_no_session_ends_before_its_ttl_is_over_whoever_was_asked_to_renew_it(patience: float) -> None:
    with World(1) as world:
        cluster = ConsulCluster(world, Streams(world), [(f"consul{number}", 1) for number in (1, 2, 3)], patience)
        old = cluster.members[0]
        _, _, told = cluster.ask("/v1/session/create", json.dumps(WISH).encode())
        session, renewed = told["ID"], world.time
        cluster.elect(ELECTED, unaware=60.0)
        while session in cluster.space.sessions:
            world.run_until(world.time + 0.1)
            if old.believes and cluster.memory_counts(old):
                assert finish(old._answer("PUT", f"/v1/session/renew/{session}", b""))[0] == 200
                renewed = world.time
        assert world.time >= renewed + 2.0


def test_seed_29735_in_which_a_session_ended_too_early_for_what_its_owner_was_told() -> None:
    tally = search(CONSUL, 29735, 1)
    assert tally.failed is None, str(tally.failed)
