"""APScheduler 3: several schedulers, one run, on a real Redis."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.events import EVENT_JOB_EXECUTED, EVENT_JOB_SUBMITTED
from apscheduler.schedulers.background import BackgroundScheduler

import holdfast
from holdfast import Locks, Misuse, aio
from holdfast.contrib.apscheduler import OnceExecutor
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server


@pytest.fixture
def locks(redis: Redis) -> Iterator[Locks]:
    with holdfast.connect(redis.url) as opened:
        yield opened


class Scheduler:
    """One of several processes, as it were."""

    def __init__(self, locks: Locks) -> None:
        self.ran: list[str] = []
        self.submitted = threading.Event()
        self.executed = threading.Event()
        self.scheduler = BackgroundScheduler(executors={"default": OnceExecutor(locks, 2)}, timezone=UTC)
        self.scheduler.add_listener(lambda _: self.submitted.set(), EVENT_JOB_SUBMITTED)
        self.scheduler.add_listener(lambda _: self.executed.set(), EVENT_JOB_EXECUTED)

    def end(self) -> None:
        """When all that was due has been looked at."""
        assert self.submitted.wait(30)
        self.scheduler.shutdown(wait=True)


@pytest.mark.parametrize("trigger", ["date", "interval"])
def test_of_three_schedulers_one_runs_the_job(locks: Locks, trigger: str) -> None:
    three = [Scheduler(locks) for _ in range(3)]
    soon = datetime.now(UTC) + timedelta(seconds=0.2)
    when = {"run_date": soon} if trigger == "date" else {"hours": 1, "start_date": soon}
    for one in three:
        one.scheduler.add_job(one.ran.append, trigger, ["x"], id="report", misfire_grace_time=600, **when)
        one.scheduler.start()
    for one in three:
        one.end()
    assert sum(len(one.ran) for one in three) == 1
    assert sum(one.executed.is_set() for one in three) == 1
    (holding,) = locks.inspect("apscheduler:report").holders
    assert holding.left < 61 if trigger == "date" else 2400 < holding.left < 3300, (
        "taken until shortly before the next run"
    )


def test_a_run_that_is_late_does_not_keep_the_next_one_out(locks: Locks) -> None:
    one = Scheduler(locks)
    late = datetime.now(UTC) - timedelta(seconds=59)
    one.scheduler.add_job(
        one.ran.append,
        "interval",
        ["x"],
        id="report",
        seconds=60,
        next_run_time=late,
        start_date=late,
        misfire_grace_time=600,
    )
    one.scheduler.start()
    assert one.executed.wait(30)
    one.end()
    assert locks.names() == []


def test_a_job_without_an_id_is_refused(locks: Locks, caplog: pytest.LogCaptureFixture) -> None:
    one = Scheduler(locks)
    one.scheduler.add_job(one.ran.append, "date", ["x"], misfire_grace_time=600)
    one.scheduler.start()
    give_up = time.monotonic() + 30
    while "has no id" not in caplog.text:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    one.scheduler.shutdown()
    assert one.ran == []


def test_a_job_that_fails_is_told_as_ever(locks: Locks, caplog: pytest.LogCaptureFixture) -> None:
    one = Scheduler(locks)
    one.scheduler.add_job(int, "date", ["no number"], id="broken", misfire_grace_time=600)
    one.scheduler.start()
    one.end()
    assert "invalid literal" in caplog.text


def test_what_cannot_run_in_its_threads_is_refused(locks: Locks, caplog: pytest.LogCaptureFixture) -> None:
    """A coroutine would be made, and never be awaited."""

    async def job() -> None: ...

    one = Scheduler(locks)
    one.scheduler.add_job(job, "date", id="coroutine", misfire_grace_time=600)
    one.scheduler.start()
    give_up = time.monotonic() + 30
    while "is a coroutine function" not in caplog.text:
        assert time.monotonic() < give_up
        time.sleep(0.01)
    one.scheduler.shutdown()


@pytest.mark.parametrize("wrong", ["redis://localhost", aio.connect("memory://of-asyncio")])
def test_an_executor_takes_locks_of_threads_and_nothing_else(wrong: object) -> None:
    with pytest.raises(Misuse, match=r"what holdfast\.connect\(url\) returns"):
        OnceExecutor(wrong)  # type: ignore[arg-type]  # what is tested
