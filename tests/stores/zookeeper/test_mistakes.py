"""The store with one mistake each: the scenario that is meant to find it does, and passes without it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import CheckVersion, Create2, GetChildren, GetChildren2, SetData, Transaction

from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.errors import Misuse
from holdfast.stores.zookeeper import entering, line, records
from holdfast.stores.zookeeper.entering import Entering
from holdfast.stores.zookeeper.looking import Looking
from holdfast.stores.zookeeper.session import Watcher
from holdfast.stores.zookeeper.sessions import Sessions
from holdfast.stores.zookeeper.store import ZooKeeperStore
from holdfast.sync import Locks

from ..hands import Background, Connect, until
from .hands import Ensemble

pytestmark = pytest.mark.server
Scenario = Callable[[Locks, Locks], None]


def claim(name: str = "x", ttl: float = 9.0, units: int = 1, capacity: int = 1, fair: bool = True) -> Claim:
    return Claim(name, new_holder(), "somebody", ttl, units, capacity, fair)


def ask(locks: Locks, asked: Claim) -> Grant | Place:
    return finish(locks._engine.store.claim(asked))


def leave(locks: Locks, asked: Claim) -> bool:
    return finish(locks._engine.store.release(asked))


def before(locks: Locks, kind: Any, what: Callable[[], object]) -> None:
    """Let something happen right before this connection's next request of that kind is sent."""
    store: Any = locks._engine.store
    finish(store.names())  # connected
    session = next(iter(store._sessions._open.values()))
    call = session.client.call

    def interpose(request: Any, reply: Any) -> Any:
        if isinstance(request, kind) and (kind is not GetChildren or request.watcher):
            session.client.call = call
            what()
        return call(request, reply)

    session.client.call = interpose


def comes_in_when_rung(locks: Locks, asked: Claim) -> None:
    """It looks whenever it is rung, and never because time has passed."""
    answer: Grant | Place = Place(asked, asked.ttl)
    while isinstance(answer, Place):
        started = time.monotonic()
        finish(locks._engine.store.wait(answer, 5.0))
        assert time.monotonic() - started < 4.0
        answer = ask(locks, asked)


# ---- scenarios


def a_release_between_looking_and_watching_is_not_missed(a: Locks, b: Locks) -> None:
    ours, theirs = claim(), claim()
    ask(b, claim("other"))
    ask(a, ours)
    (session,) = b._engine.store._sessions._open.values()  # type: ignore[attr-defined]

    def let_go() -> None:
        leave(a, ours)
        finish(session.ask([session.barrier]))  # the other member knows of it too

    before(b, GetChildren, let_go)
    answer = ask(b, theirs)
    if isinstance(answer, Place):
        started = time.monotonic()
        finish(b._engine.store.wait(answer, 2.0))
        assert time.monotonic() - started < 1.5
        answer = ask(b, theirs)
    assert isinstance(answer, Grant)


def a_watch_whose_request_was_lost_is_not_counted_on(a: Locks, b: Locks) -> None:
    ours, theirs = claim(), claim()
    ask(b, claim("other"))
    ask(a, ours)
    (session,) = b._engine.store._sessions._open.values()  # type: ignore[attr-defined]
    call = session.client.call

    def lose_the_watch(request: Any, reply: Any) -> Any:
        if not isinstance(request, GetChildren):
            return call(request, reply)
        session.client.call = call
        return reply.set_exception(ConnectionLoss())

    session.client.call = lose_the_watch
    answer = ask(b, theirs)
    assert isinstance(answer, Place)
    assert session.client.call == call
    leave(a, ours)
    started = time.monotonic()
    finish(b._engine.store.wait(answer, 3.0))
    assert time.monotonic() - started < 2.5
    assert isinstance(ask(b, theirs), Grant)


def whoever_goes_past_the_line_looks_twice(a: Locks, b: Locks) -> None:
    """The room for it is gone when it goes in: the one who left made the one who waits fit."""
    one, both, pushes = claim(units=1, capacity=2), claim(units=2, capacity=2), claim(units=1, capacity=2, fair=False)
    ask(b, claim("other"))
    ask(a, one)
    ask(a, both)
    entered: list[Grant | Place] = []

    def let_in() -> None:
        leave(a, one)
        entered.append(ask(a, both))

    before(b, Transaction, let_in)
    answer = ask(b, pushes)
    assert isinstance(entered[0], Grant)
    assert isinstance(answer, Place)


def tokens_rise_in_the_order_of_entering(a: Locks, b: Locks) -> None:
    one, both, pushes = claim(units=1, capacity=2), claim(units=2, capacity=2), claim(units=1, capacity=2, fair=False)
    ask(a, one)
    ask(a, both)
    past = ask(b, pushes)
    assert isinstance(past, Grant)
    leave(b, pushes)
    leave(a, one)
    late = ask(a, both)
    assert isinstance(late, Grant)
    assert late.token > past.token


def a_listing_that_came_late_is_not_of_the_moment_of_entering(a: Locks, b: Locks) -> None:
    """Others entered and left between our node's creation and our look at the line: our token is above theirs."""
    first, second, late = claim(), claim(), claim()
    ask(a, first)
    ask(a, second)
    ask(b, claim("other"))
    before(b, GetChildren2, lambda: others_come_and_go(a, first, second))
    answer = ask(b, late)
    assert isinstance(answer, Grant)
    assert answer.token > ENTERED[-1].token


ENTERED: list[Grant] = []


def others_come_and_go(a: Locks, first: Claim, second: Claim) -> None:
    until(lambda: len(a.inspect("x").waiters) == 2)
    leave(a, first)
    entered = ask(a, second)
    assert isinstance(entered, Grant)
    ENTERED.append(entered)
    leave(a, second)


def whichever_answer_is_lost_tokens_rise(a: Locks, b: Locks) -> None:
    """Two others enter and leave before it is asked for again; of every answer to a claim, in turn."""
    ask(b, claim("other"))
    (session,) = b._engine.store._sessions._open.values()  # type: ignore[attr-defined]
    call = session.client.call
    for nth in range(12):
        first, second, late = claim(), claim(), claim()
        ask(a, first)
        ask(a, second)
        sent = 0

        def lose_the_nth(request: Any, reply: Any, first: Claim = first, second: Claim = second, nth: int = nth) -> Any:
            nonlocal sent
            sent += 1
            if sent == nth + 1:
                return call(request, Lost(reply, lambda: others_come_and_go(a, first, second)))
            return call(request, reply)

        gone = len(ENTERED)
        session.client.call = lose_the_nth
        answer = ask(b, late)
        session.client.call = call
        if sent <= nth:  # it needed fewer requests
            assert nth > 2
            return
        until(more_entered_than(gone))
        give_up = time.monotonic() + 10
        while isinstance(answer, Place) and time.monotonic() < give_up:
            answer = ask(b, late)
        assert isinstance(answer, Grant)
        assert answer.token > ENTERED[-1].token, f"the answer to request {nth}"
        assert leave(b, late)
    pytest.fail("a claim takes far more requests than it did")


def more_entered_than(number: int) -> Callable[[], bool]:
    return lambda: len(ENTERED) > number


class Lost:
    """An answer that never comes: the connection breaks instead, and meanwhile the world goes on."""

    def __init__(self, reply: Any, meanwhile: Callable[[], None]) -> None:
        self._reply = reply
        self._meanwhile = meanwhile

    def set(self, value: Any = None) -> None:
        threading.Thread(target=self._lose, daemon=True).start()  # not in kazoo's thread, which must go on

    def _lose(self) -> None:
        self._meanwhile()
        self._reply.set_exception(ConnectionLoss())

    set_exception = set


def who_looks_while_one_is_about_to_enter_is_told_its_token(a: Locks, b: Locks) -> None:
    """It came while another was inside, who has left since; it has not said yet that it waits."""
    ours, theirs = claim(), claim()
    ask(a, ours)
    ask(b, claim("other"))
    looking: Any = a._engine.store._looking  # type: ignore[attr-defined]
    patient = looking._driver = Patient(looking._driver)
    looks: list[Background] = []

    def leave_and_look() -> None:
        leave(a, ours)
        looks.append(Background(lambda: a.inspect("x")))
        until(lambda: patient.sleeps or not looks[0].is_alive())

    before(b, SetData, leave_and_look)
    entered = ask(b, theirs)
    assert isinstance(entered, Grant)
    patient.wake.set()
    assert [holder.token for holder in looks[0].result().holders] == [entered.token]


class Patient:
    """A driver whose sleepers sleep until they are woken."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.sleeps = False
        self.wake = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    async def sleep(self, seconds: float) -> None:
        self.sleeps = True
        assert self.wake.wait(20)


def fewer_units_whose_answer_was_lost_are_asked_for_again(a: Locks, b: Locks) -> None:
    """A writer that believes to be a reader, and keeps the readers out."""
    writes, reads = claim(units=3, capacity=3), claim(units=1, capacity=3)
    ask(a, writes)
    ask(b, reads)
    (session,) = a._engine.store._sessions._open.values()  # type: ignore[attr-defined]
    call = session.client.call

    def lose_it_on_its_way(request: Any, reply: Any) -> Any:
        session.client.call = call
        reply.set_exception(ConnectionLoss())

    session.client.call = lose_it_on_its_way
    assert isinstance(ask(a, writes._replace(units=1)), Grant)
    until(lambda: isinstance(ask(b, reads), Grant), within=5)  # another member may hear of it later


def whoever_keeps_fewer_units_lets_nobody_past_the_line_unawares(a: Locks, b: Locks) -> None:
    """The room it makes is taken by the one who waits, before the one who pushes goes in."""
    two, both, pushes = claim(units=2, capacity=3), claim(units=2, capacity=3), claim(units=1, capacity=3, fair=False)
    ask(b, claim("other"))
    ask(a, two)
    ask(a, both)
    entered: list[Grant | Place] = []

    def keep_one() -> None:
        ask(a, two._replace(units=1))
        entered.append(ask(a, both))

    before(b, Transaction, keep_one)
    answer = ask(b, pushes)
    assert isinstance(entered[0], Grant)
    assert isinstance(answer, Place)


def the_first_in_line_waits_for_those_who_went_past_it(a: Locks, b: Locks) -> None:
    one, both, pushes = claim(units=1, capacity=2), claim(units=2, capacity=2), claim(units=1, capacity=2, fair=False)
    ask(a, one)
    ask(a, both)
    assert isinstance(ask(b, pushes), Grant)
    leave(a, one)
    waits = ask(a, both)  # nobody stands before it, and there is no room all the same
    assert isinstance(waits, Place)
    finish(a._engine.store.wait(waits, 0.1))  # what was rung before
    assert isinstance(ask(a, both), Place)
    leave(b, pushes)
    comes_in_when_rung(a, both)


def who_comes_after_one_that_went_past_hears_of_those_before_it(a: Locks, b: Locks) -> None:
    two, three = claim(units=2, capacity=4), claim(units=3, capacity=4)
    pushes, late = claim(units=1, capacity=4, fair=False), claim(units=1, capacity=4)
    ask(a, two)
    ask(a, three)
    assert isinstance(ask(a, pushes), Grant)
    waits = ask(b, late)
    assert isinstance(waits, Place)
    leave(a, three)
    comes_in_when_rung(b, late)


def who_is_behind_one_that_goes_past_hears_of_those_before_it(a: Locks, b: Locks) -> None:
    wide = claim(units=4, capacity=4)
    before_it, pushes = claim(units=3, capacity=4), claim(units=1, capacity=4, fair=False)
    behind = claim(units=1, capacity=4)
    ask(a, wide)
    ask(a, before_it)
    ask(a, pushes)
    waits = ask(b, behind)
    assert isinstance(waits, Place)
    ask(a, wide._replace(units=2))
    assert isinstance(ask(a, pushes), Grant)
    finish(b._engine.store.wait(waits, 1.0))
    assert isinstance(ask(b, behind), Place)
    leave(a, before_it)
    comes_in_when_rung(b, behind)


def what_nobody_renews_ends(a: Locks, b: Locks) -> None:
    ask(a, claim(ttl=0.5))
    until(lambda: b.names() == [], within=3)


def who_was_taken_away_while_it_asked_leaves_no_second_place(a: Locks, b: Locks) -> None:
    """Its answer was later than its ttl: the housekeeper had been there meanwhile."""
    held, waiting = claim(), claim()
    assert isinstance(ask(a, held), Grant)
    assert isinstance(ask(b, waiting), Place)
    store: Any = b._engine.store
    sessions: Sessions = store._sessions
    record = sessions.records[waiting.holder]

    def taken_away() -> None:
        record.until = 0.0
        sessions._remind(record)  # the housekeeper comes at once, and again if a connection is lost
        until(lambda: waiting.holder not in sessions.records)

    before(b, GetChildren2, taken_away)
    assert isinstance(ask(b, waiting), Place)
    assert leave(b, waiting)
    assert leave(a, held)
    assert a.names() == []


def a_lost_answer_makes_no_second_node(a: Locks, b: Locks) -> None:
    mine = claim()
    ask(a, claim("other"))
    store: Any = a._engine.store
    (session,) = store._sessions._open.values()
    call = session.client.call

    def lose_one(request: Any, reply: Any) -> Any:
        if type(request) is not Create2:
            return call(request, reply)
        session.client.call = call
        return call(request, Lost(reply, lambda: None))

    session.client.call = lose_one
    assert isinstance(ask(a, mine), Grant)
    snapshot = b.inspect("x")
    assert (len(snapshot.holders), len(snapshot.waiters)) == (1, 0)


def a_node_of_a_dying_session_is_not_ours(a: Locks, b: Locks) -> None:
    """Elsewhere: it was taken for ours, and when it went there were two holders."""
    mine = claim()
    assert isinstance(ask(a, mine), Grant)
    assert isinstance(ask(b, claim()), Place)
    store: Any = a._engine.store
    (session,) = store._sessions._open.values()
    session.dead = "as far as we know"
    end, session.end = session.end, lambda: None  # the server has not noticed yet
    try:
        assert isinstance(ask(a, mine), Place)
    finally:
        end()


def an_evicted_holder_is_outranked_by_who_was_waiting(a: Locks, b: Locks) -> None:
    ours, theirs = claim(), claim()
    grant = ask(a, ours)
    ask(b, theirs)
    assert isinstance(grant, Grant)
    seal = finish(b._engine.store.evict("x", grant.token, "admin"))
    after = ask(b, theirs)
    assert isinstance(after, Grant)
    assert seal is not None
    assert after.token > seal > grant.token
    assert finish(a._engine.store.renew([grant], 5.0)) == [None]


def another_kind_of_lock_is_refused_and_leaves_nothing(a: Locks, b: Locks) -> None:
    ask(a, claim(capacity=3))
    with pytest.raises(Misuse):
        ask(b, claim(capacity=4))
    assert b.inspect("x").capacity == 3
    assert not b.inspect("x").waiters


# ---- mistakes


def no_second_look_after_watching(patch: pytest.MonkeyPatch) -> None:
    wait_behind = Entering._wait_behind

    async def mistaken(self: Entering, record: Any, stands: Any, give_up: float) -> Place:
        return await wait_behind(self, record, stands, give_up) or Place(record.claim, 9.0)

    patch.setattr(Entering, "_wait_behind", mistaken)


def watches_believed_to_be_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records.Record, "unwatch", lambda self: None)


def past_the_line_without_guards(patch: pytest.MonkeyPatch) -> None:
    enter = Entering._enter_past_line

    async def mistaken(self: Entering, record: Any, stands: Any, version: int, give_up: float) -> Grant | None:
        return await enter(self, record, stands._replace(guards=()), version, give_up)

    patch.setattr(Entering, "_enter_past_line", mistaken)


def the_token_of_joining_instead_of_entering(patch: pytest.MonkeyPatch) -> None:
    granted = Entering._granted

    async def mistaken(self: Entering, record: Any, token: int, give_up: float) -> Grant:
        (found,) = await record.session.ask([GetData(record.path, None)])
        return await granted(self, record, found[1].czxid, give_up)

    from kazoo.protocol.serialization import GetData

    patch.setattr(Entering, "_granted", mistaken)


def the_creation_taken_for_the_entering(patch: pytest.MonkeyPatch) -> None:
    """As it once was: good enough unless somebody was evicted since."""
    patch.setattr(entering, "of_the_moment_of_creation", lambda listing, stat: listing[1].mzxid < stat.czxid)


def one_look_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Looking, "_look_twice", Looking._look)


def fewer_units_believed_to_have_arrived(patch: pytest.MonkeyPatch) -> None:
    still_inside = Entering._still_inside

    async def mistaken(self: Entering, record: Any, asked: Claim, give_up: float) -> Grant | None:
        if any("~" in extra for extra in record.extras):
            record.units = asked.units
        return await still_inside(self, record, asked, give_up)

    patch.setattr(Entering, "_still_inside", mistaken)


def fewer_units_without_a_word_to_the_parent(patch: pytest.MonkeyPatch) -> None:
    def without(operations: list[Any]) -> Any:
        return Transaction([one for one in operations if type(one) is not SetData or "/locks/x/" in one.path])

    async def mistaken(self: Entering, record: Any, asked: Claim, give_up: float) -> Grant | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(entering, "Transaction", without)
            return await still_inside(self, record, asked, give_up)

    still_inside = Entering._still_inside
    patch.setattr(Entering, "_still_inside", mistaken)


def deaf_to_the_line(patch: pytest.MonkeyPatch) -> None:
    def watch_nothing(self: Entering, record: Any) -> None:
        record.watching = Watcher({}, (GetChildren2, ""))

    patch.setattr(Entering, "_watch_line", watch_nothing)


def waiting_for_one_that_went_past(patch: pytest.MonkeyPatch) -> None:
    standing = line.standing

    def mistaken(nodes: Any, tag: str) -> Any:
        stands = standing(nodes, tag)
        before = nodes[: [node.tag for node in nodes].index(tag)] if stands else []
        return stands._replace(ahead=before[-1] if before else None) if stands else None

    patch.setattr(line, "standing", mistaken)


def past_the_line_without_a_word(patch: pytest.MonkeyPatch) -> None:
    def quietly(operations: list[Any]) -> Any:
        return Transaction(
            [
                CheckVersion(one.path, -1) if type(one) is SetData and "/locks/x/" in one.path else one
                for one in operations
            ]
        )

    async def mistaken(self: Entering, *args: Any) -> Grant | None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(entering, "Transaction", quietly)
            return await enter(self, *args)

    enter = Entering._enter_past_line
    patch.setattr(Entering, "_enter_past_line", mistaken)


def no_housekeeping(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sessions, "_sweep", lambda self, records: None)


def joins_again_though_it_was_taken_away(patch: pytest.MonkeyPatch) -> None:
    kept: dict[str, Any] = {}
    right = ZooKeeperStore._record

    async def once(self: ZooKeeperStore, asked: Claim, give_up: float) -> Any:
        if asked.holder not in kept:
            kept[asked.holder] = await right(self, asked, give_up)
        return kept[asked.holder]

    def send(self: Sessions, record: Any, requests: Any) -> Any:
        record.asked = True
        return record.session.send(requests, self._driver.bell())

    patch.setattr(ZooKeeperStore, "_record", once)
    patch.setattr(Sessions, "send", send)


def create_again_when_an_answer_was_lost(patch: pytest.MonkeyPatch) -> None:
    join = Entering._join

    async def forget_and_join(entering: Entering, record: Any, *more: Any) -> Any:
        record.asked = False  # who asks for one that was asked for already is refused
        return await join(entering, record, *more)

    patch.setattr(Entering, "_find_again", forget_and_join)


def one_tag_for_all_sessions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(records, "tag_of", lambda holder, session: line.tag_of(holder, 0))


def any_capacity(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(line, "check_capacity", lambda name, nodes, tag: None)


SCENARIOS: list[tuple[Scenario, Callable[[pytest.MonkeyPatch], None]]] = [
    (a_release_between_looking_and_watching_is_not_missed, no_second_look_after_watching),
    (a_watch_whose_request_was_lost_is_not_counted_on, watches_believed_to_be_there),
    (whoever_goes_past_the_line_looks_twice, past_the_line_without_guards),
    (tokens_rise_in_the_order_of_entering, the_token_of_joining_instead_of_entering),
    (an_evicted_holder_is_outranked_by_who_was_waiting, the_token_of_joining_instead_of_entering),
    (a_listing_that_came_late_is_not_of_the_moment_of_entering, the_creation_taken_for_the_entering),
    (whichever_answer_is_lost_tokens_rise, the_creation_taken_for_the_entering),
    (who_looks_while_one_is_about_to_enter_is_told_its_token, one_look_is_enough),
    (fewer_units_whose_answer_was_lost_are_asked_for_again, fewer_units_believed_to_have_arrived),
    (whoever_keeps_fewer_units_lets_nobody_past_the_line_unawares, fewer_units_without_a_word_to_the_parent),
    (the_first_in_line_waits_for_those_who_went_past_it, deaf_to_the_line),
    (who_comes_after_one_that_went_past_hears_of_those_before_it, waiting_for_one_that_went_past),
    (who_is_behind_one_that_goes_past_hears_of_those_before_it, past_the_line_without_a_word),
    (what_nobody_renews_ends, no_housekeeping),
    (who_was_taken_away_while_it_asked_leaves_no_second_place, joins_again_though_it_was_taken_away),
    (a_lost_answer_makes_no_second_node, create_again_when_an_answer_was_lost),
    (a_node_of_a_dying_session_is_not_ours, one_tag_for_all_sessions),
    (another_kind_of_lock_is_refused_and_leaves_nothing, any_capacity),
]


def named(value: Any) -> str:
    return str(value.__name__)


@pytest.mark.parametrize("scenario", list(dict.fromkeys(scenario for scenario, _ in SCENARIOS)), ids=named)
def test_it_passes(scenario: Scenario, ensemble: Ensemble, connect: Connect, root: str) -> None:
    patient = f"{ensemble.url}{root}?timeout=20"  # what happens in the middle of a request counts as its time
    scenario(connect(patient), connect(patient))


@pytest.mark.parametrize(("scenario", "mistake"), SCENARIOS, ids=named)
def test_a_mistake_is_found(
    scenario: Scenario,
    mistake: Callable[[pytest.MonkeyPatch], None],
    ensemble: Ensemble,
    connect: Connect,
    root: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a, b = connect(ensemble.url + root), connect(ensemble.url + root)
    mistake(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        scenario(a, b)
