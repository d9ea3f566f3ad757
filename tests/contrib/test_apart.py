"""Frameworks that cannot be installed beside the others: they want other versions of what those need, or change the process.

Each is installed into a folder of its own, and runs in a process of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.testing.servers.redis import Redis

ROOT = Path(__file__).parents[2]
SECONDS = 60


class Apart:
    """An environment with these packages, and a folder for files."""

    def __init__(self, folder: Path, wanted: tuple[str, ...]) -> None:
        self.files = folder / "files"
        self.files.mkdir()
        packages = folder / "packages"
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--target", packages, *wanted], check=True)
        self._environment = {**os.environ, "PYTHONPATH": f"{packages}:{self.files}:{ROOT / 'src'}"}

    def save(self, page: str, name: str) -> None:
        """A file that a page of the documentation has."""
        text = (ROOT / "docs" / page).read_text()
        code = re.search(rf"^```python[^\n]*\n(# {name}\n.*?)^```$", text, re.DOTALL | re.MULTILINE)
        assert code is not None
        (self.files / name).write_text(code[1])

    def start(self, *arguments: str, said: Path, **variables: str) -> subprocess.Popen[bytes]:
        with said.open("w") as output:
            return subprocess.Popen(
                [sys.executable, "-u", *arguments],
                cwd=self.files,
                env={**self._environment, **variables},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def run(self, code: str, *arguments: str, **variables: str) -> list[str]:
        """The lines that it said."""
        said = self.files / "said"
        running = self.start("-c", code, *arguments, said=said, **variables)
        try:
            assert running.wait(SECONDS) == 0, said.read_text()
        finally:
            running.kill()
            running.wait()
        return said.read_text().splitlines()


def made(*wanted: str) -> Callable[[pytest.TempPathFactory], Apart]:
    @pytest.fixture(scope="module")
    def environment(tmp_path_factory: pytest.TempPathFactory) -> Apart:
        return Apart(tmp_path_factory.mktemp("apart"), wanted)

    return environment


with_arq = made("arq>=0.26")
with_apscheduler_4 = made("apscheduler==4.0.0a6")
with_eventlet = made("eventlet>=0.40", "hiredis>=3,<4")
with_trio = made("trio>=0.30", "anyio>=4")


@pytest.mark.server
def test_a_job_of_arq_is_left_to_the_worker_that_is_at_it(redis: Redis, with_arq: Apart) -> None:
    with_arq.save("recipes.md", "jobs_for_arq.py")
    queue = """
import asyncio, os, sys
from arq import create_pool
from arq.connections import RedisSettings

async def main():
    pool = await create_pool(RedisSettings.from_dsn(os.environ["REDIS_URL"]))
    jobs = [await pool.enqueue_job("report", int(one)) for one in sys.argv[1:]]
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "arq", "jobs_for_arq.WorkerSettings", "--burst", stderr=asyncio.subprocess.DEVNULL
    )
    assert await worker.wait() == 0
    print([(await job.result_info()).result for job in jobs])
    await pool.aclose()

asyncio.run(main())
"""
    with holdfast.connect(redis.url) as others:
        with others.lock("report:1"):
            said = with_arq.run(queue, "1", "2", REDIS_URL=redis.url)
            assert said[-1] == "['another worker is at it', 'sent']"
        assert with_arq.run(queue, "1", REDIS_URL=redis.url)[-1] == "['sent']"
        assert others.names() == []


@pytest.mark.server
def test_of_three_schedulers_of_apscheduler_4_one_runs_the_job(redis: Redis, with_apscheduler_4: Apart) -> None:
    with_apscheduler_4.save("apscheduler.md", "jobs_for_apscheduler.py")
    said = [with_apscheduler_4.files / f"said-{number}" for number in range(3)]
    three = [with_apscheduler_4.start("jobs_for_apscheduler.py", said=one, REDIS_URL=redis.url) for one in said]

    def count(what: str) -> int:
        return sum(what in one.read_text() for one in said)

    try:
        give_up = time.monotonic() + SECONDS
        while count("sent\n") + count("skipped 'report'") < 3:
            assert time.monotonic() < give_up, [one.read_text() for one in said]
            time.sleep(0.05)
    finally:
        for one in three:
            one.terminate()
        for one in three:
            one.wait(SECONDS)
    assert (count("sent\n"), count("skipped 'report'")) == (1, 2)


def test_the_executor_for_apscheduler_3_says_that_it_is(with_apscheduler_4: Apart) -> None:
    code = "try:\n    import holdfast.contrib.apscheduler\nexcept ImportError as error:\n    print(error)"
    (said,) = with_apscheduler_4.run(code)
    assert said.startswith("OnceExecutor is for APScheduler 3")


PATCHED = """
import asyncio, sys, warnings
warnings.simplefilter("ignore")  # eventlet warns of itself
import eventlet
if sys.argv[1]:
    eventlet.monkey_patch(**{sys.argv[1]: True})
import holdfast
from holdfast import aio

for connect in (holdfast.connect, aio.connect):
    try:
        connect(sys.argv[2])
    except holdfast.Misuse as error:
        print(error)
    else:
        print("connected")
"""


@pytest.mark.parametrize("url", ["memory://", "redis://127.0.0.1:1"])
@pytest.mark.parametrize("what", ["all", "socket", "select", "thread"])
def test_eventlets_patches_are_refused(with_eventlet: Apart, what: str, url: str) -> None:
    said = with_eventlet.run(PATCHED, what, url)
    assert len(said) == 2
    assert all(line.startswith("eventlet's monkey_patch() has replaced sockets or threads") for line in said), said


@pytest.mark.parametrize("what", ["", "time"])
def test_eventlet_that_patches_nothing_of_ours_is_nobodys_business(with_eventlet: Apart, what: str) -> None:
    assert with_eventlet.run(PATCHED, what, "memory://") == ["connected"] * 2


def test_under_trio_the_threads_surface_works_and_the_other_says_so(with_trio: Apart) -> None:
    code = """
import trio, holdfast
from holdfast import aio

def work(locks):
    with locks.lock("x") as lease:
        return lease.held

async def main():
    with holdfast.connect("memory://") as locks:
        print(await trio.to_thread.run_sync(work, locks))
    try:
        async with aio.connect("memory://").lock("x"):
            pass
    except RuntimeError as error:
        print(error)

trio.run(main)
"""
    held, told = with_trio.run(code)
    assert held == "True"
    assert "under trio, use holdfast.connect() in a worker thread" in told


@pytest.mark.server
def test_under_anyio_on_asyncio_scopes_and_losses_end_what_they_should(redis: Redis, with_trio: Apart) -> None:
    code = """
import logging, sys, anyio, holdfast
from holdfast import aio
logging.disable()

async def evict(others, name):
    while not (await others.inspect(name)).holders:
        await anyio.sleep(0.01)
    (holder,) = (await others.inspect(name)).holders
    assert await others.force_release(name, token=holder.token)

async def main():
    async with aio.connect(sys.argv[1]) as locks, aio.connect(sys.argv[1]) as others:
        async with others.lock("busy"):
            with anyio.move_on_after(0.2) as scope:
                await locks.lock("busy").acquire()
            print(scope.cancelled_caught, len((await others.inspect("busy")).waiters))
        with anyio.move_on_after(0.2) as scope:
            async with locks.lock("left"):
                await anyio.sleep_forever()
        print(scope.cancelled_caught, await others.names())
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(evict, others, "lost")
                async with locks.lock("lost", ttl=3):
                    await anyio.sleep_forever()
        except* holdfast.LeaseLost:
            print("lost")
        with anyio.fail_after(20):  # the cancellations of before are spent
            await anyio.sleep(0)
        print("fine")

anyio.run(main)
"""
    assert with_trio.run(code, redis.url) == ["True 0", "True []", "lost", "fine"]
