"""A last token whose slot moves to a node whose clock is behind: what our scripts keep of it, and what the judge forgives."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.claim import Claim, Grant
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.stores import redis
from holdfast.stores.redis import scripts
from holdfast.stores.redis.keys import slot
from holdfast.testing.simulation.servers.redis import ClusterNode
from holdfast.testing.simulation.servers.redis.cluster import Forgotten

from .test_redis_mutants import spoilt

NAMES = ("one", "two", "three")
RETENTION = 0.5
FORGETS = spoilt((scripts.RELEASE, "if token > now then", "if false then"))
FORGETS_AT_ONCE = spoilt((scripts.CLAIM, "local px = ARGV[3]", "local px = 300"))


def _moved(*, leaves: str, behind: float = 7200.0) -> tuple[list[int], Sequence[Forgotten]]:
    """Two tokens of a name that moves in between, and what was forgotten of it. It is left "before", "after" or "never"."""
    with World(1) as world:
        streams, process = Streams(world), Process(world, "p")
        number = slot(b"{lock}")
        nodes = [ClusterNode(Process(world, name), streams, (name, 6379), (f"{name}r", 6379)) for name in NAMES]
        for node in nodes:
            node.nodes = nodes
        source = nodes[0].owner(number)
        target = source.others[0]
        target.jump(-behind)
        store = redis.open_store(f"redis+cluster://{','.join(NAMES)}?retention={RETENTION}", process.driver)
        first, second = (Claim("lock", letter * 32, letter, 1.0) for letter in "ab")
        tokens: list[int] = []

        async def story() -> None:
            for claim in (first, second):
                grant = await store.claim(claim)
                assert isinstance(grant, Grant)
                tokens.append(grant.token)
                if claim is first:
                    if leaves == "before":
                        await store.release(first)
                    source.hand_over(number, target, 0.01, lambda: None, together=True)
                    await process.driver.sleep(0.1)
                    if leaves == "after":
                        await store.release(first)
                    await process.driver.sleep(3.0)

        world.run(process.spawn(story, "story"))
        return tokens, target.forgotten


def test_who_leaves_on_the_new_node_leaves_its_token_there() -> None:
    tokens, forgotten = _moved(leaves="after")
    assert tokens == sorted(tokens)
    assert not forgotten


@pytest.mark.parametrize("leaves", ["before", "never"])
def test_a_token_that_nobody_uses_there_is_forgotten_too_soon_and_forgiven(leaves: str) -> None:
    tokens, (forgotten,) = _moved(leaves=leaves)
    assert tokens[1] < tokens[0] == forgotten.token
    assert forgotten.as_is_said(RETENTION)


@pytest.mark.parametrize("leaves", ["before", "never"])
def test_a_clock_that_is_behind_by_less_than_that_makes_no_difference(leaves: str) -> None:
    tokens, _ = _moved(leaves=leaves, behind=RETENTION)
    assert tokens == sorted(tokens)


def test_a_script_that_forgets_it_there_is_not_forgiven() -> None:
    with FORGETS():
        tokens, (forgotten,) = _moved(leaves="after")
    assert tokens[1] < tokens[0]
    assert not forgotten.as_is_said(RETENTION)


def test_nor_is_one_that_let_it_end_too_soon_before_it_moved() -> None:
    with FORGETS_AT_ONCE():
        tokens, (forgotten,) = _moved(leaves="before")
    assert tokens[1] < tokens[0]
    assert not forgotten.as_is_said(RETENTION)
