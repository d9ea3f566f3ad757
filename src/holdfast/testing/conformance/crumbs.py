"""TCP promises bytes, not pieces: an answer that comes line by line says what it says in one.

Here it broke: where a list was cut before one of its numbers, that number was taken for an answer of its own, and a claim that
was refused ("look again in 4991375 µs") was told as a grant with that token.
"""

from __future__ import annotations

from typing import Any

import pytest

from ...errors import NotAcquired
from ..network import Network
from .answers import warm
from .world import World

PAUSE = 0.003  # seconds, in which a client has read what came


class Crumbs:
    def test_an_answer_that_comes_in_crumbs_says_the_same(self, world: World, network: Network) -> None:
        if not network:
            return
        a = world.actor("a")
        b = warm(world, network)
        network.crumble(PAUSE)
        held = a.do(lambda locks: locks.lock("x").acquire(timeout=5))
        for _ in range(3):
            assert b.do(lambda locks: locks.lock("x").try_acquire()) is None
        with pytest.raises(NotAcquired) as refused:
            b.do(lambda locks: locks.lock("x").acquire(timeout=0))
        assert refused.value.snapshot is not None
        assert [holding.token for holding in refused.value.snapshot.holders] == [held.token]
        waiting = b.start(lambda locks: locks.lock("x").acquire(timeout=20))
        if world.traits.fair:
            world.until_waiting("x", "b")
        a.do(lambda _: held.release())
        lease: Any = waiting.result()
        assert lease.token > held.token
        assert world.holders("x") == ["b"]
        b.do(lambda _: lease.release())
        assert world.holders("x") == []
