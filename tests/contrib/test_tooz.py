"""The real tooz, with holdfast behind it: found by its entry point, on real stores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import tooz
from tooz import coordination

import holdfast
from holdfast.connecting import BUILT_IN
from holdfast.contrib.tooz import HoldfastLock
from holdfast.testing.servers.redis import Redis

Member = Callable[[str], coordination.CoordinationDriver]


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/locks.db"
    redis: Redis = request.getfixturevalue("redis")
    return redis.url


@pytest.fixture
def member(url: str) -> Iterator[Member]:
    started: list[coordination.CoordinationDriver] = []

    def join(name: str) -> coordination.CoordinationDriver:
        made = coordination.get_coordinator(f"holdfast+{url}", name.encode())
        made.start(start_heart=True)
        started.append(made)
        return made

    yield join
    for one in started:
        if one.is_started:
            one.stop()


def lock_of(coordinator: coordination.CoordinationDriver, name: bytes = b"volume-7") -> HoldfastLock:
    found = coordinator.get_lock(name)
    assert isinstance(found, HoldfastLock)
    return found


def test_every_store_is_a_backend_of_tooz() -> None:
    assert {one.name for one in entry_points(group="tooz.backends") if "holdfast" in one.value} == {
        f"holdfast+{scheme}" for scheme in BUILT_IN
    }


def test_while_one_is_inside_another_is_refused_and_then_gets_in(member: Member) -> None:
    a, b = lock_of(member("a")), lock_of(member("b"))
    assert a.acquire() is True
    assert a.lease is not None
    assert b.acquire(blocking=False) is False
    assert b.acquire(blocking=0.01) is False
    assert b.acquire(timeout=0) is False
    assert (a.acquired, b.acquired) == (True, False)
    assert (a.is_still_owner(), b.is_still_owner()) == (True, False)
    assert b.release() is False, "it is not its own"
    assert a.is_still_owner()
    token = a.lease.token
    assert a.release() is True
    assert a.release() is False
    with b:
        assert b.lease is not None
        assert b.lease.token > token
    assert not b.acquired


def test_who_waits_is_let_in_by_the_release(member: Member) -> None:
    a, b = lock_of(member("a")), lock_of(member("b"))
    inside = threading.Event()

    def wait() -> None:
        with b:
            inside.set()

    with a:
        waiting = threading.Thread(target=wait)
        waiting.start()
        assert not inside.wait(0.05)
    assert inside.wait(30)
    waiting.join(30)


def test_with_raises_where_the_lock_is_not_to_be_had(member: Member) -> None:
    a, b = lock_of(member("a")), lock_of(member("b"))
    with a, pytest.raises(coordination.LockAcquireFailed), b(blocking=False):
        raise AssertionError("without the lock")


def test_a_broken_lock_is_somebody_elses_and_its_old_owner_is_none(member: Member) -> None:
    a, b = lock_of(member("a")), lock_of(member("b"))
    assert a.acquire()
    assert b.break_() is True
    assert b.break_() is False
    assert a.is_still_owner() is False
    assert b.acquire(timeout=30)
    assert a.release() is False
    assert b.is_still_owner(), "the old owner's release leaves the new one alone"


def test_stopping_gives_back_what_is_held(member: Member, url: str) -> None:
    leaving = member("leaving")
    held = lock_of(leaving)
    assert held.acquire()
    with holdfast.connect(url) as locks:
        assert [one.owner.rpartition("/")[2] for one in locks.inspect("volume-7").holders] == ["leaving"]
        leaving.stop()
        with locks.lock("volume-7", timeout=30):
            assert not held.is_still_owner()


def test_it_excludes_holdfasts_own_lock_of_that_name(member: Member, url: str) -> None:
    with holdfast.connect(url) as locks, lock_of(member("a")):
        assert locks.lock("volume-7").try_acquire() is None


def test_what_it_cannot_do_is_said_in_tooz_words(member: Member) -> None:
    coordinator = member("a")
    with pytest.raises(tooz.NotImplemented):
        coordinator.create_group(b"group")
    with pytest.raises(tooz.NotImplemented, match="rwlock"):
        lock_of(coordinator).acquire(shared=True)
    with pytest.raises(tooz.ToozError, match="must be UTF-8"):
        coordinator.get_lock(b"\xff")
    with lock_of(coordinator) as held, pytest.raises(tooz.ToozError, match="you hold 'volume-7' already"):
        held.acquire()


def test_a_server_that_is_not_there_and_a_wrong_option_are_told_at_the_start() -> None:
    nowhere = coordination.get_coordinator("holdfast+redis://127.0.0.1:1", b"a")
    with pytest.raises(coordination.ToozConnectionError, match=r"127\.0\.0\.1:1"):
        nowhere.start()
    with pytest.raises(tooz.ToozError, match="not started"):
        nowhere.get_lock(b"x")
    with pytest.raises(tooz.ToozError, match="lock_timeout"):
        coordination.get_coordinator("holdfast+memory://", b"a", lock_timeout=3)


def test_how_far_it_reaches_is_among_its_characteristics() -> None:
    hosts = [coordination.Characteristics.DISTRIBUTED_ACROSS_HOSTS]
    coordination.get_coordinator("holdfast+redis://localhost", b"a", characteristics=hosts)
    with pytest.raises(coordination.ToozDriverChosenPoorly):
        coordination.get_coordinator("holdfast+memory://", b"a", characteristics=hosts)


# ---- mistakes that these tests must find


def test_a_lock_that_lets_everybody_in_is_found(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HoldfastLock, "acquire", lambda self, *_, **__: self.name is not None)
    with pytest.raises(AssertionError, match="without the lock"):
        test_with_raises_where_the_lock_is_not_to_be_had(member)


def test_a_release_that_puts_out_whoever_is_inside_is_found(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HoldfastLock, "release", lambda self: not self.break_())
    with pytest.raises(AssertionError, match="leaves the new one alone"):
        test_a_broken_lock_is_somebody_elses_and_its_old_owner_is_none(member)
