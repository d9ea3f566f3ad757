"""The store with one mistake each: the scenario that is meant to find it does, and passes without it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from holdfast import aio, rule
from holdfast.claim import Claim, Grant, Place
from holdfast.drivers.base import finish
from holdfast.drivers.sockets import SocketStream
from holdfast.drivers.threads import Threads
from holdfast.errors import Unavailable
from holdfast.stores.etcd import claiming, open_store, requests
from holdfast.stores.etcd.gather import Gatherer
from holdfast.stores.etcd.keys import Keys
from holdfast.stores.etcd.renewing import Renewal
from holdfast.stores.etcd.sessions import Session
from holdfast.stores.etcd.store import EtcdStore
from holdfast.stores.etcd.sweeping import Sweeper
from holdfast.stores.kit.alarm import Alarm
from holdfast.stores.kit.turns import Turn, Turns
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

from ..hands import SOON, Connect, claim_of, in_background, until
from .hands import admin, ask, begin_with, leases_of, store_of

pytestmark = pytest.mark.server
HERE = "holdfast.stores.etcd"
LONG = 29.1  # a session for it is fresh for nearly two seconds


class Stage(NamedTuple):
    cluster: Cluster[Etcd]
    connect: Connect
    url: str


Patch = pytest.MonkeyPatch


def a_dead_session_takes_its_locks_along(stage: Stage, _: Patch) -> None:
    cluster, connect = stage.cluster, stage.connect
    a = connect()
    ask(a, claim_of("x"))
    admin(cluster.members[0], "/v3/lease/revoke", ID=str(leases_of(a)[0]))
    until(lambda: not a.names(), within=2)


def nobody_overtakes(stage: Stage, _: Patch) -> None:
    connect = stage.connect
    a = connect()
    assert isinstance(ask(a, claim_of("x", capacity=2)), Grant)
    assert isinstance(ask(a, claim_of("x", capacity=2, units=2)), Place)
    assert isinstance(ask(a, claim_of("x", capacity=2, queue=False)), Place)


def who_enters_while_another_counts_is_counted(stage: Stage, patch: Patch) -> None:
    connect = stage.connect
    a, b = connect(), connect()
    ask(a, claim_of("x", capacity=2))
    decide = claiming.may_enter
    rival = claim_of("x", capacity=2, fair=False)

    def slowly(entry: Any, sight: Any) -> bool:
        verdict = decide(entry, sight)
        if entry.claim is not rival and rival.holder not in store_of(b)._records:
            ask(b, rival)  # the last unit goes to another
        return verdict

    patch.setattr(f"{HERE}.store.may_enter", slowly)
    answer = ask(a, claim_of("x", capacity=2))
    assert isinstance(answer, Place)
    assert a.inspect("x").used == 2


def a_release_before_the_watch_is_heard(stage: Stage, _: Patch) -> None:
    connect = stage.connect
    a, b = connect(), connect()
    mine, next_one = claim_of("x"), claim_of("x")
    ask(a, mine)
    place = ask(b, next_one)
    finish(store_of(a).release(mine))
    before = time.monotonic()
    finish(store_of(b).wait(place, 2.5))
    assert time.monotonic() - before < 2


def a_key_that_is_gone_is_not_renewed(stage: Stage, _: Patch) -> None:
    connect = stage.connect
    a, b = connect(), connect()
    grant = ask(a, claim_of("x"))
    b.force_release("x", token=grant.token)
    assert finish(store_of(a).renew([grant], 3)) == [None]


def a_keep_alive_of_another_term_counts_for_nothing(stage: Stage, _: Patch) -> None:
    session = Session(1, 10.0, 100.0)
    session.kept(105.0, 7)
    session.confirm(8, 106.0)
    assert session.live_until == 110.0


def what_nobody_renews_ends_although_its_session_lives(stage: Stage, _: Patch) -> None:
    connect = stage.connect
    a = connect()
    lease = a.lock("other", ttl=0.9).acquire()
    ask(a, claim_of("x", 0.9))
    until(lambda: a.names() == ["other"], within=3)
    lease.check()


def what_nobody_renews_ends_in_the_next_event_loop_too(stage: Stage, _: Patch) -> None:
    opened: list[Any] = []

    async def first() -> None:
        opened.append(aio.connect(stage.url))
        await (await opened[0].lock("other", ttl=0.9).acquire(timeout=5)).release()

    async def second() -> None:
        async with opened[0] as locks:
            kept = await locks.lock("other", ttl=0.9).acquire(timeout=5)
            await locks._engine.store.claim(claim_of("x", 0.9))
            await asyncio.to_thread(until, lambda: stage.connect().names() == ["other"], 4)
            kept.check()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's own, of the first loop's transports
        asyncio.run(first())
        asyncio.run(second())
        gc.collect()


def who_is_answered_late_is_not_swept_away_while_it_claims(stage: Stage, _: Patch) -> None:
    with Proxy(stage.cluster.members[0].address) as proxy:
        far = open_store(f"etcd://127.0.0.1:{proxy.port}/{stage.url.partition('//')[2].partition('/')[2]}", Threads())
        mine = claim_of("x", 0.5)
        finish(far._sessions.fresh(mine.ttl, far._by(3)))
        proxy.to_client.hold()
        answers: list[Any] = []
        claiming = in_background(lambda: answers.append(finish(far.claim(mine))))
        time.sleep(0.8)
        proxy.flow()
        claiming.join(SOON)
        for _again in range(6):
            sent = time.monotonic()
            answer = finish(far.claim(mine))
            inside = [one.token for one in finish(far.inspect("x")).holders]
            assert isinstance(answer, Grant)
            assert answer.token in inside or time.monotonic() > sent + mine.ttl
            time.sleep(0.05)
        finish(far.close())


def who_is_swept_away_late_is_only_who_was_there(stage: Stage, _: Patch) -> None:
    a = stage.connect()
    mine = claim_of("x")
    ask(a, mine)
    before = store_of(a)._records[mine.holder]
    finish(store_of(a).release(mine))
    grant = ask(a, mine)
    finish(store_of(a)._clear(before))  # sent then, it arrives now
    assert [one.token for one in a.inspect("x").holders] == [grant.token]


def who_is_swept_away_while_it_is_renewed_is_not_kept(stage: Stage, patch: Patch) -> None:
    a = stage.connect()
    mine = claim_of("x")
    grant = ask(a, mine)
    asked = Renewal._ask

    async def meanwhile(self: Renewal, *args: Any) -> Any:
        answers = await asked(self, *args)
        await store_of(a)._clear(store_of(a)._records[mine.holder])
        return answers

    patch.setattr(Renewal, "_ask", meanwhile)
    assert list(finish(store_of(a).renew([grant], 10))) == [None]
    assert a.names() == []


def two_of_one_name_never_share_a_token(stage: Stage, _: Patch) -> None:
    url = stage.url

    async def main() -> list[int]:
        async with aio.connect(url) as locks:
            await (await locks.lock("warm").acquire(timeout=5)).release()  # the session is there: all ask at once
            flies_alone = locks.lock("first").acquire(timeout=5)  # and the others gather meanwhile
            three = (locks.semaphore("x", 3).acquire(timeout=5) for _ in range(3))
            leases = (await asyncio.gather(flies_alone, *three))[1:]
            tokens = [lease.token for lease in leases]
            for lease in leases:
                await lease.release()
            return tokens

    assert len(set(asyncio.run(main()))) == 3


def a_transaction_sent_before_the_keep_alive_confirms_nothing(stage: Stage, _: Patch) -> None:
    session = Session(1, 10.0, 100.0)
    session.kept(105.0, 7)
    session.confirm(7, 104.0)
    assert session.live_until == 110.0
    session.confirm(7, 105.5)
    assert session.live_until == 115.0


def who_was_interrupted_as_it_left_is_in_nobodys_way(stage: Stage, patch: Patch) -> None:
    """Not even in its own, with the next claim."""
    a = stage.connect()
    over = Turn.over
    interrupts = iter([True])

    def interrupted(self: Turn) -> None:
        if next(interrupts, False):
            raise KeyboardInterrupt
        over(self)

    patch.setattr(Turn, "over", interrupted)
    patch.setattr(Turns, "dismiss", lambda self: None)  # after a lease was had, that would do as well
    with pytest.raises(KeyboardInterrupt):
        ask(a, claim_of("x"))
    assert not next(interrupts, False)
    try:
        answer = finish(store_of(a).claim(claim_of("y", 40.0), 1.0))
    except Unavailable:
        answer = None
    assert isinstance(answer, Grant)


def a_release_whose_connection_breaks_leaves_all_the_same(stage: Stage, patch: Patch) -> None:
    patch.setattr(SocketStream, "is_stale", lambda self: False)  # it is used without a look
    with Proxy(stage.cluster.members[0].address) as proxy:
        far = open_store(f"etcd://127.0.0.1:{proxy.port}/{stage.url.rpartition('/')[2]}", Threads())
        mine = claim_of(uuid4().hex)
        finish(far.claim(mine))
        proxy.cut(reset=True)
        try:
            left = finish(far.release(mine))
        except Unavailable:
            left = False
        finish(far.close())
    assert left


def no_answer_is_no_loss(stage: Stage, _: Patch) -> None:
    with Proxy(stage.cluster.members[0].address) as proxy:
        far = open_store(f"etcd://127.0.0.1:{proxy.port}/{stage.url.rpartition('/')[2]}", Threads())
        grant = finish(far.claim(claim_of(uuid4().hex)))
        assert isinstance(grant, Grant)
        assert finish(far.renew([grant], 3.0)) == [grant]
        proxy.to_client.hold()
        verdicts = finish(far.renew([grant], 0.3))
        proxy.flow()
        finish(far.close())
    assert isinstance(verdicts[0], Unavailable)


@contextlib.contextmanager
def a_claim_on_its_way(stage: Stage, patch: Patch, claim: Claim) -> Iterator[tuple[EtcdStore, Any]]:
    """The store that claimed, and what it was answered: by the second member, since the first, it seemed, was silent."""
    with Proxy(stage.cluster.members[0].address) as proxy:
        host, port = stage.cluster.members[1].address
        prefix = stage.url.partition("//")[2].partition("/")[2]
        far = open_store(f"etcd://127.0.0.1:{proxy.port},{host}:{port}/{prefix}", Threads())
        finish(far._sessions.fresh(claim.ttl, far._by(3)))  # so that the first thing that is asked is to enter
        begin_with(far, proxy.port)
        proxy.to_server.hold()
        hung_up: list[SocketStream] = []
        # Hung up; but etcd does not know yet when it reads what was sent before.
        patch.setattr(SocketStream, "close", lambda self: hung_up.append(self))
        yield far, finish(far.claim(claim, 2.0))
        proxy.flow()
        time.sleep(0.5)  # now it is there
        assert finish(far.names()) == []
        finish(far.close())


def what_arrives_after_its_release_does_not_enter(stage: Stage, patch: Patch) -> None:
    mine = claim_of("x", LONG)
    with a_claim_on_its_way(stage, patch, mine) as (far, answer):
        assert isinstance(answer, Grant)
        assert finish(far.release(mine))


def what_arrives_after_a_try_that_failed_does_not_enter(stage: Stage, patch: Patch) -> None:
    theirs = stage.connect().lock("x").acquire()
    with a_claim_on_its_way(stage, patch, claim_of("x", LONG, queue=False)) as (_, answer):
        assert isinstance(answer, Place)
        assert theirs.release()


def doubt_about_one_claim_is_over_with_it(stage: Stage, patch: Patch) -> None:
    """A lost answer is a reason to leave a trace behind for what may yet arrive; of that claim, and of no other."""
    with Proxy(stage.cluster.members[0].address) as proxy:
        prefix = stage.url.partition("//")[2].partition("/")[2]
        far = open_store(f"etcd://127.0.0.1:{proxy.port}/{prefix}", Threads())
        mine, other = claim_of("x", LONG), claim_of("y", LONG)
        finish(far._sessions.fresh(LONG, far._by(3)))
        proxy.to_client.hold()
        with pytest.raises(Unavailable):
            finish(far.claim(mine, 0.3))
        proxy.cut()
        proxy.flow()
        assert finish(far.release(mine))  # it had arrived
        traces: list[float] = []
        patch.setattr(type(far._sessions), "for_late_arrivals", lambda _, deadline: traces.append(deadline))
        assert isinstance(finish(far.claim(other)), Grant)
        assert not far._records[other.holder].doubtful
        assert finish(far.release(other))
        assert traces == []
        finish(far.close())


# ---- the mistakes


def without_a_lease(patch: Patch) -> None:
    put = requests.op_put
    patch.setattr(f"{HERE}.claiming.op_put", lambda key, value, lease: put(key, value, 0))


def without_the_line(patch: Patch) -> None:
    enter = claiming.enter

    def unfair(entry: Any, *args: Any) -> bytes:
        entry.claim = entry.claim._replace(fair=False)
        return enter(entry, *args)

    patch.setattr(f"{HERE}.claiming.enter", unfair)
    admit = rule.admit
    patch.setattr(rule, "admit", lambda *args, ahead, fair: admit(*args, ahead=False))


def counted_for_ever(patch: Patch) -> None:
    enter = claiming.enter
    patch.setattr(
        f"{HERE}.claiming.enter", lambda entry, value, lease, at=0: enter(entry, value, lease, 2**60 if at else 0)
    )


def watched_from_now_on(patch: Patch) -> None:
    look = claiming.what_to_wait_for
    patch.setattr(f"{HERE}.store.what_to_wait_for", lambda *args: (look(*args)[0], 2**62))


def renewed_unseen(patch: Patch) -> None:
    patch.setattr(Renewal, "_still", staticmethod(lambda *_: True))


def changed_means_downgraded(patch: Patch) -> None:
    still = Renewal._still

    def mistaken(question: Any, *rest: Any) -> bool:
        return not question.entry.token or still(question, *rest)

    patch.setattr(Renewal, "_still", staticmethod(mistaken))


def whatever_the_term(patch: Patch) -> None:
    def confirm(self: Session, term: int, sent: float) -> None:
        assert self.asked is not None
        self.live_until = self.asked.at + self.length

    patch.setattr(Session, "confirm", confirm)


def never_swept(patch: Patch) -> None:
    patch.setattr(Alarm, "expect", lambda self, deadline: None)


def started_once_and_for_all(patch: Patch) -> None:
    expect = Alarm.expect
    patch.setattr(Alarm, "expect", lambda self, at: None if self._bell is not None else expect(self, at))


def swept_away_by_the_clock(patch: Patch) -> None:
    async def sweep(self: Sweeper, entry: Any, now: float) -> None:
        await self._release(entry.claim)

    patch.setattr(Sweeper, "_sweep", sweep)


def swept_away_whatever_it_is(patch: Patch) -> None:
    clear = EtcdStore._clear

    async def everything(self: EtcdStore, entry: Any) -> None:
        entry.revision = 2**60
        await clear(self, entry)

    patch.setattr(EtcdStore, "_clear", everything)


def all_in_one(patch: Patch) -> None:
    transact = Gatherer.transact
    patch.setattr(Gatherer, "transact", lambda self, name, *rest: transact(self, uuid4().hex, *rest))


def confirmed_by_anything(patch: Patch) -> None:
    confirm = Session.confirm
    patch.setattr(Session, "confirm", lambda self, term, sent: confirm(self, term, float("inf")))


def gone_without_a_trace(patch: Patch) -> None:
    patch.setattr(Keys, "left", lambda self, claim: self._left + uuid4().hex.encode())


def forgotten_by_a_try_that_failed(patch: Patch) -> None:
    leave = EtcdStore._leave

    async def if_it_is_in_line(self: EtcdStore, claim: Claim, deadline: float) -> bool:
        return claim.queue and await leave(self, claim, deadline)

    patch.setattr(EtcdStore, "_leave", if_it_is_in_line)


def turns_like_locks(patch: Patch) -> None:
    async def come(self: Turn, deadline: float) -> bool:
        self._turns._line[self] = None
        while self._turns.first() is not self and time.clock_gettime(time.CLOCK_BOOTTIME) < deadline:
            await self._bell.wait(0.05)
        return self._turns.first() is self

    patch.setattr(Turn, "come", come)


def once_only(patch: Patch) -> None:
    async def never(driver: Any, trouble: Unavailable, *_: Any) -> Any:
        raise trouble

    patch.setattr(f"{HERE}.store.again", never)


def silence_is_a_no(patch: Patch) -> None:
    renew = Renewal.renew

    async def plainly(self: Renewal, *args: Any) -> Any:
        return [one if isinstance(one, Grant) else None for one in await renew(self, *args)]

    patch.setattr(Renewal, "renew", plainly)


def in_doubt_for_ever(patch: Patch) -> None:
    patch.setattr(claiming.Record, "doubtful", property(lambda self: True, lambda self, doubtful: None))


MISTAKES: list[tuple[Callable[[Patch], None], Callable[[Stage, Patch], None]]] = [
    (without_a_lease, a_dead_session_takes_its_locks_along),
    (without_the_line, nobody_overtakes),
    (counted_for_ever, who_enters_while_another_counts_is_counted),
    (watched_from_now_on, a_release_before_the_watch_is_heard),
    (renewed_unseen, a_key_that_is_gone_is_not_renewed),
    (whatever_the_term, a_keep_alive_of_another_term_counts_for_nothing),
    (never_swept, what_nobody_renews_ends_although_its_session_lives),
    (started_once_and_for_all, what_nobody_renews_ends_in_the_next_event_loop_too),
    (swept_away_by_the_clock, who_is_answered_late_is_not_swept_away_while_it_claims),
    (swept_away_whatever_it_is, who_is_swept_away_late_is_only_who_was_there),
    (changed_means_downgraded, who_is_swept_away_while_it_is_renewed_is_not_kept),
    (all_in_one, two_of_one_name_never_share_a_token),
    (confirmed_by_anything, a_transaction_sent_before_the_keep_alive_confirms_nothing),
    (gone_without_a_trace, what_arrives_after_its_release_does_not_enter),
    (forgotten_by_a_try_that_failed, what_arrives_after_a_try_that_failed_does_not_enter),
    (turns_like_locks, who_was_interrupted_as_it_left_is_in_nobodys_way),
    (once_only, a_release_whose_connection_breaks_leaves_all_the_same),
    (silence_is_a_no, no_answer_is_no_loss),
    (in_doubt_for_ever, doubt_about_one_claim_is_over_with_it),
]


@pytest.mark.parametrize(("mistake", "scenario"), MISTAKES, ids=lambda one: one.__name__)
def test_the_mistake_is_found_and_its_absence_too(
    mistake: Callable[[Patch], None],
    scenario: Callable[[Stage, Patch], None],
    cluster: Cluster[Etcd],
    connect: Connect,
    url: str,
    monkeypatch: Patch,
) -> None:
    with monkeypatch.context() as patch:
        scenario(Stage(cluster, lambda: connect(f"{url}/right"), f"{url}/right"), patch)
    with monkeypatch.context() as patch:
        mistake(patch)
        with pytest.raises(AssertionError):
            scenario(Stage(cluster, lambda: connect(f"{url}/wrong"), f"{url}/wrong"), patch)
