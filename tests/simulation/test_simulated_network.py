"""What the simulated network can do to a call, and what the real engine makes of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from holdfast import recipes
from holdfast.asking import Ask
from holdfast.claim import Claim, Grant
from holdfast.drivers.simulated import Process
from holdfast.drivers.world import World
from holdfast.electing import Leader, next_leader
from holdfast.errors import LeaseLost, NotAcquired, StaleToken, Unavailable
from holdfast.stores.memory import MemoryStore
from holdfast.testing.history import CLAIM, GRANTED, READ, STALE, UNKNOWN, History, Recording
from holdfast.testing.simulation import Client, Fence, Network, Register, RegisterClient, Remote, Scripted
from holdfast.testing.simulation.network import (
    DELAY_REPLY,
    DELAY_REQUEST,
    DUPLICATE,
    LOSE_REPLY,
    LOSE_REQUEST,
)

T = TypeVar("T")
_names = itertools.count()
LOCK = Ask("lock", ttl=3.0)


class Place:
    """A server with a store, and clients far from it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.history = History()
        self.server = Process(world, "server")
        self.network = Network(self.server)
        self.store = MemoryStore(self.server.driver, f"network-{next(_names)}")
        self.register = Register(Fence.READS_AND_WRITES)

    def client(self, name: str) -> Client:
        process = Process(self.world, name)
        remote = Remote(self.store, self.network, process)
        return Client(process, Recording(remote, self.history, name, lambda: self.world.time), self.history)

    def storage(self, client: Client) -> RegisterClient:
        return RegisterClient(self.register, self.network, client.process, self.history)

    def run(self, client: Client, main: Callable[[], Coroutine[Any, Any, T]]) -> T:
        task = client.process.spawn(main, "main")
        self.world.run(task)
        result: T = task.result
        return result

    def outcomes(self, kind: str) -> list[str]:
        return [one.outcome for one in self.history.of(kind)]


@pytest.fixture
def place() -> Any:
    with World(1) as world:
        yield Place(world)


def test_a_grant_whose_reply_was_lost_is_found_again(place: Place) -> None:
    place.network.script(Scripted(LOSE_REPLY, "a", "claim"))
    a = place.client("a")
    lease = place.run(a, lambda: a.acquire(LOCK))
    assert place.outcomes(CLAIM) == [UNKNOWN, GRANTED]
    assert lease.held
    assert lease.remaining() < 2.1, "it counts from the first request: the store granted it then"


def test_a_lost_request_is_repeated(place: Place) -> None:
    place.network.script(Scripted(LOSE_REQUEST, "a", "claim"))
    a = place.client("a")
    assert place.run(a, lambda: a.acquire(LOCK)).held


def test_cut_off_for_long_the_caller_is_told(place: Place) -> None:
    place.network.partition("a", 0.0, 60.0)
    a = place.client("a")
    with pytest.raises(Unavailable):
        place.run(a, lambda: a.acquire(LOCK))


def test_a_grant_that_comes_too_late_is_no_grant(place: Place) -> None:
    place.network.timeout = 10.0
    place.network.script(Scripted(DELAY_REPLY, "a", "claim", seconds=4.0))
    a = place.client("a")
    lease = place.run(a, lambda: a.acquire(LOCK))
    first, second = place.history.of(CLAIM)
    assert first.returned - first.invoked > 4.0
    assert (second.outcome, lease.token) == (GRANTED, second.token)
    assert second.token > first.token


def test_a_claim_that_arrives_when_its_sender_has_given_up_ends_by_its_ttl(place: Place) -> None:
    place.network.script(Scripted(DELAY_REQUEST, "a", "claim", seconds=5.0, times=2))
    a, b = place.client("a"), place.client("b")
    with pytest.raises(Unavailable):
        place.run(a, lambda: a.acquire(LOCK))
    place.world.run_until(6.2)
    with pytest.raises(NotAcquired):  # the ghost is there
        place.run(b, lambda: b.acquire(LOCK, 0))
    assert place.run(b, lambda: b.acquire(LOCK, 4.0)).held


def test_a_duplicate_is_executed_twice_and_answered_once(place: Place) -> None:
    place.network.script(Scripted(DUPLICATE, "a", "claim"))
    a = place.client("a")
    lease = place.run(a, lambda: a.acquire(LOCK))
    again = place.run(a, lambda: place.store.claim(lease._grant.claim))
    assert isinstance(again, Grant)
    assert again.token == lease.token


def test_a_holder_that_is_cut_off_is_told_before_another_gets_in(place: Place) -> None:
    a, b = place.client("a"), place.client("b")
    lease = place.run(a, lambda: a.acquire(LOCK))
    lost_at: list[float] = []
    lease.on_lost(lambda _: lost_at.append(place.world.time))
    place.network.partition("a", 0.0, 60.0)
    place.run(b, lambda: b.acquire(LOCK))
    assert lost_at
    assert lost_at[0] <= place.world.time
    with pytest.raises(LeaseLost):
        a.check(lease)


def test_a_write_delayed_past_its_lease_is_refused(place: Place) -> None:
    a, b = place.client("a"), place.client("b")
    place.network.timeout = 10.0
    lease = place.run(a, lambda: a.acquire(LOCK))
    place.network.script(Scripted(DELAY_REQUEST, "a", "write", seconds=8.0))
    late = a.process.spawn(lambda: place.storage(a).write("account", lease.token, (("u1", lease.token),)), "late")
    a.process.pause(6.0)
    successor = place.run(b, lambda: b.acquire(LOCK))
    place.run(b, lambda: place.storage(b).read("account", successor.token))
    with pytest.raises(StaleToken):
        place.world.run(late)
    assert place.outcomes("write") == [STALE]
    assert place.outcomes(READ) == ["done"]


def test_who_watches_an_election_hears_of_a_new_leader_at_once(place: Place) -> None:
    a, b = place.client("a"), place.client("b")
    ask = recipes.election_ask("boss", "at a", 3.0)
    lease = place.run(a, lambda: a.acquire(ask))

    async def watch() -> float:
        assert await next_leader(b.engine, "boss", lease.token, 10.0) is None
        gone = place.world.time
        leader = await next_leader(b.engine, "boss", 0, 10.0)
        assert isinstance(leader, Leader)
        assert leader.address == "at a"
        return gone

    watcher = b.process.spawn(watch, "watch")
    place.world.run_until(1.0)
    place.run(a, lambda: a.release(lease))
    place.world.run_until(1.2)
    place.run(a, lambda: a.acquire(ask))
    place.world.run(watcher)
    assert watcher.result < 1.1
    assert place.world.time < 1.3


def test_a_server_error_comes_back_to_the_caller(place: Place) -> None:
    a = place.client("a")
    place.run(a, lambda: a.acquire(LOCK))
    with pytest.raises(ValueError, match="capacity"):
        place.run(a, lambda: a.engine.store.claim(Claim("lock", "n", "o", 1.0, capacity=2)))
