"""filelock's FileLock on our stores does what filelock's FileLock says."""

from __future__ import annotations

import pickle
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
