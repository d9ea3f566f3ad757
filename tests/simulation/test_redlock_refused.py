"""Who is refused by a majority of nodes asks only the others to let go, and leaves nothing on any."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.claim import Claim, Grant, Place
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.stores import redlock
from holdfast.stores.redlock.scripts import RELEASE
from holdfast.testing.simulation.servers.redis import RedisServer
from holdfast.testing.simulation.servers.redis.server import Client


class Counting(RedisServer):
    releases = 0

    async def _answered(self, client: Client, words: Sequence[bytes]) -> bytes:
        self.releases += RELEASE.sha in words
        return await super()._answered(client, words)


def test_only_the_node_that_has_not_refused_is_asked_to_let_go() -> None:
    with World(1) as world:
        streams = Streams(world)
        nodes = [Counting(Process(world, name), streams, (name, 6379)) for name in ("a", "b", "c")]
        process = Process(world, "p")

        def store() -> redlock.RedlockStore:
            return redlock.open_store("redlock://a,b,c", Process(world, "other").driver)

        async def story() -> None:
            here = redlock.open_store("redlock://a,b,c", process.driver)
            held = Claim("x", "1" * 32, "holder", 60.0)
            assert isinstance(await store().claim(held), Grant)
            late = nodes[2]
            for key in list(late.space.values):
                late.evict(key)  # so that it will let in whoever comes
            await here.names()  # connected to all of them
            before = Counter({node.process.name: node.releases for node in nodes})
            late.process.pause(0.5)
            claim = Claim("x", "2" * 32, "refused", 60.0)
            assert isinstance(await here.claim(claim), Place)
            await process.driver.sleep(5.0)
            asked = Counter({node.process.name: node.releases for node in nodes}) - before
            assert asked.keys() == {"c"}
            states = [state for state in late.space.values.values() if isinstance(state, bytes)]
            assert states, "it was let in, so there is a last token"
            assert not any(claim.holder.encode() in state for state in states), "and nothing else is left there"

        world.run(process.spawn(story, "story"))
