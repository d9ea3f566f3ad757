"""A signal handler that raises, wherever it is heard: nothing stays taken, nothing stops, and nobody has to help."""

from __future__ import annotations

import gc
import sqlite3
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import holdfast
from holdfast import Locks, NotAcquired
from holdfast.asking import Ask
from holdfast.drivers.base import boot_time, finish
from holdfast.drivers.threads import Flag, Threads
from holdfast.lease import RELEASED, Lease
from holdfast.leaving import Leaving
from holdfast.renewal import Renewer
from holdfast.staying import Stay
from holdfast.stores.sqlite.database import Database

from .interrupting import Interruption, Stop
from .test_leaving import until

# Others tell a tracer less of what they do next; there, the conformance suite's random signals have to do.
pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="made for how CPython 3.11 is traced")

DEL = Lease.__del__.__code__
STAY_DEL = Stay.__del__.__code__


def everywhere(begin: Callable[[CodeType], bool] = lambda _: True) -> Iterator[Interruption]:
    """One after the other, until there is no such place any more."""
    n = 0
    while True:
        one = Interruption(n, begin, lambda code: code in (DEL, STAY_DEL))  # where we cannot do anything about it
        yield one
        if not one.where:
            break
        n += 1
    assert n > 10, "nothing was interrupted"


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    gc.collect()
    gc.disable()  # what others have dropped is not interrupted
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    gc.enable()


def is_free(locks: Locks, after: Interruption) -> None:
    try:
        until(lambda: not locks.names(), within=5)
    except AssertionError:
        pytest.fail(f"still taken, after an interruption at {after.where}")


def renewers() -> set[int]:
    """Threads that are at it just now. One whose start was interrupted may hang in the interpreter's own code: not ours."""
    found = set()
    for thread, top in sys._current_frames().items():
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_code is Renewer._run.__code__:
                found.add(thread)
            frame = frame.f_back
    return found


def is_one_more_than(before: set[int]) -> bool:
    return len(renewers() - before) == 1


def test_a_lease_that_is_dropped() -> None:
    for interruption in everywhere(lambda code: code is DEL):
        with (
            holdfast.connect("memory://interrupted drop") as locks,
            holdfast.connect("memory://interrupted drop") as other,
        ):
            lease: Any = locks.lock("x", ttl=600).acquire()
            with interruption:
                del lease
            is_free(other, interruption)


def test_a_grant_that_is_dropped_before_anybody_was_lent_it() -> None:
    for interruption in everywhere(lambda code: code is STAY_DEL):
        with (
            holdfast.connect("memory://interrupted stay") as locks,
            holdfast.connect("memory://interrupted stay") as other,
        ):
            stay: Any = finish(locks._engine.acquire(Ask("x", 600), 1, Stay))
            with interruption:
                del stay
            is_free(other, interruption)


def test_the_first_acquire_which_starts_the_renewer() -> None:
    for interruption in everywhere():
        with (
            holdfast.connect("memory://interrupted first") as locks,
            holdfast.connect("memory://interrupted first") as other,
        ):
            before = renewers()
            lock: Any = locks.lock("x", ttl=600)
            lease: Any = None
            try:
                with interruption:
                    lease = lock.acquire(timeout=1)
            except Stop:
                pass
            lease = None
            is_free(other, interruption)
            lease = lock.acquire(timeout=1)  # and all goes on
            assert lease.held
            until(partial(is_one_more_than, before))
            lease = None
            is_free(other, interruption)


def test_an_acquire_that_fails() -> None:
    with holdfast.connect("memory://interrupted failure") as other, other.lock("x") as inside:
        for interruption in everywhere():
            with holdfast.connect("memory://interrupted failure") as locks:
                try:
                    with interruption:
                        locks.lock("x", ttl=600).acquire(timeout=0.001)
                except (Stop, NotAcquired):
                    pass
                try:
                    until(lambda: not other.inspect("x").waiters, within=5)
                except AssertionError:
                    pytest.fail(f"still in line, after an interruption at {interruption.where}")
        assert inside.held


def test_what_is_released_in_the_background_is_not_left_to_somebody_who_was_never_started() -> None:
    for interruption in everywhere(lambda code: code is Leaving.go_on.__code__):
        with (
            holdfast.connect("memory://interrupted leaving") as locks,
            holdfast.connect("memory://interrupted leaving") as other,
        ):
            lease: Any = locks.lock("x", ttl=600).acquire()
            leaving = locks._engine.leaving
            try:
                with interruption:
                    leaving.later(lease._grant.claim, lease._deadline)
            except Stop:
                leaving.go_on()  # whoever comes next
            is_free(other, interruption)
            lease._state = RELEASED


def test_a_release() -> None:
    for interruption in everywhere():
        with (
            holdfast.connect("memory://interrupted release") as locks,
            holdfast.connect("memory://interrupted release") as other,
        ):
            lease: Any = locks.lock("x", ttl=600).acquire()
            try:
                with interruption:
                    lease.release()
            except Stop:
                pass
            lease = None
            is_free(other, interruption)


def test_a_lock_that_stays() -> None:
    with (
        holdfast.connect("memory://interrupted keeper") as locks,
        holdfast.connect("memory://interrupted keeper") as other,
    ):
        for interruption in everywhere():
            try:
                with interruption, locks.lock("x", ttl=600, keep=0.001, timeout=1):
                    pass
            except Stop:
                pass
            is_free(other, interruption)


def test_whoever_waits_for_a_loss_stops_nobody_who_tells_of_it() -> None:
    """Here it broke: the mutex of threading.Event stayed locked, and the renewer would have hung in telling of the loss."""
    for interruption in everywhere():
        with holdfast.connect("memory://interrupted loss") as locks, locks.lock("x", ttl=600) as lease:
            loss = lease.lost
            try:
                with interruption:
                    loss.wait(0.001)
            except Stop:
                pass
            told = threading.Thread(target=loss.over, daemon=True)
            told.start()
            told.join(5)
            assert not told.is_alive(), f"stuck, after an interruption at {interruption.where}"


def test_a_flag_is_seen_by_whoever_waits_before_and_after() -> None:
    flag = Flag()
    assert not flag.wait(0)
    seen: list[bool] = []
    waiters = [threading.Thread(target=lambda: seen.append(flag.wait(30)), daemon=True) for _ in range(3)]
    for one in waiters:
        one.start()
    until(lambda: len(flag._waiting) == 3)
    flag.set()
    for one in waiters:
        one.join(5)
    assert seen == [True] * 3
    assert flag.wait()
    assert flag._waiting == []
    flag.clear()
    assert not flag.wait(0)


@pytest.mark.parametrize("state", ["new", "known"])
def test_an_sqlite_file_that_is_being_opened(tmp_path: Path, state: str) -> None:
    """Here it broke: close() said AttributeError; and whoever kept the exception, kept the file locked."""
    for number, interruption in enumerate(everywhere(lambda code: code is Database.open.__code__)):
        file = tmp_path / ("known" if state == "known" else f"{number}")
        one = Database(str(file), Threads(), boot_time, "boot")
        kept: list[BaseException] = []
        try:
            with interruption:
                one.open()
        except Stop as stop:
            kept.append(stop)
        one.close()
        if file.exists():
            other = sqlite3.connect(file, timeout=0, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            other.close()
        assert bool(kept) == bool(interruption.where), interruption.where
