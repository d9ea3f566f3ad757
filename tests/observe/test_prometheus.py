"""What Prometheus is told, moment by moment, on a clock of the test's own where time matters."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import holdfast
from holdfast import Locks, Misuse, NotAcquired, Unavailable, fenced
from holdfast.observe.prometheus import Prometheus
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual, connect


class Watched:
    """A connection on a clock that stands still, and what Prometheus would read of it."""

    def __init__(self) -> None:
        self.driver = Manual()
        self.registry = CollectorRegistry()
        self.exporter = Prometheus(registry=self.registry)
        self.locks = self.connect()

    def connect(self) -> Locks:
        locks = connect(self.driver)
        self.exporter(locks)
        return locks

    def read(self, metric: str, name: str = "x", kind: str = "mutex", **labels: str) -> float | None:
        known = {"lock_system": "memory", "lock_kind": kind, "lock_name": name, **labels}
        return self.registry.get_sample_value(metric, known)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_life_is_counted_and_measured(watched: Watched) -> None:
    lease = watched.locks.lock("x", ttl=30).acquire()
    assert watched.read("lock_held") == 1
    watched.driver.pass_time(15)
    lease.release()
    assert watched.read("lock_held") == 0
    assert watched.read("lock_acquire_duration_seconds_count", outcome="acquired") == 1
    assert watched.read("lock_hold_duration_seconds_sum", outcome="released") == pytest.approx(15)
    assert watched.read("lock_renewals_total", outcome="renewed") == 1
    assert watched.read("lock_renewal_margin_seconds_sum") == pytest.approx(20, abs=0.1)
    assert watched.read("lock_contentions_total") == 0


def test_what_an_alert_reads_is_there_before_it_happens(watched: Watched) -> None:
    """increase() does not see a series that begins at 1."""
    watched.locks.lock("x").acquire()
    for metric, labels in {
        "lock_losses_total": {},
        "lock_release_failures_total": {},
        "lock_renewals_total": {"outcome": "late"},
        "lock_store_errors_total": {"operation": "claim"},
        "lock_waiting": {},
    }.items():
        assert watched.read(metric, **labels) == 0, metric


def test_a_wait_in_vain_is_measured_and_leaves_nobody_in_line(watched: Watched) -> None:
    watched.locks.lock("x", ttl=600).acquire()
    with pytest.raises(NotAcquired):
        watched.connect().lock("x").acquire(timeout=5)
    assert watched.read("lock_contentions_total") == 1
    assert watched.read("lock_acquire_duration_seconds_sum", outcome="not_acquired") == pytest.approx(5)
    assert watched.read("lock_wait_duration_seconds_sum") == pytest.approx(5)
    assert watched.read("lock_waiting") == 0


def test_one_who_only_tried_was_never_in_line(watched: Watched) -> None:
    watched.locks.lock("x").acquire()
    assert watched.connect().lock("x").try_acquire() is None
    assert watched.read("lock_contentions_total") == 0
    assert watched.read("lock_wait_duration_seconds_count") == 0
    assert watched.read("lock_acquire_duration_seconds_count", outcome="not_acquired") == 1


def test_a_loss_is_counted_once_and_the_lock_is_held_no_more(watched: Watched) -> None:
    hand = tamper(watched.locks)
    watched_lease = watched.locks.lock("x", ttl=30).acquire()
    hand.fail("renew", times=10**6)
    watched.driver.pass_time(31)
    assert not watched_lease.held
    assert watched.read("lock_losses_total") == 1
    assert watched.read("lock_held") == 0
    assert watched.read("lock_hold_duration_seconds_count", outcome="lost") == 1
    assert watched.read("lock_renewals_total", outcome="failed") == 1
    assert (watched.read("lock_store_errors_total", operation="renew") or 0) > 1


def test_a_renewal_that_was_confirmed_with_less_than_a_third_left_is_late(watched: Watched) -> None:
    hand = tamper(watched.locks)
    lease = watched.locks.lock("x", ttl=30).acquire()
    hand.fail("renew", times=10**6)
    watched.driver.pass_time(22)
    hand.fail("renew", times=0)
    watched.driver.pass_time(3)
    assert lease.held
    assert watched.read("lock_renewals_total", outcome="late") == 1


def test_a_release_that_fails_is_struck_out_when_the_background_gives_up(watched: Watched) -> None:
    hand = tamper(watched.locks)
    lease = watched.locks.lock("x", ttl=30).acquire()
    hand.fail("release", times=10**6)
    with pytest.raises(Unavailable):
        lease.release()
    assert watched.read("lock_held") == 1, "the store still has it"
    watched.driver.pass_time(31)
    assert watched.read("lock_release_failures_total") == 1
    assert watched.read("lock_held") == 0


def test_a_release_that_the_background_brings_about_is_a_release(watched: Watched) -> None:
    hand = tamper(watched.locks)
    lease = watched.locks.lock("x", ttl=30).acquire()
    hand.fail("release", times=3)
    with pytest.raises(Unavailable):
        lease.release()
    watched.driver.pass_time(5)
    assert watched.read("lock_held") == 0
    assert watched.read("lock_hold_duration_seconds_count", outcome="released") == 1
    assert watched.read("lock_release_failures_total") == 0


def test_an_acquire_that_fails_is_counted_as_such(watched: Watched) -> None:
    tamper(watched.locks).fail("claim", times=10**6)
    with pytest.raises(Unavailable):
        watched.locks.lock("x").acquire(timeout=1)
    assert watched.read("lock_acquire_duration_seconds_count", outcome="failed") == 1
    assert (watched.read("lock_store_errors_total", operation="claim") or 0) >= 1
    assert watched.read("lock_held") == 0


def test_a_dropped_lease_is_held_no_more(watched: Watched) -> None:
    watched.locks.lock("x", ttl=30).acquire()
    watched.driver.pass_time(11)
    assert watched.read("lock_held") == 0
    assert watched.read("lock_hold_duration_seconds_count", outcome="dropped") == 1


def test_closing_leaves_nobody_inside() -> None:
    registry = CollectorRegistry()
    with holdfast.connect("memory://closing", observe=[Prometheus(registry=registry)]) as locks:
        leases = [locks.lock(f"x:{n}").acquire() for n in range(3)]
        labels = {"lock_system": "memory", "lock_kind": "mutex", "lock_name": "x:{n}"}
        assert registry.get_sample_value("lock_held", labels) == 3
    assert not any(lease.held for lease in leases)
    assert registry.get_sample_value("lock_held", labels) == 0


def test_who_waits_now_and_for_how_long_can_be_read_meanwhile_also_if_it_is_cancelled() -> None:
    registry = CollectorRegistry()
    labels = {"lock_system": "memory", "lock_kind": "mutex", "lock_name": "x"}

    async def scene() -> None:
        async with holdfast.aio.connect("memory://", observe=[Prometheus(registry=registry)]) as locks, locks.lock("x"):
            waits = asyncio.Event()
            locks.subscribe(lambda event: waits.set(), ["waiting"])
            waiter = asyncio.create_task(locks.lock("x").acquire())
            await waits.wait()
            assert registry.get_sample_value("lock_waiting", labels) == 1
            first = registry.get_sample_value("lock_oldest_wait_seconds", labels) or 0.0
            await asyncio.sleep(0.01)
            assert (registry.get_sample_value("lock_oldest_wait_seconds", labels) or 0.0) > first
            assert (registry.get_sample_value("lock_oldest_hold_seconds", labels) or 0.0) > 0
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
            assert registry.get_sample_value("lock_waiting", labels) == 0
            assert registry.get_sample_value("lock_oldest_wait_seconds", labels) == 0

    asyncio.run(scene())


def test_a_leader_and_who_stands_by_are_no_holder_and_no_waiter_of_a_mutex() -> None:
    """Else every candidate would starve, by the alert, after five minutes."""
    registry = CollectorRegistry()
    labels = {"lock_system": "memory", "lock_kind": "election", "lock_name": "x"}
    with holdfast.connect("memory://", observe=[Prometheus(registry=registry)]) as locks:
        election, waits = locks.election("x"), threading.Event()
        locks.subscribe(lambda event: waits.set(), ["waiting"])

        def stand() -> None:
            with election.lead():
                pass

        with election.lead():
            standing = threading.Thread(target=stand)
            standing.start()
            assert waits.wait(20)
            assert registry.get_sample_value("lock_held", labels) == 1
            assert registry.get_sample_value("lock_waiting", labels) == 1
        standing.join(20)
    assert registry.get_sample_value("lock_hold_duration_seconds_count", {**labels, "outcome": "released"}) == 2
    assert registry.get_sample_value("lock_held", {**labels, "lock_kind": "mutex"}) is None


def test_threads_that_wait_for_each_other_end_with_nobody_in_line() -> None:
    registry = CollectorRegistry()
    labels = {"lock_system": "memory", "lock_kind": "mutex", "lock_name": "x"}
    with holdfast.connect("memory://", observe=[Prometheus(registry=registry)]) as locks:

        def work() -> None:
            for _ in range(20):
                with locks.lock("x"):
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert registry.get_sample_value("lock_waiting", labels) == 0
    assert registry.get_sample_value("lock_held", labels) == 0
    waits = registry.get_sample_value("lock_wait_duration_seconds_count", labels)
    assert waits == registry.get_sample_value("lock_contentions_total", labels)


def test_the_same_token_of_two_stores_is_two_locks(watched: Watched) -> None:
    other = connect(Manual())
    watched.exporter(other)
    one, two = watched.locks.lock("x").acquire(), other.lock("x").acquire()
    assert watched.read("lock_held") == 2
    one.release()
    assert watched.read("lock_held") == 1
    assert two.held


def test_kinds_of_locks_are_told_apart_and_ids_are_not(watched: Watched) -> None:
    locks = watched.locks
    held = [locks.semaphore("gpu", 4).acquire(units=2), locks.rwlock("catalog").write().acquire()]
    held += [locks.rwlock(f"page:{n}").read().acquire() for n in range(3)]
    assert watched.read("lock_held", "gpu", "semaphore") == 1
    assert watched.read("lock_held", "catalog", "write") == 1
    assert watched.read("lock_held", "page:{n}", "read") == 3


def test_ids_by_the_thousand_make_no_more_series_than_the_limit() -> None:
    registry = CollectorRegistry()
    exporter = Prometheus(name=lambda name: name, limit=5, registry=registry)
    with holdfast.connect("memory://", observe=[exporter]) as locks:
        for n in range(6000):
            with locks.lock(f"x:{n}"):
                pass
    seen = {sample.labels["lock_name"] for metric in registry.collect() for sample in metric.samples}
    assert seen == {*(f"x:{n}" for n in range(5)), "(other)"}
    assert len(exporter._remembered) <= 4096


def test_a_refusal_of_storage_is_counted(watched: Watched) -> None:
    store: fenced.Memory[int] = fenced.Memory()
    store.write(("invoice:42", 7), 1)
    with pytest.raises(holdfast.StaleToken):
        store.write(("invoice:42", 6), 2)
    assert watched.registry.get_sample_value("lock_fence_refusals_total", {"lock_name": "invoice:{n}"}) == 1


def test_an_exporter_that_fails_never_touches_a_lock(caplog: pytest.LogCaptureFixture) -> None:
    def broken(name: str) -> str:
        raise ZeroDivisionError("the exporter's own")

    exporter = Prometheus(name=broken, registry=CollectorRegistry())
    with holdfast.connect("memory://", observe=[exporter]) as locks:
        with locks.lock("x") as lease:
            assert lease.held
        assert locks.lock("x").try_acquire() is not None
    assert "a subscriber to 'acquired' failed" in caplog.text


def test_a_forked_child_holds_nothing_and_its_parent_still_does() -> None:
    registry = CollectorRegistry()
    labels = {"lock_system": "memory", "lock_kind": "mutex", "lock_name": "x"}
    with holdfast.connect("memory://", observe=[Prometheus(registry=registry)]) as locks, locks.lock("x"):
        child = os.fork()
        if child == 0:
            os._exit(int(registry.get_sample_value("lock_held", labels) or 0))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert registry.get_sample_value("lock_held", labels) == 1


@pytest.mark.parametrize("wrong", [{"name": "x"}, {"limit": 0}, {"limit": True}])
def test_a_wrong_setting_is_refused_at_construction(wrong: dict[str, object]) -> None:
    build: Callable[..., object] = Prometheus
    with pytest.raises(Misuse):
        build(registry=CollectorRegistry(), **wrong)


def test_several_processes_of_one_server_are_added_up(tmp_path: Path) -> None:
    script = """
import os, holdfast
from prometheus_client import CollectorRegistry, generate_latest, multiprocess
with holdfast.connect("memory://", observe=["prometheus"]) as locks, locks.lock("x"):
    child = os.fork()
    if child == 0:
        lease = locks.lock("y:1").acquire()
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        print(generate_latest(registry).decode(), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    environ = {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    run = [sys.executable, "-c", script]
    printed = subprocess.run(run, env=environ, check=True, capture_output=True, text=True, timeout=60).stdout
    assert 'lock_held{lock_kind="mutex",lock_name="x",lock_system="memory"} 1.0' in printed
    assert 'lock_held{lock_kind="mutex",lock_name="y:{n}",lock_system="memory"} 1.0' in printed
