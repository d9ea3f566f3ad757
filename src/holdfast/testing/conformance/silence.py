"""One connection falls silent, and the server is well: all others, and new ones, are answered. Nobody is told of it.

So it is with a path of several that is lost, a firewall that forgets what lay idle, a balancer that hangs. Whoever was lent it
waited for all of its time, three seconds, and then had not left, or not got in.
"""

from __future__ import annotations

import time

from ...claim import Grant
from ..network import Network
from .answers import LATECOMER, SOON, Others, warm
from .world import World, claim

SLOW = 0.75  # seconds for every answer: longer than one is waited for without a doubt
IN_TIME = 1.0  # seconds: who waits for that connection for all of the time does not get in


IN_TIME_FOR_ALL = 2.0  # of several servers, each has to be found out about


class Silence:
    doubts = True  # False: there is only one connection to a server, or a lock lives with its own
    majority = False  # True: if one is silent others are enough; but all may be

    def test_one_connection_that_falls_silent_keeps_nobody_out_and_nobody_in(
        self, world: World, network: Network
    ) -> None:
        if not network or not self.doubts:
            return
        a = world.actor("a")
        b = warm(world, network)
        soon = SOON + world.slack
        others = Others(world, "x")
        for number, (what, requests) in enumerate((("claim", True), ("claim", False), ("release", False)), 1):
            if what == "claim":
                network.stick(requests=requests)
            lease = b.do(lambda locks: locks.lock("x").acquire(timeout=IN_TIME), within=soon)
            others.tokens.append(lease.token)
            following = others.join(a)
            if what == "release":
                network.stick(requests=requests)
            b.do(lambda _, lease=lease: lease.release(), within=soon)
            following.result(soon)
            assert network.stuck == number
            network.unstick()  # what was asked first arrives now, when it was asked again, answered, and is over
            world.until(lambda: not world.names(), within=LATECOMER + world.slack)
        assert others.tokens == sorted(set(others.tokens))

    def test_when_all_connections_fall_silent_at_once_new_ones_take_their_place(
        self, world: World, network: Network
    ) -> None:
        """A firewall forgets what it knew; the servers are well. Nothing that is held is lost by that."""
        if not network or not (self.doubts or self.majority):
            return
        a = world.actor("a")
        b = warm(world, network)
        soon = IN_TIME_FOR_ALL + world.slack
        others = Others(world, "x")
        mine = claim("held", owner="h/1/b")
        grants = [b.store(lambda store: store.claim(mine))]
        b.store(lambda store: store.renew(grants, soon))
        for _ in range(2):
            network.forget()
            lease = b.do(lambda locks: locks.lock("x").acquire(timeout=IN_TIME_FOR_ALL), within=soon)
            others.tokens.append(lease.token)
            (verdict,) = b.store(lambda store: store.renew(grants, soon))
            assert isinstance(verdict, Grant)
            following = others.join(a)
            network.forget()
            b.do(lambda _, lease=lease: lease.release(), within=soon)
            following.result(soon)
        network.unstick()
        assert b.store(lambda store: store.release(mine)) is True
        world.until(lambda: not world.names(), within=LATECOMER + world.slack)
        assert others.tokens == sorted(set(others.tokens))

    def test_a_server_that_is_slow_is_waited_for_and_not_overrun(self, world: World, network: Network) -> None:
        """Nobody can say at first whether it is the connection. But one more connection says so, and that for a while."""
        if not network or not self.doubts:
            return
        b = warm(world, network)
        before = network.accepted
        network.slow_down(SLOW)
        started = time.monotonic()
        lease = b.do(lambda locks: locks.lock("x").acquire(timeout=10))
        b.do(lambda _: lease.release())
        took = time.monotonic() - started
        assert network.accepted - before <= 1 + took
        network.heal()
        world.until_nothing_is_left(SOON + world.slack)

    def test_a_renewal_on_a_connection_that_falls_silent_is_known_in_time(self, world: World, network: Network) -> None:
        if not network or not self.doubts:
            return
        b = warm(world, network)
        mine = claim("x", owner="h/1/b")
        grants = [b.store(lambda store: store.claim(mine))]
        b.store(lambda store: store.renew(grants, 2.0))
        network.stick()
        (verdict,) = b.store(lambda store: store.renew(grants, 2.0))
        assert isinstance(verdict, Grant)
        assert network.stuck == 1
        network.unstick()
        assert b.store(lambda store: store.release(mine)) is True
        world.until(lambda: not world.names(), within=LATECOMER + world.slack)
