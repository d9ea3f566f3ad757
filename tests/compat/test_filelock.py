"""filelock's FileLock on our stores does what filelock's FileLock says."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.compat.filelock import FileLock, Timeout
from holdfast.testing.manual import Manual, connect


@pytest.fixture
def driver() -> Manual:
    return Manual()


@pytest.fixture
def locks(driver: Manual) -> holdfast.Locks:
    return connect(driver)


def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def test_one_path_is_one_lock(locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with FileLock("a.lock", locks=locks) as lock:
        assert lock.is_locked
        with pytest.raises(Timeout, match=r"The file lock '.*a\.lock' could not be acquired"):
            FileLock(tmp_path / "a.lock", timeout=0, locks=locks).acquire()
        with FileLock("b.lock", timeout=0, locks=locks):
            pass
    assert not lock.is_locked
    assert list(tmp_path.iterdir()) == [], "no file is made"


def test_it_is_entered_again_and_left_as_often(locks: holdfast.Locks) -> None:
    lock = FileLock("/x.lock", locks=locks)
    with lock:
        with lock.acquire(timeout=1):
            assert lock.lock_counter == 2
        assert lock.lock_counter == 1
        assert lock.is_locked
    assert lock.lock_counter == 0
    assert not lock.is_locked
    lock.acquire()
    lock.acquire()
    lock.release(force=True)
    assert not lock.is_locked
    lock.release()


@pytest.mark.parametrize("asked", [{"timeout": 0}, {"blocking": False}, {"timeout": 0.5}])
def test_who_does_not_get_it_in_time_is_told(locks: holdfast.Locks, asked: dict[str, float]) -> None:
    with FileLock("/x.lock", locks=locks), pytest.raises(Timeout):
        FileLock("/x.lock", locks=locks).acquire(**asked)  # type: ignore[arg-type]  # a mixed bag


def test_a_lock_that_was_lost_within_the_body_is_told(driver: Manual, locks: holdfast.Locks) -> None:
    with pytest.raises(holdfast.LeaseLost), FileLock("/x.lock", locks=locks) as lock:
        assert lock.lease is not None
        connect(driver).force_release(lock.lease.name, token=lock.lease.token)
        driver.pass_time(20)


def test_without_a_store_it_is_that_of_everybody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite://{tmp_path}/locks.db")
    with FileLock("/x.lock"), holdfast.connect() as locks:
        assert locks.names() == ["file:/x.lock"]


def test_the_error_crosses_processes_whole() -> None:
    assert pickle.loads(pickle.dumps(Timeout("/x.lock"))).lock_file == "/x.lock"


def test_nobody_enters_what_another_thread_is_giving_back() -> None:
    """Without thread_local the object is shared, and is entered by whoever comes while it is held."""
    with holdfast.connect("memory://") as locks:
        lock = FileLock("/x.lock", thread_local=False, locks=locks)
        threads = [threading.Thread(target=lock.acquire)]

        def come(_: object) -> None:
            stop()
            threads[0].start()
            threads[0].join(0.5)  # who waits here as one should does so until release() has returned

        lock.acquire()
        stop = locks.subscribe(come, ["released"])
        lock.release()
        threads[0].join(30)
        assert lock.is_locked
        with pytest.raises(Timeout):
            FileLock("/x.lock", timeout=0, locks=locks).acquire()
        lock.release()
        assert not lock.is_locked


def test_threads_that_share_it_leave_it_free() -> None:
    with holdfast.connect("memory://") as locks:
        lock = FileLock("/x.lock", thread_local=False, locks=locks)
        bare: list[bool] = []

        def enter_often() -> None:
            for _ in range(200):
                with lock.acquire(timeout=30):
                    if not lock.is_locked:
                        bare.append(True)

        threads = [threading.Thread(target=enter_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert bare == [], "inside, and nothing was held"
        assert (lock.lock_counter, lock.is_locked, locks.names()) == (0, False, [])


def test_who_lost_it_does_not_give_back_what_another_thread_has_taken_since() -> None:
    with holdfast.connect("memory://") as locks:
        lock = FileLock("/x.lock", thread_local=False, locks=locks)
        two = [threading.Thread(target=lock.acquire) for _ in range(2)]
        with locks.lock("file:/x.lock"):
            for number, thread in enumerate(two, 1):
                thread.start()
                until(lambda number=number: len(locks.inspect("file:/x.lock").waiters) == number)  # type: ignore[misc]
        until(lambda: lock.lock_counter == 1)
        assert lock.lease is not None
        locks.force_release("file:/x.lock", token=lock.lease.token)
        until(lambda: lock.lock_counter == 2)
        lock.release()  # whoever lost it
        assert lock.is_locked
        lock.release()
        assert not lock.is_locked


def test_of_one_path_all_singletons_are_entered_as_one(locks: holdfast.Locks) -> None:
    one, other = (FileLock("/x.lock", is_singleton=True, locks=locks) for _ in range(2))
    with one, other:
        assert (one.lock_counter, other.lock_counter) == (2, 2)
        with pytest.raises(Timeout):
            FileLock("/x.lock", timeout=0, locks=locks).acquire()
    assert not one.is_locked
    assert one.is_singleton


def test_it_decorates(locks: holdfast.Locks) -> None:
    lock = FileLock("/x.lock", locks=locks)

    @lock
    def inside() -> bool:
        return lock.is_locked

    assert inside()
    assert not lock.is_locked


def test_what_acquire_returns_is_the_lock_once_it_is_entered(locks: holdfast.Locks) -> None:
    lock = FileLock("/x.lock", timeout=float("inf"), poll_interval=0.2, locks=locks)
    with lock.acquire(poll_interval=1) as entered:
        assert entered is lock
    assert (lock.poll_interval, lock.mode, lock.is_thread_local()) == (0.2, 0o644, True)


def test_a_check_ends_the_wait(locks: holdfast.Locks) -> None:
    with FileLock("/x.lock", locks=locks), pytest.raises(Timeout):
        FileLock("/x.lock", timeout=30, locks=locks).acquire(cancel_check=lambda: True)


def test_the_error_is_the_one_that_people_catch() -> None:
    filelock = pytest.importorskip("filelock", reason="only the main environment has it")
    assert Timeout is filelock.Timeout
