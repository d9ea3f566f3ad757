"""What the core relies on in a networked store, asked of a real server in threads and in asyncio.

A store's tests inherit from `Contract`, beside a fixture `server`.
"""

from __future__ import annotations

import asyncio
import linecache
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.errors import Unavailable
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.base import Server

SOON = 20.0
SLACK = 1.5  # of a busy machine
EVERY = 4  # lines that are interrupted in one run of the tests: others in the next
Open = Callable[..., "Hand"]


class Hand:
    """A store in one world."""

    def __init__(self, open_store: Callable[[str, Any], Any], url: str, world: str) -> None:
        self.runner = asyncio.Runner() if world == "asyncio" else None
        self.store = open_store(url, Asyncio() if self.runner else Threads())

    def __call__(self, method: str, *args: Any) -> Any:
        work = getattr(self.store, method)(*args)
        return self.runner.run(work) if self.runner else finish(work)

    def in_background(self, method: str, *args: Any) -> Later:
        return Later(lambda: self(method, *args))

    def close(self) -> None:
        self("close")
        if self.runner:
            self.runner.close()


class Later:
    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._action()
        except BaseException as error:
            self._error = error

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def result(self, within: float = SOON) -> Any:
        self._thread.join(within)
        assert not self._thread.is_alive(), f"not done within {within:g} s"
        if self._error is not None:
            raise self._error
        return self._result


def until(condition: Callable[[], object], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {within:g} s"
        time.sleep(0.005)


def claim_of(name: str, ttl: float = 30.0, **more: Any) -> Claim:
    return Claim(name, new_holder(), "host/1/somebody", ttl, **more)


class Contract:
    open_store: Callable[[str, Any], Any]

    def url(self, address: tuple[str, int], options: str = "") -> str:
        raise NotImplementedError

    @pytest.fixture(params=["threads", "asyncio"])
    def world(self, request: pytest.FixtureRequest) -> str:
        chosen: str = request.param
        return chosen

    @pytest.fixture
    def hand(self, server: Server, world: str) -> Iterator[Open]:
        """A store; by way of `through`, if that is given."""
        hands: list[Hand] = []

        def open_one(through: Proxy | None = None) -> Hand:
            address = through.address if through else server.address
            hands.append(Hand(type(self).open_store, self.url(address), world))
            return hands[-1]

        yield open_one
        server.resume()
        for one in hands:
            one.close()

    @pytest.fixture
    def proxy(self, server: Server) -> Iterator[Proxy]:
        with Proxy(server.address) as between:
            yield between

    # ---- time

    @pytest.mark.parametrize("what", ["claim", "release", "inspect"])
    def test_a_silent_server_takes_no_longer_than_asked(self, server: Server, hand: Open, what: str) -> None:
        store = hand()
        held = claim_of(uuid4().hex)
        store("claim", held)
        server.pause()
        began = time.monotonic()
        with pytest.raises(Unavailable, match="127"):
            store(what, held.name if what == "inspect" else held, 0.5)
        assert time.monotonic() - began < 0.5 + SLACK

    def test_to_connect_to_a_silent_server_takes_no_longer_than_asked(self, server: Server, hand: Open) -> None:
        server.pause()
        began = time.monotonic()
        with pytest.raises(Unavailable, match="127"):
            hand()("claim", claim_of("x"), 0.5)
        assert time.monotonic() - began < 0.5 + SLACK

    def test_to_close_takes_a_second_though_the_server_is_silent(self, server: Server, hand: Open) -> None:
        store = hand()
        for ttl in (20.0, 40.0, 60.0):
            mine = claim_of(uuid4().hex, ttl)
            store("claim", mine)
            store("release", mine)
        server.pause()
        began = time.monotonic()
        store("close")
        assert time.monotonic() - began < 1 + SLACK

    @pytest.mark.parametrize("timeout", [0.0, 0.001, 0.05, 0.3])
    def test_to_wait_for_a_moment_is_no_trouble(self, server: Server, hand: Open, timeout: float) -> None:
        """Though it takes longer to connect."""
        holder, waiter = hand(), hand()
        grant = holder("claim", claim_of(uuid4().hex))
        place = waiter("claim", claim_of(grant.claim.name))
        server.pause()
        began = time.monotonic()
        waiter("wait", place, timeout)
        waiter("watch", grant.claim.name, grant.token, timeout)
        assert time.monotonic() - began < 2 * timeout + SLACK

    def test_a_server_that_is_not_there_is_told_at_once(self, server: Server, hand: Open, proxy: Proxy) -> None:
        proxy.refuse()
        began = time.monotonic()
        with pytest.raises(Unavailable, match="127"):
            hand(proxy)("claim", claim_of("x"), 10.0)
        assert time.monotonic() - began < SLACK

    # ---- answers that are lost

    def test_a_release_whose_connection_was_cut_is_repeated_at_once(self, hand: Open, proxy: Proxy) -> None:
        far, near = hand(proxy), hand()
        mine = claim_of(uuid4().hex)
        assert isinstance(far("claim", mine), Grant)
        proxy.cut(reset=True)
        assert far("release", mine) is True
        assert not near("inspect", mine.name).holders

    def test_a_release_whose_answer_was_lost_is_repeated_and_says_that_it_left(self, hand: Open, proxy: Proxy) -> None:
        far, near = hand(proxy), hand()
        mine = claim_of(uuid4().hex)
        far("claim", mine)
        proxy.to_client.hold()
        leaving = far.in_background("release", mine, 10.0)
        until(lambda: not near("inspect", mine.name).holders)
        proxy.cut(reset=True)
        proxy.flow()
        assert leaving.result() is True

    def test_a_claim_whose_answer_was_lost_is_found_again_at_once(self, hand: Open, proxy: Proxy) -> None:
        far, near = hand(proxy), hand()
        warm, mine = claim_of(uuid4().hex), claim_of(uuid4().hex)
        far("claim", warm)
        proxy.to_client.hold()
        coming = far.in_background("claim", mine, 10.0)
        until(lambda: near("inspect", mine.name).holders)
        proxy.cut(reset=True)
        proxy.flow()
        grant = coming.result()
        assert isinstance(grant, Grant)
        assert [one.token for one in near("inspect", mine.name).holders] == [grant.token]

    # ---- three verdicts

    def test_a_renewal_without_an_answer_is_unknown_and_not_lost(self, server: Server, hand: Open) -> None:
        store = hand()
        grants = [store("claim", claim_of(uuid4().hex, ttl)) for ttl in (30.0, 60.0)]
        server.pause()
        began = time.monotonic()
        try:
            verdicts = store("renew", grants, 0.5)
        except Unavailable as error:
            verdicts = [error, error]
        assert all(isinstance(one, Unavailable) for one in verdicts)
        assert time.monotonic() - began < 0.5 + SLACK
        server.resume()
        assert store("renew", grants, 5.0) == grants

    def test_of_two_leases_the_one_that_is_gone_is_lost_and_the_other_kept(self, hand: Open) -> None:
        store, other = hand(), hand()
        grants = [store("claim", claim_of(uuid4().hex)) for _ in range(2)]
        assert other("evict", grants[0].claim.name, grants[0].token, "admin")
        assert store("renew", grants, 5.0) == [None, grants[1]]

    # ---- waking

    def asleep(self, store: Any) -> set[Any]:
        found: set[Any] = store._sleepers._bells
        return found

    def test_all_who_wait_are_woken_from_another_thread(self, hand: Open) -> None:
        holder, waiter = hand(), hand()
        name = uuid4().hex
        holder("claim", claim_of(name))
        place = waiter("claim", claim_of(name))
        assert isinstance(place, Place)
        waiting = waiter.in_background("wait", place, 60.0)
        until(lambda: self.asleep(waiter.store))
        waiter.store.wake_waiters()
        waiting.result()
        assert waiter("release", place.claim) is True
        assert not holder("inspect", name).waiters

    def test_all_who_watch_are_woken_from_another_thread(self, hand: Open) -> None:
        watcher = hand()
        grant = watcher("claim", claim_of(uuid4().hex))
        asleep = self.asleep(watcher.store)
        for _ in range(100):
            watching = watcher.in_background("watch", grant.claim.name, grant.token, 60.0)
            until(lambda one=watching: asleep or one.done)  # type: ignore[misc]
            if asleep:  # it may come home early, and then watches again
                break
        watcher.store.wake_waiters()
        watching.result()

    def test_a_waiter_whose_connection_is_closed_holds_up_nobody(self, server: Server) -> None:
        """It gives its place back, and does not leave it to its session to end."""
        name, url = uuid4().hex, self.url(server.address)
        with holdfast.connect(url) as a, holdfast.connect(url) as b, holdfast.connect(url) as c:
            held = a.lock(name).acquire()
            closed = Later(lambda: b.lock(name).acquire(timeout=60))
            until(lambda: len(a.inspect(name).waiters) == 1)
            behind = Later(lambda: c.lock(name).acquire(timeout=60))
            until(lambda: len(a.inspect(name).waiters) == 2)
            b.close()
            with pytest.raises(holdfast.HoldfastError):
                closed.result(10)
            until(lambda: len(a.inspect(name).waiters) == 1, within=5)
            held.release()
            behind.result(10).release()

    # ---- interruptions, forks

    def forget_sessions(self, store: Any) -> None:
        raise NotImplementedError

    def test_an_interruption_at_any_line_of_a_claim_leaves_nothing_taken(self, server: Server) -> None:
        store = Hand(type(self).open_store, self.url(server.address), "threads")
        try:
            for line in range(1 + os.getpid() % EVERY, 10_000, EVERY):
                self.forget_sessions(store.store)
                mine, next_one = claim_of("x"), claim_of("x")
                if not interrupted(line, lambda claim=mine: store("claim", claim)):  # type: ignore[misc]
                    store("release", mine)
                    break
                store("release", mine)
                assert isinstance(store("claim", next_one, 2.0), Grant), line
                store("release", next_one)
            assert line > 50
        finally:
            store.close()

    def test_an_interruption_at_any_line_of_a_release_leaves_nothing_taken(self, server: Server) -> None:
        store = Hand(type(self).open_store, self.url(server.address), "threads")
        try:
            for line in range(1 + os.getpid() % EVERY, 10_000, EVERY):
                mine = claim_of("x")
                assert isinstance(store("claim", mine, 2.0), Grant), line
                if not interrupted(line, lambda claim=mine: store("release", claim)):  # type: ignore[misc]
                    break
                store("release", mine)
            assert line > 20
        finally:
            store.close()

    def test_a_fork_while_nothing_is_claimed_disturbs_nobody(self, server: Server, world: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", _FORK, self.url(server.address), world],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == ["child", "parent"], done.stdout + done.stderr


_FORK = """
import asyncio, gc, os, sys, warnings, holdfast
from holdfast import aio
from holdfast.drivers.base import finish
warnings.simplefilter("ignore")
url, world = sys.argv[1:]

def say(text):
    os.write(1, (text + "\\\\n").encode())

def fork(child):
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            say("child")
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

def in_child():
    gc.collect()
    with holdfast.connect(url) as own, own.lock("theirs", timeout=10):
        gc.collect()

async def in_asyncio():
    async with aio.connect(url) as locks:
        await locks.inspect("x")
        await (await locks.lock("y").acquire(timeout=10)).release()
        fork(in_child)
        async with asyncio.timeout(2.5):
            await locks.inspect("x")
            await (await locks.lock("y").acquire(timeout=10)).release()

if world == "asyncio":
    asyncio.run(in_asyncio())
else:
    with holdfast.connect(url) as locks:
        locks.inspect("x")
        locks.lock("y").acquire(timeout=10).release()
        fork(in_child)
        locks.inspect("x")
        locks.lock("y").acquire(timeout=10).release()
say("parent")
""".replace("\\\\n", "\\n")

STORES = str(Path(sys.modules["holdfast.stores"].__file__ or "").parent)
PURE = (
    "book.py",
    "bounds.py",
    "entry.py",
    "replies.py",
    "requests.py",
    "keys.py",
    "url.py",
)  # nothing there can stay taken


def interrupted(line: int, action: Callable[[], object]) -> bool:
    """Ctrl-C at the n-th line of the store's code. False: it has fewer.

    (Not at a `with`: a tracer would come between a lock and its release, where no signal can.)
    """
    left = line

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        file = frame.f_code.co_filename
        if not file.startswith(STORES) or file.endswith(PURE):
            return None
        if event == "line":
            text = linecache.getline(file, frame.f_lineno).strip()
            if not text.startswith("with "):
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        action()
    except KeyboardInterrupt:
        assert left == 0
        return True
    finally:
        sys.settrace(None)
    return False
