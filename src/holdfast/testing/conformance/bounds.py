"""Nothing outlasts what was asked: a silent server costs a caller its timeout, and at most a second to find out.

Silent is not gone: the server accepts connections and answers nothing, as one that was stopped does. Here it broke: each
layer had a timeout of its own, they added up, and a signal started the kernel's anew.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import subprocess
import sys
import time
from typing import Any

import pytest

from ...errors import NotAcquired, Unavailable
from ...lending import wanted_of
from ..network import Network
from .abandonment import recorded
from .world import PATIENCE, World, settled

CLOSING = 5.0  # what close() takes at the most, unless told otherwise
LEASES = 100
CROWD = 300

CALLS: dict[str, tuple[float, Any]] = {
    "acquire(timeout=1)": (1.0, lambda locks: locks.lock("x").acquire(timeout=1)),
    "acquire(timeout=0)": (0.0, lambda locks: locks.lock("x").acquire(timeout=0)),
    "try_acquire()": (0.0, lambda locks: locks.lock("x").try_acquire()),
}

# A signal every 50 ms, whose handler does nothing: each interrupts a system call, and Python starts that again.
_SIGNALLED = """
import signal, sys, time, holdfast
locks = holdfast.connect(sys.argv[1])
if sys.argv[2] == "warm":
    locks.lock("warm").acquire(timeout=5).release()
signal.signal(signal.SIGALRM, lambda *_: None)
print("ready", flush=True)
sys.stdin.readline()
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
before = time.monotonic()
try:
    locks.lock("x", ttl=float(sys.argv[3])).acquire(timeout=1)
    print("got it", flush=True)
except (holdfast.NotAcquired, holdfast.Unavailable):
    print(time.monotonic() - before, flush=True)
signal.setitimer(signal.ITIMER_REAL, 0)
sys.stdin.readline()
"""


class Bounds:
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("state", ["warm", "cold"])
    def test_a_silent_server_costs_the_timeout_and_a_second_at_most(
        self, world: World, network: Network, call: str, state: str
    ) -> None:
        if not network:
            return
        a = world.actor("a", url=network.url)
        if state == "warm":
            a.do(take_and_leave)
        network.silence()
        timeout, action = CALLS[call]
        before = time.monotonic()
        with pytest.raises((NotAcquired, Unavailable)):
            a.do(action)
        assert time.monotonic() - before <= timeout + 1 + world.slack
        network.heal()  # what was on its way arrives now, and is taken back
        world.until_nothing_is_left()
        a.do(take_and_leave, within=5 + world.slack)

    def test_whoever_finds_here_what_is_over_waits_no_longer_than_asked(self, world: World, network: Network) -> None:
        """Here it broke: what was kept here, and over, was given up first, which had all the time in the world."""
        if not network or wanted_of(world.looker.locks._engine.store) is None:
            return
        a = world.actor("a", url=network.url)

        async def drop_and_ask(locks: Any) -> float:
            lock = locks.lock("x", ttl=60, keep=60)
            lease = await settled(lock.acquire(timeout=5 + world.slack))
            network.silence()
            with recorded():
                del lease
                gc.collect()
            before = time.monotonic()
            with pytest.raises((NotAcquired, Unavailable)):
                await settled(lock.acquire(timeout=0))
            return time.monotonic() - before

        assert a.do(drop_and_ask) <= 1 + world.slack
        network.heal()
        world.until_nothing_is_left()

    @pytest.mark.parametrize("world", ["asyncio"], indirect=True)
    def test_however_many_ask_a_silent_server_the_loop_goes_on(self, world: World, network: Network) -> None:
        """Here it broke: 300 requests that waited for a connection, and the next one stopped the loop until there was one."""
        if not network:
            return
        a = world.actor("a", url=network.url)
        a.do(take_and_leave)
        network.silence()
        before = time.monotonic()
        assert all(isinstance(one, NotAcquired | Unavailable) for one in a.do(everybody_asks))
        assert time.monotonic() - before <= 0.3 + 1 + world.slack
        network.heal()
        world.until_nothing_is_left()

    def test_a_waiter_whose_server_falls_silent_gives_up_in_time(self, world: World, network: Network) -> None:
        if not network:
            return
        holder = world.actor("holder")
        a = world.actor("a", url=network.url)
        a.do(take_and_leave)
        held = holder.do(lambda locks: locks.lock("x").acquire())
        waiting = a.start(lambda locks: locks.lock("x").acquire(timeout=1.5))
        before = time.monotonic()
        world.until_waiting("x", "a")
        network.silence()
        with pytest.raises((NotAcquired, Unavailable)):
            waiting.result()
        assert time.monotonic() - before <= 1.5 + 1 + world.slack
        network.heal()
        world.until(lambda: world.waiters("x") == [], within=5 + world.slack)
        holder.do(lambda _: held.release())

    @pytest.mark.parametrize("state", ["warm", "cold"])
    def test_signals_do_not_lengthen_a_call(self, world: World, network: Network, state: str) -> None:
        if not network or world.asynchronous:
            return  # a loop has no system call of its own to be restarted
        with subprocess.Popen(
            [sys.executable, "-c", _SIGNALLED, network.url, state, str(world.ttl_kept)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            try:
                assert child.stdin is not None
                assert child.stdout is not None
                assert child.stdout.readline() == "ready\n"
                network.silence()
                child.stdin.write("go\n")
                child.stdin.flush()
                assert float(child.stdout.readline()) <= 1 + 1 + world.slack
                network.heal()
                child.communicate("end\n", timeout=PATIENCE)
            finally:
                child.kill()
        # Its process has ended: what was on its way and arrived after that has nobody to take it back, and ends with its ttl.
        world.until_nothing_is_left(2 * world.ttl_kept + 5 + world.slack)

    def test_close_has_one_deadline_for_all_that_is_held_and_says_what_it_left(
        self, world: World, network: Network, caplog: pytest.LogCaptureFixture
    ) -> None:
        if not network:
            return
        a = world.actor("a", url=network.url)
        leases = [a.do(lambda locks, n=n: locks.lock(f"x{n}", ttl=60).acquire(timeout=5)) for n in range(LEASES)]
        network.silence()
        before = time.monotonic()
        with caplog.at_level(logging.WARNING, "holdfast"):
            a.do(lambda locks: locks.close())
        assert time.monotonic() - before <= CLOSING + world.slack
        assert not any(lease.held for lease in leases)
        told = [record.getMessage() for record in caplog.records if record.name.startswith("holdfast")]
        assert any("x" in text and "releas" in text for text in told), "nobody was told what is left behind"
        network.cut()
        network.heal()

    def test_close_keeps_to_the_time_that_it_is_given(self, world: World, network: Network) -> None:
        """The last words of the store included: here it broke, they came to it."""
        if not network:
            return
        took: list[float] = []
        while not took or (min(took) > 0.4 and len(took) < 5):  # on a busy machine one of five is quick
            a = world.actor("a", url=network.url)
            a.do(lambda locks: locks.lock(f"x{len(took)}", ttl=60).acquire(timeout=5))
            network.silence()
            before = time.monotonic()
            a.do(lambda locks: locks.close(timeout=0.1))
            took.append(time.monotonic() - before)
            assert took[-1] <= 0.1 + world.slack
            network.cut()
            network.heal()
        assert min(took) <= 0.4, took


async def everybody_asks(locks: Any) -> list[Any]:
    return await asyncio.gather(
        *(locks.lock(f"x{n}").acquire(timeout=0.3) for n in range(CROWD)), return_exceptions=True
    )


async def take_and_leave(locks: Any) -> None:
    lease = await settled(locks.lock("warm").acquire(timeout=5))
    await settled(lease.release())
