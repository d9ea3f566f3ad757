"""Groups of workers over real stores: no partition has two owners, none has none for long, a rebalance drains first."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Misuse, NotOwner, StaleToken, aio, fenced
from holdfast.lockfree import partition

from .conftest import SERVER

PATIENCE = 20.0
STORES = ["memory", "sqlite", pytest.param("redis", marks=SERVER)]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{tmp_path.name}"
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/locks.db"
    return str(request.getfixturevalue("redis_url"))


@pytest.fixture
def name(tmp_path: Path) -> str:
    return f"billing:{tmp_path.name}:{time.time_ns()}"


@pytest.fixture
def locks(url: str) -> Iterator[holdfast.Locks]:
    with holdfast.connect(url) as connected:
        yield connected


def until(condition: Callable[[], Any], what: str = "") -> Any:
    give_up = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < give_up, what or "not in time"
        time.sleep(0.005)
    return found


def shares(*workers: Any) -> list[set[int]]:
    return [set(worker.owned()) for worker in workers]


def test_workers_share_the_partitions_and_take_over_from_one_that_leaves(locks: holdfast.Locks, name: str) -> None:
    group = partition.Group(locks, name, partitions=16, ttl=2)
    with group.join("one") as one:
        assert one.ready(PATIENCE)
        assert shares(one) == [set(range(16))]
        with group.join("two") as two:
            until(
                lambda: set(one.owned()) | set(two.owned()) == set(range(16)) and two.owned() and len(one.owned()) < 16
            )
            assert one.ready(PATIENCE)
            assert two.ready(PATIENCE)
            mine, theirs = shares(one, two)
            assert mine & theirs == set()
            assert group.workers() == ["one", "two"]
            ring = partition.Ring(["one", "two"])
            assert mine == {number for number in range(16) if ring.owner(str(number)) == "one"}
            for key in ("a", "b", "c", "d"):
                owner = group.owner(key)
                right, wrong = (one, two) if owner == "one" else (two, one)
                with right.working(key) as lease:
                    lease.check()
                with pytest.raises(NotOwner, match=f"it belongs to '{owner}'") as told, wrong.working(key):
                    pass
                assert (told.value.key, told.value.owner) == (key, owner)
        until(lambda: len(one.owned()) == 16)
        assert two.owned() == {}


def test_tokens_rise_from_owner_to_owner(locks: holdfast.Locks, name: str) -> None:
    group = partition.Group(locks, name, partitions=1, ttl=2)
    tokens = []
    for worker in ("one", "two", "three"):
        with group.join(worker) as member:
            assert member.ready(PATIENCE)
            tokens.append(member.owned()[0].token)
    assert tokens == sorted(set(tokens))


def moving(group: Any) -> str:
    """A key that goes to "two" when it joins "one"."""
    ring = partition.Ring(["one", "two"])
    return next(str(number) for number in range(1000) if ring.owner(str(group.partition_of(str(number)))) == "two")


def test_a_rebalance_waits_for_what_is_in_hand(locks: holdfast.Locks, name: str) -> None:
    group = partition.Group(locks, name, partitions=8, ttl=2, drain=PATIENCE)
    key = moving(group)
    number = group.partition_of(key)
    with group.join("one") as one:
        assert one.ready(PATIENCE)
        with one.working(key) as lease:
            two = group.join("two")
            until(lambda: number not in one.owned())  # it is being given up …
            with pytest.raises(NotOwner), one.working(key):
                pass  # … so nothing new is begun
            ring = partition.Ring(["one", "two"])
            share = {other for other in range(8) if ring.owner(str(other)) == "two"}
            until(lambda: set(two.owned()) == share - {number})  # all the others have come over meanwhile
            assert lease.held  # but what was begun is covered to its end
            assert not two.ready(0.1)
        with two:
            until(lambda: number in two.owned())
            assert two.owned()[number].token > lease.token


def test_who_does_not_finish_in_time_is_fenced_out(locks: holdfast.Locks, name: str) -> None:
    """The drain is bounded: a worker that hangs does not hold up the rebalance, and its late write is refused."""
    storage: fenced.Memory[str] = fenced.Memory()
    group = partition.Group(locks, name, partitions=8, ttl=2, drain=0.1)
    key = moving(group)
    number = group.partition_of(key)
    with group.join("one") as one:
        assert one.ready(PATIENCE)
        with one.working(key) as lease:
            storage.write(lease, "in time")
            with group.join("two") as two:
                until(lambda: number in two.owned())
                with two.working(key) as newer:
                    assert storage.read(newer) == "in time"
                with pytest.raises(StaleToken):
                    storage.write(lease, "late")
                assert storage.read(newer) == "in time"


_WORKER = """
import os, signal, sys, holdfast
from holdfast.lockfree import partition
url, name = sys.argv[1:]
worker = partition.Group(holdfast.connect(url), name, partitions=4, ttl=1).join("doomed")
assert worker.ready(20)
print({number: lease.token for number, lease in worker.owned().items()}, flush=True)
for line in sys.stdin:
    print(len(worker.owned()), flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_dead_or_sleeping_worker_owned_is_taken_over(url: str, name: str, how: signal.Signals) -> None:
    if url.startswith("memory"):
        return  # it would have to be this process
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, url, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as doomed:
        assert doomed.stdout
        assert doomed.stdin
        try:
            old = eval(doomed.stdout.readline())
            assert len(old) == 4
            doomed.send_signal(how)
            with holdfast.connect(url) as locks, partition.Group(locks, name, partitions=4, ttl=1).join("heir") as heir:
                until(lambda: len(heir.owned()) == 4)
                assert all(heir.owned()[number].token > token for number, token in old.items())
                if how is signal.SIGSTOP:
                    doomed.send_signal(signal.SIGCONT)
                    doomed.stdin.write("?\n")
                    assert (
                        int(doomed.stdout.readline()) == 0 or len(heir.owned()) < 4
                    )  # it knows; it may have come back
        finally:
            doomed.kill()


def test_a_name_is_taken_once_and_all_must_count_alike(locks: holdfast.Locks, name: str) -> None:
    with partition.Group(locks, name, partitions=4, ttl=2).join("one") as one:
        with pytest.raises(Misuse, match="there is a worker 'one'"):
            partition.Group(locks, name, partitions=4, ttl=2).join("one")
        with pytest.raises(Misuse, match="counts 4 partitions, and this one 8"):
            partition.Group(locks, name, partitions=8, ttl=2).join("two")
        assert one.ready(PATIENCE)
        assert one.name == "one"


def test_callbacks_tell_of_gains_and_losses(locks: holdfast.Locks, name: str) -> None:
    gained: list[int] = []
    lost: list[int] = []

    def on_lost(number: int, _: Any) -> None:
        lost.append(number)
        raise ZeroDivisionError  # which breaks nothing

    group = partition.Group(locks, name, partitions=4, ttl=2)
    with group.join(on_gained=lambda number, lease: gained.append(number), on_lost=on_lost) as worker:
        assert worker.ready(PATIENCE)
    assert gained == lost == [0, 1, 2, 3]


def test_a_group_without_workers_has_no_owner(locks: holdfast.Locks, name: str) -> None:
    with pytest.raises(Misuse, match="has no workers"):
        partition.Group(locks, name).owner("a")


@pytest.mark.parametrize(
    "options", [{"partitions": 0}, {"partitions": 5000}, {"partitions": 1.5}, {"ttl": 0}, {"drain": -1}, {"name": ""}]
)
def test_a_group_that_makes_no_sense_is_refused(locks: holdfast.Locks, name: str, options: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        partition.Group(locks, **{"name": name, **options})
    with pytest.raises(Misuse):
        partition.Group(locks, name).join("bell\x07")


def test_leaving_twice_is_harmless_and_nothing_is_owned_after(locks: holdfast.Locks, name: str) -> None:
    worker = partition.Group(locks, name, partitions=4, ttl=2).join()
    worker.leave()
    worker.leave()
    assert worker.owned() == {}
    assert locks.names(name) == []
    with pytest.raises(NotOwner), worker.working("a"):
        pass


def test_in_asyncio_with_the_same_names(url: str, name: str) -> None:
    async def main() -> None:
        async with aio.connect(url) as locks:
            group = partition.aio.Group(locks, name, partitions=8, ttl=2)
            async with await group.join("one") as one:
                assert await one.ready(PATIENCE)
                async with await group.join("two") as two:
                    assert await two.ready(PATIENCE)
                    assert await one.ready(PATIENCE)
                    assert {*one.owned(), *two.owned()} == set(range(8))
                    assert await group.workers() == ["one", "two"]
                    owner = one if await group.owner("a") == "one" else two
                    with owner.working("a") as lease:
                        lease.check()
                assert await one.ready(PATIENCE)
                for _ in range(2000):
                    if len(one.owned()) == 8:
                        break
                    await asyncio.sleep(0.01)
                assert len(one.owned()) == 8
            assert await locks.names(name) == []

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["Group", "Worker", "Queue"])
def test_both_surfaces_have_the_same_names_and_parameters(kind: str) -> None:
    import inspect

    ours, theirs = getattr(partition, kind), getattr(partition.aio, kind)
    names = {one for one in dir(ours) if not one.startswith("_")}
    assert names == {one for one in dir(theirs) if not one.startswith("_")}
    for one in names:
        mine, yours = getattr(ours, one), getattr(theirs, one)
        if callable(mine):
            assert inspect.signature(mine).parameters == inspect.signature(yours).parameters
            assert mine.__doc__ == yours.__doc__
