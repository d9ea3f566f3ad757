"""Connections that break at random, all the time, under six processes, of which one is killed: what they saw is judged."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

from ..checkers import check_freed, check_liveness, check_storage, check_tokens, longest_free
from ..crowd import Crowd
from ..network import Network
from .world import LOOPS, World

FLAVOURS = ("threads", "threads", "threads", *LOOPS, "asyncio", "threads")[:6]
TTL = 60.0  # whoever waits for the end of it has waited too long
FREE_WITHIN = 1.0  # so long a name may stay taken that nobody holds


class Cuts:
    seconds_of_cuts = 10.0

    def test_connections_that_are_cut_at_random_break_no_promise(
        self, world: World, network: Network, tmp_path: Path
    ) -> None:
        if not network or world.asynchronous:
            return  # clients of every kind take part at once
        seconds = self.seconds_of_cuts
        within = FREE_WITHIN + world.slack
        with ExitStack() as open_until_the_end:
            ways = [open_until_the_end.enter_context(Network(world.url)) for _ in range(3)]
            crowd = open_until_the_end.enter_context(Crowd(tmp_path))
            for number, flavour in enumerate(FLAVOURS):
                # One is killed, and what it leaves behind ends with its ttl. All others keep theirs for a minute.
                ttl = max(2 * world.ttl_short, 1.0) if number == 0 else TTL
                crowd.send(ways[number % 3].url, f"w{number}", flavour, seconds=seconds + 1.5, ttl=ttl)
            crowd.wait_for_all()
            chance = random.Random(11)
            end = time.monotonic() + seconds
            kill_at = time.monotonic() + seconds / 2
            killed = False
            while time.monotonic() < end:
                time.sleep(chance.uniform(0.1, 0.3))
                chance.choice(ways).cut()
                if not killed and time.monotonic() > kill_at:
                    crowd.kill("w0")
                    killed = True
            healed = time.monotonic()
            history = crowd.history(within=2 * within + 10)
        findings = [
            *check_storage(history),
            *check_tokens(history),
            *check_liveness(history, healed, within + 4),
            *check_freed(history, within),
        ]
        told = "\n".join(str(finding) for finding in findings[:10])
        assert not findings, f"{told}\nlongest free: {longest_free(history):.2f} s"
        turns = sum(len(lines) for lines in history.final.values())
        assert turns > seconds, f"only {turns} turns in {seconds:g} s"
        world.until_nothing_is_left(2 * max(2 * world.ttl_short, 1.0) + world.slack)
