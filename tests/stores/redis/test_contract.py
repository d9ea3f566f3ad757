"""What the core may rely on: every call ends in the time that it was given, and what breaks is asked again.

On one server, over a Unix socket, under Sentinels and in a cluster; in threads, in asyncio and on uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest
import uvloop

from holdfast import Misuse, Unavailable
from holdfast.claim import Grant, Place
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.redis import RedisStore, open_store, wire
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.keys import slot
from holdfast.testing import servers
from holdfast.testing.alarms import alarms
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.redis import SLOTS, Redis, RedisCluster, SentinelGroup

from ..hands import claim_of, in_background, until

pytestmark = pytest.mark.server
T = TypeVar("T")
WITHIN = 0.5
NOT_MISSED = (
    "--cluster-node-timeout",
    "60000",
)  # a master that is silent for a moment, or for longer on a busy machine
SOON = 20.0
MOMENT = 2.0  # to find out, on a busy machine


class World:
    """Runs what a store does, in threads or in a loop."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop if kind == "uvloop" else None)
        self._stores: list[RedisStore] = []

    def open(self, url: str) -> RedisStore:
        async def opened() -> RedisStore:
            return open_store(url, Threads() if self.kind == "threads" else Asyncio())

        self._stores.append(self.run(opened()))
        return self._stores[-1]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return finish(coroutine) if self.kind == "threads" else self._runner.run(coroutine)

    def granted(self, store: RedisStore, name: str, ttl: float = 30.0) -> Grant:
        answer = self.run(store.claim(claim_of(name, ttl)))
        assert isinstance(answer, Grant)
        return answer

    def place(self, store: RedisStore, name: str) -> Place:
        answer = self.run(store.claim(claim_of(name)))
        assert isinstance(answer, Place)
        return answer

    def close(self) -> None:
        for store in self._stores:
            self.run(store.close())
        self._runner.close()


@pytest.fixture(params=["threads", "asyncio", "uvloop"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    stage = World(request.param)
    yield stage
    stage.close()


@contextmanager
def silent(*nodes: Redis) -> Iterator[None]:
    for node in nodes:
        node.pause()
    try:
        yield
    finally:
        for node in nodes:
            node.resume()


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    started = time.monotonic()
    yield
    assert time.monotonic() - started < seconds + MOMENT


@pytest.fixture(params=["plain", "unix", "sentinel", "cluster"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, list[Redis]]]:
    with ExitStack() as stack:
        if request.param == "plain":
            server = stack.enter_context(servers.start("redis"))
            yield server.url, [server]
        elif request.param == "unix":
            server = stack.enter_context(servers.start("redis", "--unixsocket", str(tmp_path / "s")))
            yield f"unix://{tmp_path / 's'}", [server]
        elif request.param == "sentinel":
            group = stack.enter_context(servers.cluster("redis-sentinel", 3))
            assert isinstance(group, SentinelGroup)
            yield group.url, [group.leader()]
        else:
            cluster = stack.enter_context(servers.cluster("redis-cluster", 3))
            assert isinstance(cluster, RedisCluster)
            yield cluster.url, list(cluster.members)


def test_a_server_that_falls_silent_costs_nobody_more_than_they_gave(
    place: tuple[str, list[Redis]], world: World
) -> None:
    url, nodes = place
    store, stranger = world.open(url), world.open(url)
    grant = world.granted(store, "x")
    waiting = world.place(store, "x")
    with silent(*nodes):
        for conversation in (
            lambda: store.claim(claim_of("y"), WITHIN),
            lambda: store.claim(waiting.claim, WITHIN),
            lambda: store.release(grant.claim, WITHIN),
            lambda: store.inspect("x", WITHIN),
            lambda: store.renew([grant], WITHIN),
            lambda: store.watch("z", 0, WITHIN),
            lambda: stranger.claim(claim_of("y"), WITHIN),
            lambda: stranger.renew([grant], WITHIN),
        ):
            # Sentinels find another master meanwhile, so some may be answered.
            trouble: AbstractContextManager[object] = (
                contextlib.suppress(Unavailable) if "sentinel" in url else pytest.raises(Unavailable)
            )
            with at_most(WITHIN), trouble:
                world.run(conversation())
        with at_most(WITHIN):
            world.run(store.wait(waiting, WITHIN))
        with at_most(0):
            world.run(store.close())


def test_a_server_that_answers_before_we_look_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket of this machine is connected at once: the answer to the login may be there before anybody waits for it."""
    flush = Connection._flush

    def slowly(self: Connection) -> None:
        flush(self)
        time.sleep(0.05)

    monkeypatch.setattr(Connection, "_flush", slowly)
    with servers.start("redis", "--unixsocket", str(tmp_path / "s"), "--appendonly", "no"):
        store = open_store(f"unix://{tmp_path / 's'}?timeout=10", Threads())
        with at_most(2):
            assert isinstance(finish(store.claim(claim_of("x"), 10.0)), Grant)
        finish(store.close())


def test_what_was_under_way_when_the_connection_broke_is_asked_again(redis: Redis, proxy: Proxy, world: World) -> None:
    store = world.open(f"redis://127.0.0.1:{proxy.port}")
    grant = world.granted(store, "x")
    world.run(store.renew([grant], 1.0))
    conversations: list[Callable[[], Coroutine[Any, Any, object]]] = [
        lambda: store.inspect("x"),
        lambda: store.claim(grant.claim),
        lambda: store.renew([grant], 2.0),
        lambda: store.release(grant.claim),
    ]
    expected: list[object] = [None, grant, [grant], True]
    for conversation, answer in zip(conversations, expected, strict=True):
        proxy.to_server.hold()
        caught = proxy.to_server.caught.chunks

        def break_it(caught: int = caught) -> None:
            until(lambda: proxy.to_server.caught.chunks > caught)
            proxy.cut(reset=True)
            proxy.flow()

        breaker = in_background(break_it)
        with at_most(WITHIN):
            result = world.run(conversation())
        breaker.join()
        assert answer is None or result == answer
    assert redis.execute("STRLEN", "hf:{x}") is not None
    assert isinstance(world.run(world.open(redis.url).claim(claim_of("x"))), Grant)


def test_an_eviction_is_not_repeated(redis: Redis, proxy: Proxy, world: World) -> None:
    """Asked again, it would not find whom it has put out, and say that nobody was there."""
    store = world.open(f"redis://127.0.0.1:{proxy.port}")
    grant = world.granted(store, "x")
    proxy.to_client.hold()

    def break_it() -> None:
        until(lambda: proxy.to_client.caught.chunks > 0)
        proxy.cut(reset=True)
        proxy.flow()

    breaker = in_background(break_it)
    with pytest.raises(Unavailable):
        world.run(store.evict("x", grant.token, "somebody"))
    breaker.join()
    assert world.run(store.inspect("x")).holders == ()


def test_one_silent_master_of_a_cluster_makes_its_own_leases_unknown_and_nobody_elses(world: World) -> None:
    with servers.cluster("redis-cluster", 3, *NOT_MISSED) as cluster:
        assert isinstance(cluster, RedisCluster)
        store = world.open(cluster.url)
        grants = [world.granted(store, f"n{number}") for number in range(30)]
        names = [grant.claim.name for grant in grants]
        homes = [slot(b"{%b}" % name.encode()) * len(cluster.members) // SLOTS for name in names]
        assert list(world.run(store.renew(grants, SOON))) == grants
        assert world.run(store.release(grants[-1].claim))
        with silent(cluster.members[1]), at_most(1.5):
            verdicts = world.run(store.renew(grants, 1.5))  # enough for the others to answer
        for grant, home, verdict in zip(grants[:-1], homes, verdicts, strict=False):
            assert isinstance(verdict, Unavailable) if home == 1 else verdict == grant
        assert verdicts[-1] is None or homes[-1] == 1
        assert list(world.run(store.renew(grants[:-1], SOON))) == grants[:-1]


def test_a_node_that_has_to_learn_the_scripts_waits_for_no_silent_master(world: World) -> None:
    """As one that was promoted or restarted while another hangs."""
    with servers.cluster("redis-cluster", 3, *NOT_MISSED) as cluster:
        assert isinstance(cluster, RedisCluster)
        store = world.open(cluster.url)
        names = {slot(b"{n%d}" % number) * len(cluster.members) // SLOTS: f"n{number}" for number in range(30)}
        grants = [world.granted(store, names[home]) for home in range(3)]
        assert list(world.run(store.renew(grants, SOON))) == grants
        with silent(cluster.members[1]):
            conversations: list[Callable[[], Coroutine[Any, Any, object]]] = [
                lambda: store.renew([grants[0], grants[2]], SOON),
                lambda: store.claim(grants[2].claim, SOON),
                lambda: store.release(grants[2].claim, SOON),
                lambda: store.claim(grants[0].claim, SOON),
            ]
            expected = [[grants[0], grants[2]], grants[2], True, grants[0]]
            for conversation, answer in zip(conversations, expected, strict=True):
                for member in (cluster.members[0], cluster.members[2]):
                    member.execute("SCRIPT", "FLUSH")
                with at_most(0):
                    assert world.run(conversation()) == answer


def test_who_has_no_time_left_waits_for_nobody(own_redis: Redis, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that a second asking has may be over before it begins."""
    monkeypatch.setattr(wire, "_FRESH", 60.0)  # so long a connection is used as it is
    store = world.open(own_redis.url)
    world.granted(store, "x")
    rescue = threading.Timer(3 * MOMENT, own_redis.resume)  # of whoever would wait for ever
    rescue.start()
    with silent(own_redis), at_most(0), pytest.raises(Unavailable):
        world.run(store.claim(claim_of("y"), -0.001))
    rescue.cancel()


def test_a_name_that_no_resolver_answers_for_takes_no_longer_than_was_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()

    def never(*_: object, flags: int = 0, **__: object) -> list[object]:
        if not flags:  # an address in numbers is not looked up
            answered.wait(20)
        raise OSError("no such name")

    monkeypatch.setattr(socket, "getaddrinfo", never)
    try:
        store = world.open("redis://nobody.example")
        with at_most(WITHIN), pytest.raises(Unavailable, match=r"nobody\.example"):
            world.run(store.claim(claim_of("x"), WITHIN))
    finally:
        answered.set()


def test_one_silent_connection_is_trouble_and_no_loss(redis: Redis, proxy: Proxy, world: World) -> None:
    """An answer that comes late extends nothing, and is nobody else's answer."""
    store = world.open(f"redis://127.0.0.1:{proxy.port}")
    grants = [world.granted(store, name) for name in "ab"]
    assert list(world.run(store.renew(grants, SOON))) == grants
    proxy.to_client.delay(WITHIN * 1.5)
    with at_most(WITHIN), pytest.raises(Unavailable):
        world.run(store.renew(grants, WITHIN))
    proxy.flow()
    assert world.run(store.release(grants[0].claim))
    assert list(world.run(store.renew(grants, SOON))) == [None, grants[1]]


def test_waiters_are_woken_from_any_thread(redis: Redis, world: World) -> None:
    store = world.open(redis.url)
    grant = world.granted(store, "x")
    waiting = world.place(store, "x")
    conversations: list[Callable[[], Coroutine[Any, Any, None]]] = [
        lambda: store.wait(waiting, 30.0),
        lambda: store.watch("x", grant.token, 30.0),
    ]
    for conversation in conversations:
        timer = threading.Timer(0.3, store.wake_waiters)
        timer.start()
        with at_most(0.3):
            world.run(conversation())
        timer.join()


def test_a_store_that_was_closed_opens_no_connection_again(own_redis: Redis, world: World) -> None:
    store = world.open(own_redis.url)
    grant = world.granted(store, "x")
    waiting = world.place(store, "x")
    world.run(store.renew([grant], 1.0))
    world.run(store.close())
    for conversation in (
        lambda: store.claim(waiting.claim),
        lambda: store.release(grant.claim),
        lambda: store.inspect("x"),
        lambda: store.renew([grant], 1.0),
        lambda: store.watch("x", 0, 1.0),
    ):
        with pytest.raises((Misuse, Unavailable), match="closed"):
            world.run(conversation())
    with at_most(1):
        world.run(store.wait(waiting, 1.0))
    clients = own_redis.execute("CLIENT", "LIST")
    assert isinstance(clients, bytes)
    assert clients.count(b"\n") == 1  # the one that asks


def test_a_signal_starts_no_timeout_anew(own_redis: Redis) -> None:
    store = open_store(own_redis.url, Threads())
    grant = finish(store.claim(claim_of("x")))
    waiting = finish(store.claim(claim_of("x")))
    assert isinstance(grant, Grant)
    assert isinstance(waiting, Place)
    with alarms(0.05):
        with at_most(WITHIN):
            finish(store.wait(waiting, WITHIN))
        with silent(own_redis):
            for conversation in (
                lambda: store.claim(claim_of("y"), WITHIN),
                lambda: store.release(grant.claim, WITHIN),
                lambda: store.renew([grant], WITHIN),
                lambda: open_store(own_redis.url, Threads()).claim(claim_of("y"), WITHIN),
            ):
                with at_most(WITHIN), pytest.raises(Unavailable):
                    finish(conversation())
    finish(store.close())


class Interrupted(BaseException):
    pass


@contextmanager
def interrupted_at(line: int) -> Iterator[list[int]]:
    """Raises at the n-th line of the store's code that is run in this thread; says how many there were."""
    seen = [0]

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if "/holdfast/stores/" not in frame.f_code.co_filename or frame.f_code.co_name == "<genexpr>":
            return None
        # A `with` line is run again when its block is left, at a point where no signal can come: not there.
        if event == "line" and not getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            seen[0] += 1
            if seen[0] == line:
                raise Interrupted
        return trace

    sys.settrace(trace)
    try:
        yield seen
    except Interrupted:
        pass
    finally:
        sys.settrace(None)


def test_whatever_line_is_interrupted_nothing_stays_taken_and_others_hear_their_bells(redis: Redis) -> None:
    store, others = open_store(redis.url, Threads()), open_store(redis.url, Threads())
    line, interrupted = 0, True
    while interrupted:
        line += 1
        holding = finish(others.claim(claim_of("x")))
        assert isinstance(holding, Grant), f"the ghost of line {line - 1} has it"
        mine = claim_of("x")
        with interrupted_at(line) as seen:
            answer = finish(store.claim(mine))
            assert isinstance(answer, Place)
            finish(store.wait(answer, 0.002))
            finish(store.release(mine))
        interrupted = seen[0] >= line
        with at_most(0):
            finish(store.release(mine))
            _next_hears(store, others, holding)
        assert finish(others.inspect("x")).waiters == ()
    assert line > 50
    finish(store.close())
    finish(others.close())


def _next_hears(store: RedisStore, others: RedisStore, holding: Grant) -> None:
    waiting = finish(store.claim(claim_of("x")))
    assert isinstance(waiting, Place)
    heard = threading.Event()

    def wait() -> None:
        finish(store.wait(waiting, 5.0))
        heard.set()

    thread = in_background(wait)
    assert finish(others.release(holding.claim))
    assert heard.wait(3)
    thread.join()
    assert finish(store.release(waiting.claim)) in (True, False)
