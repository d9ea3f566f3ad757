"""close(): whoever waits is told at once and leaves the line, whoever comes later is refused, and nothing is left open."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ...errors import Misuse
from ..network import Network
from .processes import run
from .tampering import tamper
from .world import World, on_every_loop, settled

# Three threads, each in and out of the same lock, while the main thread closes the connection under their feet.
_IN_USE = """
import sys, threading, time, holdfast
for _ in range(3):
    locks = holdfast.connect(sys.argv[1])
    begun = threading.Barrier(4)
    def work():
        begun.wait()
        try:
            while True:
                with locks.lock("a", timeout=5):
                    pass
        except holdfast.HoldfastError:
            return
    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    begun.wait()
    time.sleep(0.1)
    locks.close()
    for each in threads:
        each.join(10)
    assert not any(each.is_alive() for each in threads)
print("closed")
"""

LATER: dict[str, Any] = {
    "acquire": lambda locks: locks.lock("x").acquire(timeout=1),
    "try_acquire": lambda locks: locks.lock("x").try_acquire(),
    "all_of": lambda locks: locks.all_of("x", "y").acquire(timeout=1),
    "inspect": lambda locks: locks.inspect("x"),
    "names": lambda locks: locks.names(),
    "force_release": lambda locks: locks.force_release("x", token=1),
    "wait_graph": lambda locks: locks.wait_graph(),
    "leader": lambda locks: locks.election("x").leader(),
}


class Closing:
    @on_every_loop
    def test_closing_wakes_whoever_waits_and_takes_them_from_the_line(self, world: World) -> None:
        a, holder = world.actors("a", "holder")
        held = holder.do(lambda locks: locks.lock("x").acquire())
        crew = [a.beside(f"w{n}") for n in range(3)]
        pending = []
        for number, one in enumerate(crew):
            pending.append(one.start(lambda locks: locks.lock("x", ttl=60).acquire()))
            world.until(lambda number=number: len(world.waiters("x")) == number + 1)
        a.do(lambda locks: locks.close(), within=1 + world.slack)
        for each in pending:
            with pytest.raises(Misuse, match="closed"):
                each.result(1 + world.slack)
        assert world.waiters("x") == []
        holder.do(lambda _: held.release())
        world.until_nothing_is_left(1 + world.slack)

    @on_every_loop
    def test_closing_wakes_whoever_watches_an_election(self, world: World) -> None:
        a = world.actor("a")
        watcher = a.beside("watcher")
        seen: list[Any] = []

        async def watch(locks: Any) -> None:
            watching = locks.election("x").watch(timeout=20)
            if world.asynchronous:
                async for leader in watching:
                    seen.append(leader)  # noqa: PERF401 - one by one, as they come
            else:
                for leader in watching:
                    seen.append(leader)  # noqa: PERF402 - one by one, as they come

        pending = watcher.start(watch)
        world.until(lambda: seen)
        a.do(lambda locks: locks.close(), within=1 + world.slack)
        with pytest.raises(Misuse, match="closed"):
            pending.result(1 + world.slack)

    def test_closing_wakes_also_whoever_begins_to_watch_in_that_moment(self, world: World) -> None:
        a = world.actor("a")
        watcher = a.beside("watcher")
        hand = tamper(a.locks)
        begun, woken = threading.Event(), threading.Event()
        wake_waiters = hand.wake_waiters

        def wake() -> None:
            wake_waiters()
            woken.set()

        async def until_woken() -> None:
            begun.set()
            while not woken.is_set():
                await settled(world.pause(0.005))

        hand.wake_waiters = wake  # type: ignore[method-assign]
        hand.before = lambda method: until_woken() if method == "watch" else None

        async def watch(locks: Any) -> None:
            watching = locks.election("x").watch(timeout=20)
            if world.asynchronous:
                async for _ in watching:
                    pass
            else:
                for _ in watching:
                    pass

        pending = watcher.start(watch)
        world.until(begun.is_set)
        a.do(lambda locks: locks.close(), within=1 + world.slack)
        with pytest.raises(Misuse, match="closed"):
            pending.result(1 + world.slack)

    @pytest.mark.parametrize("what", LATER)
    def test_what_was_closed_refuses_to_be_used(self, world: World, what: str) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("held").acquire())
        a.do(lambda locks: locks.close())
        with pytest.raises(Misuse, match="closed"):
            a.do(LATER[what])
        assert a.do(lambda _: lease.release()) is False
        world.until_nothing_is_left(1 + world.slack)

    @on_every_loop
    def test_no_connection_is_left_open_nor_opened_again(self, world: World, network: Network) -> None:
        if not network:
            return
        holder = world.actor("holder")
        held = holder.do(lambda locks: locks.lock("x").acquire())
        a = world.actor("a", url=network.url)
        waiting = a.beside("waiter").start(lambda locks: locks.lock("x").acquire())
        world.until(lambda: world.waiters("x") == ["waiter"])
        a.do(lambda locks: locks.lock("y").acquire())
        a.do(lambda locks: locks.close())
        with pytest.raises(Misuse, match="closed"):
            waiting.result(1 + world.slack)
        world.until(lambda: network.clients == 0, within=1 + world.slack)
        accepted = [proxy.accepted for proxy in network.proxies]
        holder.do(lambda _: held.release())
        a.do(lambda _: settled(world.pause(0.2)))
        assert network.clients == 0
        assert [proxy.accepted for proxy in network.proxies] == accepted
        world.until_nothing_is_left(1 + world.slack)

    def test_closing_what_others_are_using_harms_nobody(self, world: World) -> None:
        """Here it broke: the interpreter died of it."""
        if world.asynchronous:
            return  # one loop, one thread
        assert run(_IN_USE, world.url) == "closed"
        world.until_nothing_is_left(1 + world.slack)
