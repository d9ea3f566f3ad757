"""Sessions: their length told truly, few of them, one keep-alive; and nothing left behind."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

import holdfast
from holdfast import aio, events
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.zookeeper import renewing
from holdfast.stores.zookeeper import store as zookeeper_store
from holdfast.stores.zookeeper.session import MARGIN
from holdfast.stores.zookeeper.sessions import step
from holdfast.testing import servers

from ..hands import SOON, Background, Connect, until
from ..hops import check_the_way
from .hands import Ensemble, admin, session_of

pytestmark = pytest.mark.server


@pytest.mark.parametrize("ttl", [0.05, 0.5, 1, 1.2, 5, 10, 30, 31, 60, 3600, 86400, 30 * 86400])
def test_a_session_is_longer_than_a_holder_believes_but_not_by_much(ttl: float) -> None:
    assert ttl * MARGIN <= step(ttl) <= max(1.5, 2 * MARGIN * ttl)


def test_the_default_ttl_is_what_an_ensemble_grants_by_default() -> None:
    assert step(30.0) == 40.0  # twenty ticks of two seconds, the most that a server agrees to unless told otherwise


def test_a_ttl_longer_than_the_server_agrees_to_is_told_as_it_is(connect: Connect, root: str) -> None:
    with servers.start("zookeeper", "maxSessionTimeout=4000", "forceSync=no") as server:
        locks = connect(server.url + root)
        lease = locks.lock("x", ttl=60).acquire()
        assert lease._grant.ttl == 3.0
        assert lease.remaining() <= 3.0
        renewed = threading.Event()
        locks.subscribe(lambda _: renewed.set(), [events.RENEWED])
        assert renewed.wait(10)
        lease.check()
        assert lease.release()
        locks.close()


def test_one_session_for_all_of_a_ttl_and_the_nearest(ensemble: Ensemble, connect: Connect, root: str) -> None:
    locks = connect(ensemble.url + root)
    for number, ttl in enumerate((9, 9, 8, 8.5, 7)):
        locks.lock(f"x{number}", ttl=ttl).acquire()
    assert session_of(locks).seconds == 12.0
    locks.lock("long", ttl=60).acquire()
    assert len(locks._engine.store._sessions._open) == 2  # type: ignore[attr-defined]


def test_many_locks_are_kept_by_one_request(ensemble: Ensemble, root: str) -> None:
    async def main() -> None:
        async with aio.connect(f"{ensemble.url}{root}?timeout=60") as locks:
            store: Any = locks._engine.store
            claims = [Claim(f"x{number}", new_holder(), "somebody", 60.0) for number in range(200)]
            grants: list[Grant] = []
            for at in range(0, 200, 100):
                grants += await asyncio.gather(*(store.claim(one, 60.0) for one in claims[at : at + 100]))
            (session,) = store._sessions._open.values()
            sent: list[object] = []
            call = session.client.call

            def count(request: object, reply: object) -> Any:
                sent.append(request)
                return call(request, reply)

            session.client.call = count
            assert await store.renew(grants, 60.0) == grants
            assert len(sent) == 1
            await store.release(claims[7], 60.0)
            verdicts = await store.renew(grants, 60.0)
            assert [index for index, verdict in enumerate(verdicts) if verdict is None] == [7]
            await asyncio.gather(*(store.release(one, 60.0) for one in claims))

    asyncio.run(main())


def test_names_used_once_leave_nothing_behind(root: str) -> None:
    options = "-Dznode.container.checkIntervalMs=200 -Dznode.container.maxPerMinute=1000000"
    with servers.start("zookeeper", "forceSync=no", environ={"JAVA_TOOL_OPTIONS": options}) as server:

        async def main() -> None:
            async with aio.connect(server.url + root) as locks:

                async def use(first: int) -> None:
                    for number in range(first, first + 12):
                        async with locks.lock(f"job:{number}"):
                            pass

                await asyncio.gather(*(use(first) for first in range(0, 300, 12)))
                assert await locks.names() == []
                store: Any = locks._engine.store
                assert not store._sessions.records
                assert all(not session._watchers for session in store._sessions._open.values())

        asyncio.run(main())
        with admin(f"127.0.0.1:{server.port}") as look:
            until(lambda: look.get_children(f"{root}/locks") == [])
            # The server took the parents away; the next claim makes them anew.
        with holdfast.connect(server.url + root) as locks, locks.lock("job:1") as lease:
            lease.check()


def test_one_claim_takes_no_more_files_and_hops_than_the_page_says(ensemble: Ensemble, root: str) -> None:
    check_the_way("ZooKeeper", ensemble.url + root)


def test_a_parent_that_the_server_took_away_is_made_again(ensemble: Ensemble, connect: Connect, root: str) -> None:
    locks = connect(ensemble.url + root)
    first = locks.lock("x").acquire()
    first.release()
    with admin(ensemble.hosts) as look:
        look.delete(f"{root}/locks/x")
        second = locks.lock("x").acquire(timeout=5)
        assert second.token > first.token
        second.release()
        look.delete(root, recursive=True)
        assert locks.lock("x").acquire(timeout=5).token > second.token


def test_who_gives_up_over_and_over_leaves_no_watches(ensemble: Ensemble, connect: Connect, root: str) -> None:
    locks, other = connect(ensemble.url + root), connect(ensemble.url + root)
    held = other.lock("x").acquire()
    for _ in range(10):
        with pytest.raises(holdfast.NotAcquired):
            locks.lock("x").acquire(timeout=0.02)
    client = session_of(locks).client
    assert sum(map(len, client._child_watchers.values())) + sum(map(len, client._data_watchers.values())) <= 1
    assert not locks._engine.store._sessions.records  # type: ignore[attr-defined]
    held.release()


def test_a_job_that_stays_taken_outlives_its_process(ensemble: Ensemble, connect: Connect, root: str) -> None:
    """`at_least`: the connection is left without a word, so that the session lives on."""
    other = connect(ensemble.url + root)
    before = time.monotonic()
    with holdfast.connect(ensemble.url + root) as locks:
        locks.once("job", at_least=2, at_most=2)(lambda: None)()
    assert other.names() == ["job"]
    until(lambda: other.names() == [])
    assert time.monotonic() - before >= 1.8


def test_a_claim_that_nobody_renews_ends_although_the_event_loop_is_gone(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    mine = Claim("x", new_holder(), "somebody", 1.0)
    kept: list[object] = []

    async def main() -> None:
        locks = aio.connect(ensemble.url + root)
        kept.append(locks)
        assert isinstance(await locks._engine.store.claim(mine), Grant)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    other = connect(ensemble.url + root)
    assert other.names() == ["x"]
    until(lambda: other.names() == [])
    store: Any = kept[0]._engine.store  # type: ignore[attr-defined]
    for session in store._sessions._open.values():
        session.end()
    loop.close()


def test_tokens_beyond_what_stays_whole_are_refused(
    ensemble: Ensemble, connect: Connect, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ensemble gets there in a lifetime: so the limit is brought down instead."""
    from holdfast.stores.zookeeper import entering

    locks = connect(ensemble.url + root)
    monkeypatch.setattr(entering, "MAX_TOKEN", 1)
    with pytest.raises(holdfast.Unavailable, match="have passed"):
        locks.lock("x").try_acquire()
    assert locks.names() == []
    assert finish(locks._engine.store.inspect("x")).holders == ()


def test_the_housekeeper_does_not_forget_a_claim_that_is_about_to_be_sent(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    """It runs whenever it likes. A claim that it took for overdue before its time was set would be held for ever."""
    locks = connect(ensemble.url + root)
    locks.lock("x", ttl=9).acquire().release()
    sessions = locks._engine.store._sessions  # type: ignore[attr-defined]
    add, looked = sessions.add, []

    def add_and_sweep(record: Any, *until_when: float) -> None:
        add(record, *until_when)
        sessions._sweep([record])
        finish(record.session.ask([record.session.barrier]))  # it has heard what it asked for, if it did
        looked.append(record)

    sessions.add = add_and_sweep
    lease = locks.lock("x", ttl=9).acquire()
    assert looked
    assert lease.release() is True
    assert locks.names() == []


def test_a_claim_that_is_being_taken_away_is_not_renewed(
    ensemble: Ensemble, connect: Connect, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connect(ensemble.url + root)
    store: Any = locks._engine.store
    claim = Claim("x", new_holder(), "somebody", 9.0)
    grant = finish(store.claim(claim))
    record = store._sessions.records[claim.holder]
    ask = renewing.ask_who_is_there

    async def then_swept(groups: Any, driver: Any, within: float) -> Any:
        answer = await ask(groups, driver, within)
        record.until = 0.0  # its time ends while the answer is on its way
        store._sessions._sweep([record])
        return answer

    monkeypatch.setattr(zookeeper_store, "ask_who_is_there", then_swept)
    assert finish(store.renew([grant], 5.0)) == [None]
    until(lambda: locks.names() == [])
    assert type(finish(store.claim(claim))) is Grant  # repeated, it joins afresh
    assert finish(store.release(claim)) is True


class NoLock:
    """A mutex, and a condition, that keeps nobody out."""

    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...
    def notify(self) -> None: ...

    def wait(self, timeout: float | None = None) -> None:
        threading.Event().wait(timeout)


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "without a lock"])
def test_who_comes_when_an_idle_session_is_about_to_be_ended_gets_another(
    ensemble: Ensemble, connect: Connect, root: str, mistaken: bool
) -> None:
    """Else it gets a lock that is free to all at once."""
    locks = connect(ensemble.url + root)
    locks.lock("x").acquire().release()
    session, sessions = session_of(locks), locks._engine.store._sessions  # type: ignore[attr-defined]
    came: list[Background] = []

    class LongAgo(float):
        def __add__(self, other: float) -> float:
            came.append(Background(lambda: locks.lock("x").acquire(timeout=SOON)))
            came[0].join(SOON if mistaken else 0.2)
            return 0.0

    if mistaken:
        sessions._mutex = sessions._condition = NoLock()
    session.used = LongAgo()
    sessions._mind_sessions()
    lease = came[0].result()
    until(lambda: session.client.client_state == "CLOSED")
    assert ([one.token for one in locks.inspect("x").holders] == [lease.token]) is not mistaken
