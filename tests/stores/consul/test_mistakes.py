"""The store with one mistake each: the scenario that is meant to find it does, and passes without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.claim import Grant, Place
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import boot_time, finish
from holdfast.drivers.sockets import SocketStream
from holdfast.drivers.threads import Threads
from holdfast.errors import Unavailable
from holdfast.stores.consul import keeper, keys, looking, open_store, renewing, sessions
from holdfast.stores.consul.book import Book, NotOurs
from holdfast.sync import Locks
from holdfast.testing.conformance.loops import Loops
from holdfast.testing.conformance.world import World
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.consul import Consul

from ..hands import Connect, claim_of
from .hands import ask, session_of

pytestmark = pytest.mark.server


class Stage:
    def __init__(self, consul: Consul, prefix: str, a: Locks, b: Locks, patience: float) -> None:
        self.consul = consul
        self.prefix = prefix
        self.patience = patience  # for what does not come, if there is a mistake
        self.a: Any = a._engine.store
        self.b: Any = b._engine.store

    def destroy(self, session: str) -> None:
        assert ask(self.consul, "PUT", f"/v1/session/destroy/{session}")


Scenario = Callable[[Stage], None]


def whoever_has_an_old_book_does_not_get_in(stage: Stage) -> None:
    of_two = [claim_of("x")._replace(capacity=2) for _ in range(3)]
    assert isinstance(finish(stage.a.claim(of_two[0])), Grant)
    assert isinstance(finish(stage.b.claim(of_two[1])), Grant)
    # It takes the book to be as it left it, with room for one more, until Consul says no.
    assert isinstance(finish(stage.a.claim(of_two[2])), Place)


def nobody_gets_in_on_a_dead_session(stage: Stage) -> None:
    first = claim_of("first")
    finish(stage.a.claim(first))
    stage.destroy(session_of(stage.consul, stage.prefix, "first"))
    assert isinstance(finish(stage.a.claim(claim_of("x"))), Grant)
    assert len(finish(stage.b.inspect("x")).holders) == 1  # on a new one, that lives


def a_claim_taken_back_on_its_way_is_no_ghost(stage: Stage) -> None:
    finish(stage.a.claim(claim_of("warm")))
    late = claim_of("x")
    wire = stage.a.wire
    plain = wire.ask
    kept: list[Any] = []

    async def lose(method: str, path: str, body: bytes, *args: Any, **more: Any) -> Any:
        if b"locks/x:" in body and b"lock" in body and not kept:
            kept.append((method, path, body, boot_time() + 5))
            raise KeyboardInterrupt
        return await plain(method, path, body, *args, **more)

    wire.ask = lose
    with pytest.raises(KeyboardInterrupt):
        finish(stage.a.claim(late))
    wire.ask = plain
    finish(stage.a.release(late))
    finish(wire.ask(*kept[0]))  # and now it arrives
    assert finish(stage.b.names("x")) == []


def a_living_holder_is_not_struck_out(stage: Stage) -> None:
    finish(stage.a.claim(claim_of("x")))
    assert isinstance(finish(stage.b.claim(claim_of("x"))), Place)
    assert len(finish(stage.b.inspect("x")).holders) == 1


def the_next_in_line_is_rung(stage: Stage) -> None:
    mine, theirs = claim_of("x"), claim_of("x")
    finish(stage.a.claim(mine))
    place = finish(stage.b.claim(theirs))
    finish(stage.a.release(mine))
    finish(stage.b.wait(place, stage.patience))
    assert stage.b.keeper.records[theirs.holder].rung


def an_evicted_holder_is_told_though_it_holds_more_than_is_looked_at(stage: Stage) -> None:
    grants = [finish(stage.a.claim(claim_of(f"x{number}"))) for number in range(70)]
    stage.a._renewing.turn = 0
    last = grants[-1]
    assert finish(stage.b.evict("x69", last.token, "admin"))
    assert finish(stage.a.renew(grants, 10))[-1] is None


def a_release_whose_connection_breaks_leaves_all_the_same(stage: Stage) -> None:
    with Proxy(stage.consul.address) as proxy:
        far = open_store(f"consul://127.0.0.1:{proxy.port}/{stage.prefix}", Threads())
        mine = claim_of("x")
        finish(far.claim(mine))
        proxy.cut(reset=True)
        try:
            left = finish(far.release(mine))
        except Unavailable:
            left = False
        finish(far.close())
    assert left


def no_answer_is_no_loss(stage: Stage) -> None:
    with Proxy(stage.consul.address) as proxy:
        far = open_store(f"consul://127.0.0.1:{proxy.port}/{stage.prefix}", Threads())
        grants = [finish(far.claim(claim_of(name, ttl))) for name, ttl in (("x", 30.0), ("y", 60.0))]
        assert finish(stage.b.evict("x", grants[0].token, "admin"))  # type: ignore[union-attr]
        heard = proxy.to_client
        plain = far.sessions.renew

        async def renew(session: Any, *args: Any, **more: Any) -> bool:
            if session.ttl == 60.0:
                heard.hold()
            return await plain(session, *args, **more)

        far.sessions.renew = renew  # type: ignore[method-assign]
        verdicts = finish(far.renew(grants, 1.5))  # type: ignore[arg-type]
        proxy.flow()
        finish(far.close())
    assert verdicts[0] is None
    assert isinstance(verdicts[1], Unavailable)


def who_is_let_in_by_a_session_that_just_ended_as_idle_is_inside_all_the_same(stage: Stage) -> None:
    """Here it broke: who came when the store had been idle for 20 s got a lock that was free to all at once."""
    finish(stage.a.claim(claim_of("warm")))
    stage.a.keeper.forget(next(iter(stage.a.keeper.records.values())))
    wire = stage.a.wire
    plain = wire.ask
    ended: list[bool] = []

    async def ask(method: str, path: str, body: bytes, *args: Any, **more: Any) -> Any:
        answer = await plain(method, path, body, *args, **more)
        if b"locks/x:" in body and not ended:
            ended.append(True)
            await stage.a.keeper.end_idle(boot_time() + 5)
        return answer

    wire.ask = ask
    grant = finish(stage.a.claim(claim_of("x")))
    assert ended
    assert [one.token for one in finish(stage.b.inspect("x")).holders] == [grant.token]
    assert finish(stage.a.renew([grant], 5)) == [grant]


def kept_under_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = keeper.Keeper.keep

    def keep(self: Any, claim: Any, who: str, session: Any, *args: Any) -> Any:
        lost, session.lost = session.lost, False
        try:
            return plain(self, claim, who, session, *args)
        finally:
            session.lost, session.users = lost, 0  # neither is it counted as one who uses it

    monkeypatch.setattr(keeper.Keeper, "keep", keep)


def a_book_that_somebody_overwrote_is_one_loss_and_no_more(stage: Stage) -> None:
    grants = [finish(stage.a.claim(claim_of(name))) for name in ("x", "y")]
    assert ask(stage.consul, "PUT", f"/v1/kv/{stage.prefix}/locks/x:", "nonsense")
    assert finish(stage.a.renew(grants, 5)) == [None, grants[1]]
    assert finish(stage.a.release(grants[0].claim)) is False


def everybody_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(store: Any, item: Any) -> Any:
        try:
            return looking.open_book(store, item)
        except NotOurs as error:
            raise Unavailable(str(error)) from error

    monkeypatch.setattr(renewing, "open_book", opened)


def once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(driver: Any, trouble: Unavailable, *_: Any) -> Any:
        raise trouble

    monkeypatch.setattr("holdfast.stores.consul.store.again", never)
    monkeypatch.setattr(SocketStream, "is_stale", lambda self: False)  # it is used without a look


def silence_is_a_no(monkeypatch: pytest.MonkeyPatch) -> None:
    renew = renewing.Renewing.renew

    async def plainly(self: Any, *args: Any) -> Any:
        return [one if isinstance(one, Grant) else None for one in await renew(self, *args)]

    monkeypatch.setattr(renewing.Renewing, "renew", plainly)


def everybody_is_alive(monkeypatch: pytest.MonkeyPatch, found: bool) -> None:
    async def dead_among(store: Any, asked: Any, deadline: float) -> set[str]:
        return set() if found else set(asked)

    monkeypatch.setattr(looking, "dead_among", dead_among)


def no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "unchanged", lambda key, index: keys.tree(key))


def no_check_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = keys.unchanged
    monkeypatch.setattr(
        keys, "unchanged", lambda key, index: keys.tree(key) if key.endswith("/alive") else plain(key, index)
    )
    write = keys.Keys.write

    def by_nobody(self: Any, name: str, book: Book, dead: Any = ()) -> Any:
        return write(self, name, book, {book.only_session()})

    monkeypatch.setattr(keys.Keys, "write", by_nobody)


def no_new_stamp(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = sessions.Sessions.stamp

    async def stamp(self: Any, session: Any, within: float) -> None:
        if not session.stamp:
            await plain(self, session, within)

    monkeypatch.setattr(sessions.Sessions, "stamp", stamp)


def no_bell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Book, "heir", lambda self: None)


def no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys.Keys, "out", lambda self, session, who: self.bell(session, f"nobody-{id(self)}"))


MISTAKES: dict[str, tuple[Scenario, Callable[[pytest.MonkeyPatch], None]]] = {
    "a book is written whatever its index": (whoever_has_an_old_book_does_not_get_in, no_guard),
    "a claim does not check its session": (nobody_gets_in_on_a_dead_session, no_check_of_the_session),
    "a claim taken back leaves the stamp": (a_claim_taken_back_on_its_way_is_no_ghost, no_new_stamp),
    "everybody else is taken for dead": (a_living_holder_is_not_struck_out, lambda m: everybody_is_alive(m, False)),
    "nobody is rung": (the_next_in_line_is_rung, no_bell),
    "a release is sent once": (a_release_whose_connection_breaks_leaves_all_the_same, once_only),
    "no answer is taken for a no": (no_answer_is_no_loss, silence_is_a_no),
    "a claim is kept under a session that has ended": (
        who_is_let_in_by_a_session_that_just_ended_as_idle_is_inside_all_the_same,
        kept_under_what_has_ended,
    ),
    "one book's trouble is everybody's": (a_book_that_somebody_overwrote_is_one_loss_and_no_more, everybody_in_doubt),
    "an eviction leaves no word": (an_evicted_holder_is_told_though_it_holds_more_than_is_looked_at, no_notice),
}


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "with the mistake"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(
    cluster: Cluster[Consul],
    connect: Connect,
    prefix: str,
    mistake: str,
    mistaken: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scenario, make = MISTAKES[mistake]
    a, b = connect(*cluster.addresses), connect(*cluster.addresses)
    stage = Stage(cluster.members[0], prefix, a, b, 0.5 if mistaken else 20)
    if not mistaken:
        scenario(stage)
        return
    make(monkeypatch)
    with pytest.raises((AssertionError, AttributeError, Unavailable)):
        scenario(stage)


def test_what_listens_and_is_not_started_again_is_found(
    cluster: Cluster[Consul], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Asyncio.spawn
    monkeypatch.setattr(Asyncio, "spawn", lambda self, main, name, needed=None: plain(self, main, name))
    world = World(f"{cluster.url}/{prefix}?min_ttl=0.1", "asyncio", 0.6, -2.0)  # it need not wait for long
    with pytest.raises(TimeoutError):
        Loops().test_whoever_cancels_all_other_tasks_makes_no_waiter_deaf(world)
    world.slack = 4.0
    world.end()


def test_a_release_that_arrives_in_the_middle_of_its_own_repetition_is_no_loss(
    cluster: Cluster[Consul], connect: Connect
) -> None:
    """Just there where it does harm: after the repetition has read the book, and before it writes."""
    store: Any = connect(*cluster.addresses)._engine.store
    mine = claim_of("x")
    assert isinstance(finish(store.claim(mine)), Grant)
    plain = store.wire.commit
    late: list[Any] = []

    async def commit(steps: Any, deadline: float) -> Any:
        if not late:
            late.append(steps)
            raise Unavailable("it was sent, and its connection broke")
        if len(late) == 1:
            late.append(await plain(late[0], deadline))
        return await plain(steps, deadline)

    store.wire.commit = commit
    assert finish(store.release(mine)) is True, "it is told as lost"
    assert len(late) == 2
    assert finish(store.names()) == []
