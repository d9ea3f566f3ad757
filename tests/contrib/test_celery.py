"""Celery: real workers, prefork and threads, on a real Redis."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded

import holdfast
from holdfast import Misuse, NotAcquired
from holdfast.contrib.celery import single
from holdfast.contrib.celery.beat import Scheduler
from holdfast.testing.servers.redis import Redis

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::DeprecationWarning:(kombu|celery|redis).*")]
PROJECT = Path(__file__).parent / "celery_project"


@pytest.fixture(scope="module")
def jobs(shared_redis: Redis) -> Iterator[ModuleType]:
    """The tasks, as whoever sends them has them."""
    os.environ["SHOP_REDIS"] = shared_redis.url
    spec = importlib.util.spec_from_file_location("jobs", PROJECT / "jobs.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["jobs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    module.app.close()
    del sys.modules["jobs"], os.environ["SHOP_REDIS"]


@contextmanager
def worker(server: Redis, pool: str, *more: str) -> Iterator[subprocess.Popen[str]]:
    words = ["-m", "celery", "-A", "jobs", "worker", "-P", pool, "-c", "2", "-l", "WARNING", *more]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), "SHOP_REDIS": server.url, "C_FORCE_ROOT": "1"}
    process = subprocess.Popen(
        [sys.executable, *words, *quiet],
        cwd=PROJECT,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module", params=["prefork", "threads", "gevent"])
def running(request: pytest.FixtureRequest, shared_redis: Redis, jobs: ModuleType) -> Iterator[str]:
    with worker(shared_redis, request.param):
        assert jobs.nothing.delay().get(timeout=60) is None  # it is up
        yield request.param


@pytest.fixture
def clean(jobs: ModuleType) -> None:
    jobs.told.delete("inside", "together", "entered")


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.01)


@pytest.mark.usefixtures("running", "clean")
def test_of_two_runs_at_once_one_is_skipped(jobs: ModuleType) -> None:
    first = jobs.skipping.delay(1, 1.0)
    until(lambda: jobs.told.llen("entered"))
    assert jobs.skipping.delay(1, 0.0).get(timeout=60) is None
    assert jobs.skipping.delay(2, 0.0).get(timeout=60) == "report:2 True", "another account"
    assert first.get(timeout=60) == "report:1 True"
    assert jobs.skipping.delay(1, 0.0).get(timeout=60) == "report:1 True", "the first gave it back"


@pytest.mark.usefixtures("running", "clean")
@pytest.mark.parametrize("task", ["retrying", "waiting"])
def test_what_was_delivered_twice_runs_twice_but_never_together(jobs: ModuleType, task: str) -> None:
    """As a broker does that believes a worker to be dead: one message, one id, two deliveries."""
    send = getattr(jobs, task).apply_async
    results = [send((1, 0.2), task_id=f"the same, {task}") for _ in range(2)]
    until(lambda: jobs.told.llen("entered") == 2)
    assert [one.get(timeout=60) for one in results] == ["done", "done"]
    until(lambda: jobs.told.get("inside") == "0")
    assert jobs.told.get("together") is None


@pytest.mark.usefixtures("clean")
def test_nobody_who_stops_leaves_a_lock_behind(redis: Redis, jobs: ModuleType) -> None:
    """A soft time limit; and then a cold shutdown, of a worker that is in the middle of a task."""
    with holdfast.connect(redis.url) as locks, worker(redis, "prefork", "-Q", "apart") as process:
        limited = jobs.long.apply_async(soft_time_limit=1, queue="apart")
        with pytest.raises(SoftTimeLimitExceeded):
            limited.get(timeout=60)
        assert locks.names() == []
        jobs.long.apply_async(queue="apart")
        until(lambda: jobs.told.llen("entered") == 2)
        assert len(locks.names()) == 1
        process.send_signal(signal.SIGQUIT)
        process.wait(60)
        until(lambda: not locks.names(), 10)  # and not after its ttl of 20 s


def test_one_of_two_beats_beats(redis: Redis, jobs: ModuleType, tmp_path: Path) -> None:
    beats = [Scheduler(jobs.app, schedule_filename=str(tmp_path / name)) for name in ("a", "b")]
    try:
        for _ in range(2):
            for beat in beats:
                entry = beat.schedule["often"]
                beat.schedule["often"] = type(entry)(
                    **{**entry.__dict__, "last_run_at": entry.default_now().replace(year=2020)}
                )
                beat._heap = None
                assert beat.tick() == 0, "it was due"
        assert redis.execute("LLEN", "beats") == 1
    finally:
        for beat in beats:
            beat.close()


def test_what_a_beat_could_not_send_another_may(redis: Redis, jobs: ModuleType, tmp_path: Path) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise OSError("no broker")

    beats = [Scheduler(jobs.app, schedule_filename=str(tmp_path / name)) for name in ("a", "b")]
    beats[0].apply_async = broken
    try:
        for beat in beats:
            beat.apply_entry(beat.schedule["often"], producer=beat.producer)
        assert redis.execute("LLEN", "beats") == 1
    finally:
        for beat in beats:
            beat.close()


def test_called_as_a_function_it_locks_too_and_has_no_queue_to_go_back_to(redis: Redis, jobs: ModuleType) -> None:
    with holdfast.connect(redis.url) as locks:
        assert jobs.skipping(1, 0.0) == "report:1 True"
        with locks.lock("report:1"):
            assert jobs.skipping(1, 0.0) is None
            with pytest.raises(NotAcquired):
                jobs.retrying(1, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [{"otherwise": "ignore"}, {"timeout": 5}, {"name": "a", "key": "b"}, {"retry_in": -1}],
    ids=["otherwise", "timeout", "name and key", "retry_in"],
)
def test_what_makes_no_sense_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        single(**wrong)


def test_a_key_that_the_task_has_no_argument_for_is_refused_when_it_is_decorated() -> None:
    with pytest.raises(Misuse, match="no such parameter"):
        single(key="report:{account_id}")(lambda: None)
