"""Eight processes at once, killed and stopped at random, on real stores. `HOLDFAST_ROUNDS=200` for the long form.

What was acknowledged happened, once, in order, without a gap; and the naive version beside it is shown to fail.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.lockfree import journal, partition

from . import writers
from .conftest import SERVER

ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "5"))
PROCESSES = 8
ENOUGH = 60  # acknowledgements, at least
SECONDS = 60.0 + ROUNDS

pytestmark = pytest.mark.timeout(SECONDS + 60)

JOURNALS = ["sqlite", pytest.param("postgresql", marks=SERVER), pytest.param("redis", marks=SERVER)]
GROUPS = ["sqlite", pytest.param("redis", marks=SERVER)]
QUEUES = [pytest.param("postgresql", marks=SERVER), pytest.param("redis", marks=SERVER)]


_open: list[Any] = []


def connect(backend: str, address: str) -> Any:
    _open.append(writers.connect(backend, address))
    return _open[-1]


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


class Fire:
    """The eight, and what happens to them."""

    def __init__(self, tool: str, backend: str, address: str, locks: str, acks: Path) -> None:
        self._command = [sys.executable, "-m", "tests.lockfree.writers", tool, backend, address, locks]
        self._acks = acks
        self._numbers = iter(range(10**6))
        self._stopped: set[int] = set()
        self._errors = acks / "errors"
        acks.mkdir()
        self._processes = [self._start() for _ in range(3 if tool.startswith("naive") else PROCESSES)]

    def _start(self) -> subprocess.Popen[bytes]:
        with open(self._errors, "ab") as errors:
            return subprocess.Popen(
                [*self._command, str(self._acks / f"{next(self._numbers)}.acks")],
                stderr=errors,
                cwd=Path(__file__).parents[2],
            )

    def acknowledged(self) -> list[tuple[str, int]]:
        lines = [line for file in sorted(self._acks.glob("*.acks")) for line in file.read_text().split("\n")[:-1]]
        return [(key, int(value)) for key, _, value in (line.partition(" ") for line in lines)]

    def burn(self, faults: int) -> None:
        """So many faults, each after something was acknowledged since the last: they must hit processes at work."""
        luck = random.Random(int(os.environ.get("HOLDFAST_SEED", "7")))
        give_up = time.monotonic() + SECONDS
        for number in range(faults):
            before = len(self.acknowledged())
            stuck = time.monotonic() + 1
            while len(self.acknowledged()) <= before:
                self._check(give_up)
                time.sleep(0.01)
                if (
                    time.monotonic() > stuck
                ):  # one was stopped in mid-write: SQLite lets nobody else write until it is done
                    self._wake_all()
            place = luck.randrange(PROCESSES)
            process = self._processes[place]
            if number % 2:
                process.kill()
                process.wait()
                self._stopped.discard(place)
                self._processes[place] = self._start()
            elif place in self._stopped:
                self._stopped.discard(place)
                process.send_signal(signal.SIGCONT)
            elif len(self._stopped) < PROCESSES // 2:
                self._stopped.add(place)
                process.send_signal(signal.SIGSTOP)
            time.sleep(luck.uniform(0, 0.1))
        self._wake_all()  # late, and sure that nothing has changed
        while len(self.acknowledged()) < ENOUGH:
            self._check(give_up)
            time.sleep(0.02)

    def _wake_all(self) -> None:
        for place in self._stopped:
            self._processes[place].send_signal(signal.SIGCONT)
        self._stopped.clear()

    def _check(self, give_up: float) -> None:
        for process in self._processes:
            assert process.poll() is None, self._errors.read_text()[-3000:]
        assert time.monotonic() < give_up, (
            f"{len(self.acknowledged())} acknowledged; {self._errors.read_text()[-2000:]}"
        )

    def until(self, condition: Any) -> None:
        give_up = time.monotonic() + SECONDS
        while not condition():
            self._check(give_up)
            time.sleep(0.02)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@pytest.fixture
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    backend: str = request.getfixturevalue("backend")
    if backend == "sqlite":
        path = str(tmp_path / "data.db")
        connect(backend, path).execute("PRAGMA journal_mode = WAL")
    else:
        path = str(request.getfixturevalue("redis_url" if backend == "redis" else backend))
    writers.prepare(backend, path)
    return path


@pytest.fixture
def locks(backend: str, address: str, tmp_path: Path) -> str:
    return address if backend == "redis" else f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def burn(backend: str, address: str, locks: str, tmp_path: Path) -> Iterator[Any]:
    fires: list[Fire] = []

    def start(tool: str) -> Fire:
        fires.append(Fire(tool, backend, address, locks, tmp_path / tool.replace(" ", "-")))
        return fires[-1]

    yield start
    for one in fires:
        one.end()


def twice(acknowledged: list[tuple[str, int]]) -> list[tuple[str, int]]:
    return [what for what, count in Counter(acknowledged).items() if count > 1]


@pytest.mark.parametrize("backend", JOURNALS)
def test_the_journal_has_no_gap_and_nothing_acknowledged_is_lost(backend: str, address: str, burn: Any) -> None:
    flames = burn("journal")
    flames.burn(2 * ROUNDS)
    flames.end()
    acknowledged = flames.acknowledged()
    assert twice(acknowledged) == []
    db = connect(backend, address)
    events = journal.Journal(db)
    log = list(events.subscribe(timeout=2))
    for key in writers.KEYS:
        versions = [event.version for event in events.read(key)]
        assert versions == list(range(1, len(versions) + 1))
        assert [event.version for event in log if event.stream == key] == versions  # all, once, in order
        assert {value for name, value in acknowledged if name == key} <= set(versions)
    db.close()


@pytest.mark.parametrize("backend", JOURNALS)
def test_the_naive_journal_gives_a_version_twice(backend: str, address: str, burn: Any) -> None:
    flames = burn("naive journal")
    flames.until(lambda: twice(flames.acknowledged()))


@pytest.mark.parametrize("backend", GROUPS)
def test_no_partition_has_two_writers_past_the_fence(backend: str, address: str, burn: Any) -> None:
    flames = burn("partition")
    flames.burn(2 * ROUNDS)
    flames.end()
    acknowledged = flames.acknowledged()
    assert twice(acknowledged) == []
    db = connect(backend, address)
    for key in writers.KEYS:
        if backend == "redis":
            final = int(db.get(f"counter:{key}") or 0)
        else:
            final = db.execute("SELECT value FROM counter WHERE name = ?", (key,)).fetchone()[0]
        counted = [value for name, value in acknowledged if name == key]
        assert len(counted) <= final
        assert max(counted, default=0) <= final
    db.close()


@pytest.mark.parametrize("backend", GROUPS)
def test_without_owners_updates_are_lost(backend: str, address: str, burn: Any) -> None:
    flames = burn("naive partition")
    flames.until(lambda: twice(flames.acknowledged()))


@pytest.mark.parametrize("backend", JOURNALS)
def test_actors_in_several_processes_answer_each_number_once(backend: str, address: str, burn: Any) -> None:
    flames = burn("mailbox")
    flames.burn(2 * ROUNDS)
    flames.end()
    acknowledged = flames.acknowledged()
    assert twice(acknowledged) == []
    db = connect(backend, address)
    for key in writers.KEYS:
        state, version = journal.Journal(db).replay(key, lambda total, one: total + one, 0)
        assert state == version >= max((value for name, value in acknowledged if name == key), default=0)
    db.close()


@pytest.mark.parametrize("backend", QUEUES)
def test_messages_keep_their_order_for_each_key_and_all_arrive(backend: str, address: str, burn: Any) -> None:
    db = connect(backend, address)
    queue = partition.Queue(db, "fire", partitions=writers.PARTITIONS, ttl=writers.TTL)
    queue.create_table()
    count = 60 + 20 * ROUNDS
    for number in range(count):
        for key in writers.KEYS:
            queue.put(key, number)
    flames = burn("queue")
    try:
        flames.burn(min(2 * ROUNDS, count // 10))
    except AssertionError:
        if queue.waiting():  # else it was all done before enough went wrong
            raise
    flames.until(lambda: queue.waiting() == 0)
    flames.end()
    for key in writers.KEYS:
        if backend == "redis":
            effects = [int(one) for one in db.lrange(f"effect:{key}", 0, -1)]
        else:
            effects = [one for (one,) in db.execute("SELECT value FROM effect WHERE name = %s ORDER BY number", (key,))]
        assert effects == sorted(effects)  # at least once, never out of order
        assert set(effects) == set(range(count))
    db.close()


@pytest.mark.parametrize("backend", QUEUES)
def test_without_the_fence_a_consumer_that_was_stopped_breaks_the_order(backend: str, address: str) -> None:
    """The naive consumer writes whenever it gets to it; the fenced one is refused. The same story, told twice."""
    db, other = connect(backend, address), connect(backend, address)
    slow = partition.Queue(db, f"naive:{time.time_ns()}", partitions=1, ttl=0.1)
    fast = partition.Queue(other, slow._line.name, partitions=1, ttl=30)
    slow.create_table()
    for number in range(3):
        slow.put("key", number)
    late = slow.take()
    assert late
    written = [message.data for message in fast.consume(timeout=1)]  # as soon as the lease of the slow one is over
    written.append(late.messages[0].data)  # it wakes, and nobody stops it
    assert written == [0, 1, 2, 0]
    with pytest.raises(Exception, match="somebody else was given the lock"):
        slow.ack(late, late.messages[0])
    db.close()
    other.close()
