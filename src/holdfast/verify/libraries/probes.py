"""Questions to a library, each answered by processes that use it (`hand.Hand`) and by what is done to them.

An answer is a few words for the table. Where a library cannot be asked, the answer says so.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...testing.network import Network
from ..checkers import percentile
from .adapters import Adapter
from .hand import Hand

LONG = 45.0  # seconds after which a lock counts as left behind for good
_CANCELS = 40
_ATTEMPTS = 5


class TooSlow(Exception):
    """The lock may have expired before it could be asked about: that says nothing about the library, but for the machine."""


class Bench:
    """A library, the server that it is tried on, and names that nobody has used yet."""

    def __init__(self, library: str, adapter: type[Adapter], url: str, ttl: float, server: Any) -> None:
        self.library, self.adapter, self.url, self.ttl, self.server = library, adapter, url, ttl, server
        self._names = 0

    def hand(self, url: str | None = None) -> Hand:
        return Hand(self.library, url or self.url, self.ttl)

    def name(self) -> str:
        self._names += 1
        return f"probe-{self._names}-{random.randrange(10**9)}"

    def still_valid(self, since: float) -> None:
        if not self.adapter.renews and time.monotonic() - since > 0.7 * self.ttl:
            raise TooSlow

    def until_free(self, hand: Hand, name: str) -> str:
        """How long it takes another to get it."""
        since = time.monotonic()
        if not hand.take(name, LONG):
            return f"not within {LONG:g} s"
        return seconds(time.monotonic() - since)


def seconds(value: float) -> str:
    return "at once" if value < 0.25 else f"{value:.1f} s"


def _overtaken(bench: Bench, name: str, one: Hand, two: Hand) -> bool:
    """The one takes it and is paused: is the other given it meanwhile?"""
    assert one.take(name, 5)
    one.signal(signal.SIGSTOP)
    try:
        return two.take(name, 2 * bench.ttl + 10)
    finally:
        one.signal(signal.SIGCONT)


def loss_told(bench: Bench) -> str:
    """A holder that was paused until another had the lock: does it say so when it is asked, before it would write?"""
    with bench.hand() as one, bench.hand() as two:
        name = bench.name()
        if not _overtaken(bench, name, one, two):
            return "keeps it while paused"
        answer = one.ask("look")
        if "error" in answer:
            return "yes (raises)"
        return {None: "cannot be asked", True: "**no**", False: "yes"}[answer["held"]]


def killed_holder(bench: Bench) -> str:
    """kill -9 of the holder: until another has it."""
    with bench.hand() as two:
        name, one = bench.name(), bench.hand()
        assert one.take(name, 5)
        one.kill()
        return bench.until_free(two, name)


def interrupted_waiter(bench: Bench) -> str:
    """Ctrl-C while it waits; the holder then gives the lock back: until a third has it."""
    with bench.hand() as one, bench.hand() as two, bench.hand() as three:
        name = bench.name()
        assert one.take(name, 5)
        since = time.monotonic()
        two.say(do="take", name=name, timeout=30.0)
        time.sleep(0.4)
        two.signal(signal.SIGINT)
        two.hear()
        one.ask("give")
        bench.still_valid(since)
        return bench.until_free(three, name)


def cancelled_acquire(bench: Bench) -> str:
    """Acquires of free names, cancelled after 0 to 5 ms: after how many of them was the name taken, and for how long?"""
    with bench.hand() as one, bench.hand() as two:
        if one.ask("cancelled", name=bench.name(), after=0.0).get("taken", False) is None:
            return "no asyncio"
        ghosts, longest = 0, 0.0
        for number in range(_CANCELS):
            name = bench.name()
            one.ask("cancelled", name=name, after=0.005 * number / _CANCELS)
            since = time.monotonic()
            if not two.take(name, LONG):
                return f"**left behind** after {number + 1}"
            two.ask("give")
            took = time.monotonic() - since
            if took > 0.5:
                ghosts, longest = ghosts + 1, max(longest, took)
                if ghosts == 3:  # that is enough to know
                    break
        return "none" if not ghosts else f"**{ghosts} of {number + 1}**, up to {longest:.1f} s"


def foreign_release(bench: Bench) -> str:
    """A holder that was overtaken gives back "its" lock: is the other still alone with it?"""
    with bench.hand() as one, bench.hand() as two, bench.hand() as three:
        name = bench.name()
        if not _overtaken(bench, name, one, two):
            return "is not overtaken"
        answer = one.ask("give")
        told = "raises" if "error" in answer else "silent"
        return f"**frees another's lock** ({told})" if three.take(name, 0.3) else f"harmless ({told})"


def fork(bench: Bench) -> str:
    """The holder forks; the child ends without having touched the lock: is the holder still alone with it?"""
    with bench.hand() as one, bench.hand() as two:
        name = bench.name()
        assert one.take(name, 5)
        since = time.monotonic()
        answer = one.ask("fork")
        if "error" in answer:
            return f"raises {answer['error'].partition(':')[0]}"
        free = two.take(name, 0.1 * bench.ttl)
        bench.still_valid(since)
        if free:
            return "**the child's end frees it**"
        answer = one.ask("give")
        return "held" if "error" not in answer else f"held; release raises {answer['error'].partition(':')[0]}"


def waits(bench: Bench) -> str:
    """Six in turn for 4 s, 5 ms each: the one with the fewest turns against the one with the most; 99 % waited less than."""
    name = bench.name()
    hands = [bench.hand() for _ in range(6)]
    try:
        with ThreadPoolExecutor(len(hands)) as together:
            answers = list(together.map(lambda hand: hand.ask("turns", name=name, seconds=4.0, hold=0.005), hands))
    finally:
        for hand in hands:
            hand.kill()
    each = [len(answer.get("waits", ())) for answer in answers]
    every = sorted(wait for answer in answers for wait in answer.get("waits", ()))
    return f"{min(each)} to {max(each)} turns, {percentile(every, 0.99):.2f} s"


def cut_at_release(bench: Bench) -> str:
    """The connection is cut while the release is on its way: until another has it."""
    network = Network(bench.url)
    if not network:
        return "no connection"
    with network, bench.hand(network.url) as one, bench.hand() as two:
        name = bench.name()
        assert one.take(name, 5)
        for proxy in network.proxies:
            proxy.to_server.hold()
        one.say(do="give")
        time.sleep(0.3)
        network.cut()
        network.heal()
        freed = bench.until_free(two, name)
        one.signal(signal.SIGINT)
        return freed


def restarted_server(bench: Bench) -> str:
    """kill -9 of the server (of all three, where there are three), and back with its disk: is the holder still alone with it?"""
    if bench.server is None:
        return "no server"
    with bench.hand() as one, bench.hand() as two:
        name = bench.name()
        assert one.take(name, 5)
        since = time.monotonic()
        for member in bench.server.members:
            member.kill()
        bench.server.heal()
        free = two.take(name, 0.1 * bench.ttl)
        if not free:
            return "still held"
        bench.still_valid(since)
        answer = one.ask("look")
        if "error" in answer or answer["held"] is False:
            return "lost, and told"
        return "**lost, not told**" if answer["held"] else "lost; cannot be asked"


PROBES: dict[str, Callable[[Bench], str]] = {
    "loss told before the next write": loss_told,
    "kill -9 of the holder: free after": killed_holder,
    "Ctrl-C in line: free after": interrupted_waiter,
    "cancelled acquires that leave a ghost": cancelled_acquire,
    "release after being overtaken": foreign_release,
    "a forked child ends": fork,
    "six in line: fewest to most turns, p99 wait": waits,
    "connection cut at release: free after": cut_at_release,
    "server restarted": restarted_server,
}


def _asked(probe: Callable[[Bench], str], bench: Bench) -> str:
    for _ in range(_ATTEMPTS):
        try:
            return probe(bench)
        except TooSlow:
            continue
    return "expires first"


def ask(bench: Bench, probes: Sequence[str]) -> dict[str, str]:
    """What went wrong with the asking itself is an answer too, and no word about the library."""
    answers = {}
    for title in probes:
        try:
            answers[title] = _asked(PROBES[title], bench)
        except TimeoutError:
            answers[title] = "hangs"
        except (AssertionError, ConnectionError, OSError, RuntimeError, KeyError) as error:
            answers[title] = f"not answered ({type(error).__name__})"
    return answers
