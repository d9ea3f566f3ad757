"""What the store owes the core when something is slow, silent, cut or locked: bounded calls, three verdicts, harmless repeats.

The bounds here are a tenth of what the same call took, or would take, without them: no test needs a quick machine.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest

from holdfast import Unavailable
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.postgresql import ear, session_wire
from holdfast.stores.postgresql import store as postgresql_store
from holdfast.stores.postgresql.statements import PING
from holdfast.testing.alarms import alarms
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.postgresql import PostgreSQL

from ..black_hole import BlackHole
from ..hands import SOON, claim_of, until
from .stores import LONG, OpenStore, Stored, seconds

pytestmark = pytest.mark.server
MODES = pytest.mark.parametrize("mode", ["lease", "session"])
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
SILENT = 40.0  # seconds in which silence is told as a loss, on a busy machine
PATIENT = "?timeout=60&mode="  # so that only what was asked for can have ended it


@contextmanager
def a_locked_row(postgresql: PostgreSQL, name: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgresql.url) as somebody:
        somebody.execute("SELECT FROM holdfast.locks WHERE name = %s AND place = 0 FOR UPDATE", (name.encode(),))
        yield somebody
        somebody.rollback()


# ---- nothing takes longer than was asked


def calls(claim: Claim, grant: Grant) -> dict[str, Callable[[Any], Any]]:
    return {
        "claim": lambda store: store.claim(claim_of("y"), 0.5),
        "claim again": lambda store: store.claim(claim, 0.5),
        "inspect": lambda store: store.inspect("x", 0.5),
        "watch": lambda store: store.watch("x", grant.token, 0.5),
        "renew": lambda store: store.renew([grant], 0.5),
        "release": lambda store: store.release(claim, 0.5),
    }


@MODES
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "yet to connect"])
def test_on_a_silent_server_every_call_ends_when_it_was_told_to(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, mode: str, connected: bool
) -> None:
    store = opened(proxy.address, PATIENT + mode)
    claim = claim_of("x")
    grant = store.grant(claim) if connected else Grant(claim, 1, 30)
    proxy.to_client.hold()
    for what, call in calls(claim, grant).items():

        def unanswered(call: Callable[[Any], Any] = call) -> None:
            try:
                answer = store.do(call)
            except Unavailable:
                return
            if isinstance(answer, list):  # of verdicts
                assert not isinstance(answer[0], Grant)

        assert seconds(unanswered) < 6, what
    proxy.flow()


@MODES
def test_of_several_hosts_a_silent_one_takes_no_more_than_its_share(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, mode: str
) -> None:
    proxy.to_client.hold()
    hosts = ",".join(f"{host}:{port}" for host, port in (proxy.address, postgresql.address))
    store = opened(f"postgresql://postgres@{hosts}/postgres", PATIENT + mode)
    store.do(lambda store: store.inspect("x", 12.0))
    proxy.flow()


@MODES
def test_a_server_that_listens_at_one_of_its_addresses_is_found(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """As `localhost` has two, where nobody listens at ::1."""
    look_up = socket.getaddrinfo

    def two(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        if host != "db.test":
            return look_up(host, port, *rest, **more)
        if more.get("flags"):  # is it an address in numbers?
            raise socket.gaierror("no")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", two)
    url = f"postgresql://postgres@db.test:{postgresql.port}/postgres"
    opened(url, f"?mode={mode}").grant(claim_of("x"))


@MODES
def test_a_server_that_is_silent_does_not_hold_up_the_end(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, mode: str
) -> None:
    store = opened(proxy.address, PATIENT + mode)
    store.grant(claim_of("x"))
    begun = store.begin(lambda store: store.claim(claim_of("x"), 1.0))
    begun.result(LONG)
    proxy.to_client.hold()
    under_way = store.begin(lambda store: store.claim(claim_of("y"), 5.0))
    proxy.to_client.wait_for_caught(1)
    assert seconds(lambda: store.do(lambda store: store.close())) < 3
    proxy.flow()
    under_way.exception(LONG)


def test_a_signal_restarts_no_wait(postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore) -> None:
    store = opened(proxy.address, "?timeout=60")
    store.grant(claim_of("x"))
    proxy.to_client.hold()
    with alarms(0.2):
        with pytest.raises(Unavailable):
            store.claim(claim_of("y"), 1.0)
        waited = seconds(lambda: finish(_waits(store)) if store._loop is None else None)
        assert waited < 20
    proxy.flow()


async def _waits(store: Stored) -> None:
    await store.store.wait(Place(claim_of("x"), 1.0), 1.0)


def test_what_was_given_up_is_not_done_later(postgresql: PostgreSQL, opened: OpenStore) -> None:
    """The server stops waiting for a row before we stop waiting for the server."""
    store = opened(postgresql.url, "?timeout=60")
    store.release(store.grant(claim_of("x")).claim)
    with a_locked_row(postgresql, "x"):
        with pytest.raises(Unavailable):
            store.claim(claim_of("x"), 0.5)
        until(lambda: postgresql.query(WAITING) == [("0",)])
    assert store.holders("x") == []


# ---- renewal: three verdicts


def test_a_locked_row_makes_its_own_lease_unknown_and_the_others_are_kept(
    postgresql: PostgreSQL, opened: OpenStore
) -> None:
    store = opened(postgresql.url)
    grants = [store.grant(claim_of(name)) for name in "abc"]
    lost = grants[2]._replace(token=1)
    with a_locked_row(postgresql, "b"):
        kept, unknown, gone = store.renew([grants[0], grants[1], lost], 2.0)
    assert (kept, gone) == (grants[0], None)
    assert isinstance(unknown, Unavailable)
    assert store.renew(grants, SOON) == grants


def test_a_row_that_is_locked_for_a_moment_is_waited_for(postgresql: PostgreSQL, opened: OpenStore) -> None:
    store = opened(postgresql.url)
    grants = [store.grant(claim_of(name)) for name in "ab"]
    with a_locked_row(postgresql, "b") as somebody:
        begun = store.begin(lambda store: store.renew(grants, SOON))
        until(lambda: begun.done() or postgresql.query(WAITING) == [("1",)])
        somebody.rollback()
        assert begun.result(LONG) == grants


def test_one_stuck_connection_makes_its_own_session_lock_unknown_and_a_late_answer_keeps_it(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore
) -> None:
    store = opened(proxy.address, "?mode=session")
    grants = [store.grant(claim_of(f"n{number}", ttl=300)) for number in range(4)]
    word = struct.pack(">q", grants[0].token)
    proxy.to_server.hold(when=lambda chunk: word in chunk)
    unknown, *kept = store.renew(grants, 1.0)
    assert isinstance(unknown, Unavailable)
    assert kept == grants[1:]
    proxy.flow()
    assert store.renew(grants, SOON) == grants


def test_a_session_that_falls_silent_is_a_loss_long_before_its_ttl(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore
) -> None:
    """Its end at the server may have been swallowed on the way, and somebody else have the lock."""
    store = opened(proxy.address, "?mode=session")
    lost: list[str] = []
    store.store.tell_losses_to(lambda holder, why: lost.append(holder))
    grant = store.grant(claim_of("x", ttl=300))
    proxy.to_server.hold()
    proxy.to_client.hold()
    until(lambda: lost == [grant.claim.holder], within=SILENT)
    proxy.flow()
    until(lambda: opened(postgresql.url, "?mode=session").holders("x") == [], within=40)


def test_a_refusal_to_say_whether_a_session_is_there_is_no_loss(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cancelled, say: its connection is there, and the lock with it. (In threads it was told as lost.)"""
    store = opened(postgresql.url, "?mode=session")
    grant = store.grant(claim_of("x", ttl=300))
    monkeypatch.setattr(session_wire, "PING", PING._replace(name=b"holdfast_unknown"))
    (unknown,) = store.renew([grant], 0.5)
    assert isinstance(unknown, Unavailable)
    monkeypatch.undo()
    assert store.renew([grant], SOON) == [grant]


# ---- release is repeated


@MODES
def test_a_release_on_a_connection_that_was_cut_is_repeated_on_another(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, mode: str
) -> None:
    store, others = opened(proxy.address, f"?mode={mode}"), opened(postgresql.url, f"?mode={mode}")
    grant = store.grant(claim_of("x", ttl=300))
    assert store.renew([grant], SOON) == [grant]
    store.holders("x")  # so that the connection is fresh, and is not looked at before it is used

    def cut(_: bytes) -> bool:
        proxy.cut(reset=True)
        return True

    proxy.to_server.drop(chunks=1, when=cut)
    there = store.release(grant.claim)
    assert there or mode == "session"  # whose lock goes with its connection
    until(lambda: others.holders("x") == [])
    assert store.release(grant.claim) is False


def test_a_session_whose_connection_is_stuck_is_released_over_another(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore
) -> None:
    store, others = opened(proxy.address, "?mode=session"), opened(postgresql.url, "?mode=session")
    grant = store.grant(claim_of("x", ttl=300))
    stuck = {struct.pack(">q", grant.token), grant.claim.holder.encode()}
    first: list[bytes] = []

    def of_its_connection(chunk: bytes) -> bool:
        if any(word in chunk for word in stuck) and not first:
            first.append(chunk)
            return True
        return False

    proxy.to_server.hold(when=of_its_connection)
    assert store.release(grant.claim, 4.0)
    until(lambda: others.holders("x") == [])
    assert isinstance(others.claim(claim_of("x")), Grant)


# ---- a claim is repeated


def test_a_session_whose_answer_was_lost_is_not_in_its_own_way(postgresql: PostgreSQL, opened: OpenStore) -> None:
    """Its lock is taken at the server's side of a connection that has ended on ours only."""
    with BlackHole(postgresql.address) as between:
        store = opened(("127.0.0.1", between.port), "?mode=session")
        store.release(store.grant(claim_of("x")).claim)
        between.swallow()
        mine = claim_of("x", ttl=300)
        with pytest.raises(Unavailable):
            store.claim(mine, 0.3)
        again = store.claim(mine, SOON)
        if isinstance(again, Place):
            store.do(lambda store: store.wait(again, SOON))
            again = store.claim(mine, SOON)
        assert isinstance(again, Grant)
        assert opened(postgresql.url, "?mode=session").holders("x") == [again.token]
        assert store.release(mine)


# ---- one locked row


def test_in_asyncio_a_locked_row_delays_nobody_who_wants_another(postgresql: PostgreSQL, opened: OpenStore) -> None:
    store = opened(postgresql.url, "?timeout=60")
    for name in "ax":
        store.release(store.grant(claim_of(name)).claim)
    with a_locked_row(postgresql, "x"):
        held_up = [store.begin(lambda store: store.claim(claim_of("x"), LONG)) for _ in range(3)]
        until(lambda: postgresql.query(WAITING) != [("0",)])
        free = [store.grant(claim_of(name)) for name in ("a", "b", "c")]
        assert all(store.release(grant.claim) for grant in free)
        assert not any(one.done() for one in held_up)
    answers = [one.result(LONG) for one in held_up]
    assert sorted(type(one).__name__ for one in answers) == ["Grant", "Place", "Place"]


# ---- interrupted anywhere


def test_interrupted_at_any_line_nothing_is_left_and_no_connection_is_used_up(postgresql: PostgreSQL) -> None:
    store = Stored(postgresql.url + "?pool=2&durability=relaxed", asynchronous=False)
    here = os.path.dirname(postgresql_store.__file__)
    store.release(store.grant(claim_of("x")).claim)
    lines = 0
    try:
        for number in itertools.count(1):
            seen = 0

            def trace(frame: Any, event: str, _: object) -> Any:
                nonlocal seen
                if not frame.f_code.co_filename.startswith(here):
                    return None
                if event == "line":
                    seen += 1
                    if seen == number:  # noqa: B023
                        raise KeyboardInterrupt
                return trace

            claim = claim_of("x")
            sys.settrace(trace)
            try:
                finish(store.store.claim(claim, 5.0))
                finish(store.store.release(claim, 5.0))
            except KeyboardInterrupt:
                lines += 1
            finally:
                sys.settrace(None)
            store.release(claim, 5.0)
            assert store.holders("x") == [], f"left behind by an interruption at line {number}"
            assert len(store.store._wire._pool._lying) == 2, f"used up by an interruption at line {number}"
            if seen < number:
                break
    finally:
        store.close()
    assert lines > 40


# ---- waiters are woken


@MODES
def test_waiters_are_woken_from_any_thread(postgresql: PostgreSQL, opened: OpenStore, mode: str) -> None:
    store = opened(postgresql.url, f"?mode={mode}")
    token = store.grant(claim_of("x")).token
    places = [store.claim(claim_of("x")) for _ in range(3)]
    waits = [store.begin(partial(_wait, place)) for place in places]
    waits.append(store.begin(lambda store: store.watch("x", token, LONG)))

    def everybody_is_back() -> bool:
        store.store.wake_waiters()  # again and again: they may just be about to begin
        return all(one.done() for one in waits)

    until(everybody_is_back)
    for place in places:
        assert store.release(place.claim)


@MODES
def test_whoever_is_only_about_to_wait_is_woken_too(postgresql: PostgreSQL, opened: OpenStore, mode: str) -> None:
    store = opened(postgresql.url, f"?mode={mode}")
    if store._loop is not None:
        return  # in a loop nothing comes between the last look and the wait
    store.grant(claim_of("x"))
    place = store.claim(claim_of("x"))
    store.store.wake_waiters()
    waiting = store.begin(partial(_wait, place))
    waiting.result(SOON)
    assert store.release(place.claim)


def test_a_watch_that_is_only_about_to_listen_is_woken(postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore) -> None:
    store = opened(proxy.address, PATIENT + "lease")
    token = store.grant(claim_of("x")).token
    proxy.to_server.hold(when=lambda chunk: b"LISTEN" in chunk)
    watching = store.begin(lambda store: store.watch("x", token, LONG))
    proxy.to_server.wait_for_caught(1)
    store.store.wake_waiters()
    proxy.flow()
    watching.result(SOON)


def test_an_ear_that_opens_while_all_is_closed_is_closed_too(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore
) -> None:
    store = opened(proxy.address, PATIENT + "lease")
    token = store.grant(claim_of("x")).token
    proxy.to_server.hold(when=lambda chunk: b"LISTEN" in chunk)
    watching = store.begin(lambda store: store.watch("x", token, LONG))
    proxy.to_server.wait_for_caught(1)
    store.do(lambda store: store.close())
    proxy.flow()
    assert isinstance(watching.exception(SOON), Unavailable)
    until(lambda: proxy.connections == 0)


def test_an_ear_that_nobody_reads_keeps_nothing_in_the_queue_of_notifications(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one queue for all: when it is full, nobody can notify any more. It was kept full by whoever had waited once."""
    monkeypatch.setattr(ear, "_UNREAD", 0.3)
    store = opened(postgresql.url)
    held = store.grant(claim_of("x"))
    place = store.claim(claim_of("x"))
    ears = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%LISTEN%' AND pid <> pg_backend_pid()"
    time.sleep(0.9)
    assert postgresql.query(ears) == [("1",)]  # somebody waits
    assert store.release(place.claim)
    postgresql.query(
        "SELECT pg_notify('holdfast_watch_holdfast', n || repeat('0', 300)) FROM generate_series(1, 60000) n"
    )
    until(lambda: postgresql.query("SELECT pg_notification_queue_usage()") == [("0",)])
    again = store.claim(claim_of("x"))  # which opens another
    waiting = store.begin(partial(_wait, again))
    assert store.release(held.claim)
    waiting.result(SOON)
    assert isinstance(store.claim(again.claim), Grant)


@MODES
def test_a_watch_whose_time_runs_out_is_no_trouble(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, mode: str
) -> None:
    store = opened(proxy.address, PATIENT + mode)
    token = store.grant(claim_of("x")).token
    proxy.to_client.hold()
    store.do(lambda store: store.watch("x", token, 0.3))
    proxy.flow()


async def _wait(place: Grant | Place, store: Any) -> None:
    await store.wait(place, LONG)


def test_who_waits_is_let_in_after_all_were_woken(postgresql: PostgreSQL, opened: OpenStore) -> None:
    store = opened(postgresql.url)
    grant = store.grant(claim_of("x"))
    place = store.claim(claim_of("x"))
    store.store.wake_waiters()
    assert isinstance(place, Place)
    assert isinstance(store.claim(place.claim), Place)
    waiting = store.begin(lambda store: store.wait(place, LONG))
    store.release(grant.claim)
    waiting.result(SOON)
    assert isinstance(store.claim(place.claim), Grant)


# ---- secrets


def test_a_holder_is_a_secret_also_when_a_row_is_busy(postgresql: PostgreSQL, opened: OpenStore) -> None:
    store = opened(postgresql.url)
    claim = Claim("x", new_holder(), "somebody", 30.0)
    grant = store.grant(claim)
    with a_locked_row(postgresql, "x"):
        (unknown,) = store.renew([grant], 0.5)
    assert claim.holder not in repr(unknown)


# ---- a crash of the server


def test_a_release_that_a_crash_of_the_server_forgets_is_said_again(forgetful: PostgreSQL, opened: OpenStore) -> None:
    store = opened(forgetful.url)
    names = [f"n{number}" for number in range(5)]
    for grant in [store.grant(claim_of(name, ttl=300)) for name in names]:
        assert store.release(grant.claim)
    forgetful.kill()
    forgetful.restart()
    assert [name for name in names if store.holders(name)] == []


def test_a_forgotten_release_whose_row_is_locked_is_said_before_the_next_question(
    forgetful: PostgreSQL, opened: OpenStore
) -> None:
    """Others claim the name as soon as the server is back, and each has its row for a moment."""
    store = opened(forgetful.url)
    forgotten = False
    for _ in range(8):  # every ten seconds the server writes everything down, and then forgets nothing
        for grant in [store.grant(claim_of(name, ttl=300)) for name in "xy"]:
            assert store.release(grant.claim)
        forgetful.kill()
        forgetful.restart()
        with a_locked_row(forgetful, "x"):
            assert store.holders("y") == []  # on a new connection
            forgotten = store.holders("x") != []
        until(lambda: store.holders("x") == [])
        if forgotten:
            return
    assert forgotten


def test_an_orderly_restart_forgets_no_release(forgetful: PostgreSQL, opened: OpenStore) -> None:
    store = opened(forgetful.url)
    assert store.release(store.grant(claim_of("x", ttl=300)).claim)
    forgetful.restart()
    assert opened(forgetful.url).holders("x") == []
