"""Session locks: they live with a connection, and its end is told at once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.base import finish
from holdfast.errors import LeaseLost, NotAcquired, Unavailable, Unsupported
from holdfast.stores.mysql.conversation import Conversation
from holdfast.stores.mysql.faults import ServerError
from holdfast.sync import Locks
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.mariadb import MariaDB

from ..black_hole import BlackHole
from .admin import Admin, until

pytestmark = pytest.mark.server


@pytest.fixture
def session(url: str) -> str:
    return f"{url}?mode=session"


@pytest.fixture
def locks(session: str) -> Iterator[Locks]:
    with holdfast.connect(session) as locks:
        yield locks


def connection_of_or_none(admin: Admin, name: str) -> int | None:
    ((found,),) = admin.run(f"SELECT IS_USED_LOCK(lock_key) FROM holdfast_sessions WHERE name = '{name}'")
    return None if found is None else int(found)


def connection_of(admin: Admin, name: str) -> int:
    found = connection_of_or_none(admin, name)
    assert found
    return found


def test_one_at_a_time_with_rising_tokens_and_a_handoff_by_push(locks: Locks, session: str) -> None:
    with holdfast.connect(session) as others:
        lease = locks.lock("x", ttl=30).acquire()
        with pytest.raises(NotAcquired):
            others.lock("x").acquire(timeout=0)
        got: list[Any] = []
        thread = threading.Thread(
            target=lambda: got.append((others.lock("x", ttl=30).acquire(timeout=20), time.monotonic()))
        )
        thread.start()
        until(lambda: others._engine.store._connections)  # type: ignore[attr-defined]
        time.sleep(0.1)
        released = time.monotonic()
        assert lease.release()
        thread.join(20)
        assert got[0][1] - released < 5
        assert got[0][0].token > lease.token
        assert got[0][0].release()
        assert locks.names() == []


def test_a_killed_connection_is_a_loss_told_at_once(locks: Locks, admin: Admin) -> None:
    lease = locks.lock("x", ttl=3600).acquire()
    admin.run(f"KILL {connection_of(admin, 'x')}")
    assert lease.lost.wait(10)  # and not after twenty minutes, when it would be renewed
    with pytest.raises(LeaseLost, match="ended the connection"):
        lease.check()
    assert locks.lock("x").acquire(timeout=10).token > lease.token


def test_in_asyncio_too_and_the_body_is_cancelled(session: str, admin: Admin) -> None:
    async def main() -> None:
        async with aio.connect(session) as locks:
            with pytest.raises(LeaseLost):
                async with locks.lock("x", ttl=3600):
                    await asyncio.to_thread(lambda: admin.run(f"KILL {connection_of(admin, 'x')}"))
                    await asyncio.sleep(20)
            lease = await locks.lock("y").acquire(timeout=20)

            async def again() -> None:
                await locks.lock("y").acquire(timeout=20)

            second = asyncio.create_task(again())
            await asyncio.sleep(0.2)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert await lease.release()
            assert await (await locks.lock("y").acquire(timeout=20)).release()

    asyncio.run(main())


def test_it_is_renewed_past_its_ttl(locks: Locks, admin: Admin) -> None:
    lease = locks.lock("x", ttl=1).acquire()
    time.sleep(2.5)
    lease.check()
    assert locks.inspect("x").holders[0].token == lease.token
    assert lease.release()


_HOLDER = """
import sys, time, holdfast
lease = holdfast.connect(sys.argv[1]).lock("x", ttl=1).acquire()
print(lease.token, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_holder_that_is_killed_or_stopped_does_not_block_others(
    locks: Locks, session: str, how: signal.Signals
) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, session], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        token = int(holder.stdout.readline())
        os.kill(holder.pid, how)
        lease = locks.lock("x").acquire(timeout=30)
        assert lease.token > token
        lease.release()
    finally:
        holder.kill()
        holder.communicate()


def test_a_forced_release_ends_the_connection_and_outranks_it(locks: Locks, session: str) -> None:
    with holdfast.connect(session) as others:
        lease = locks.lock("x", ttl=3600).acquire()
        assert others.force_release("x", token=lease.token + 1) is None
        past = others.force_release("x", token=lease.token)
        assert past is not None
        assert lease.lost.wait(10)
        assert others.lock("x").acquire(timeout=10).token > past
        eviction = others.inspect("x").eviction
        assert eviction is not None
        assert eviction.evicted_token == lease.token


def test_what_named_locks_cannot_do_is_refused(locks: Locks) -> None:
    for ask in (locks.semaphore("s", 2).acquire, locks.rwlock("rw").read().acquire):
        with pytest.raises(Unsupported, match="mode=session"):
            ask(timeout=0)


def test_names_that_get_lock_would_take_for_one_are_different_locks(locks: Locks, admin: Admin) -> None:
    names = ["a", "A", "a ", "á", "x" * 64, "x" * 65, "X" * 64, "x" * 512, "hf:a", "hf#a", "a/b"]
    leases = [locks.lock(name).acquire(timeout=0) for name in names]
    keys = [key.decode() for (key,) in admin.run("SELECT lock_key FROM holdfast_sessions")]
    assert len({key.lower() for key in keys}) == len(names)
    assert all(len(key) <= 64 for key in keys)
    assert all(lease.release() for lease in leases)


class OneSided:
    """Between us and the server; ends the server's side of a connection, and says nothing to ours."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._upstream: list[socket.socket] = []
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._upstream.append(server)
                self._clients.append(client)
                threading.Thread(target=self._pump, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pump, args=(server, client), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                with contextlib.suppress(OSError):
                    sink.sendall(data)  # what a closed one refuses is swallowed

    def end_upstream(self) -> None:
        for server in self._upstream:
            server.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for one in (self._listener, *self._clients, *self._upstream):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def test_a_connection_that_only_the_server_ended_is_a_loss_told_in_seconds(session: str, mariadb: MariaDB) -> None:
    between = OneSided(mariadb.address)
    through = session.replace(str(mariadb.port), str(between.port))
    with holdfast.connect(session) as others, holdfast.connect(through) as locks:
        lease = locks.lock("x", ttl=600).acquire()
        between.end_upstream()
        with others.lock("x", ttl=600).acquire(timeout=10) as next_one:
            assert next_one.token > lease.token
            assert lease.lost.wait(20)  # and not after two hundred seconds, when it would be renewed
    between.close()


def test_many_new_names_at_once_do_not_deadlock(session: str, locks: Locks) -> None:
    locks.lock("warm").acquire().release()
    errors: list[Exception] = []
    together = threading.Barrier(12)

    def work(number: int) -> None:
        for turn in range(8):
            together.wait(60)
            try:
                locks.lock(f"{number}:{turn}", ttl=5).acquire(timeout=20).release()
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


def test_a_neighbour_with_a_short_ttl_does_not_cost_a_long_one_its_life(session: str, mariadb: MariaDB) -> None:
    with (
        Proxy(mariadb.address) as proxy,
        holdfast.connect(session.replace(str(mariadb.port), str(proxy.port))) as locks,
    ):
        long = locks.lock("long", ttl=3).acquire()
        short = locks.lock("short", ttl=0.6).acquire()
        proxy.to_client.hold()
        assert short.lost.wait(20)
        proxy.flow()
        time.sleep(1.5)
        long.check()
        assert long.release()


def test_a_name_is_held_by_nobody_when_release_found_its_connection_broken(
    session: str, mariadb: MariaDB, admin: Admin
) -> None:
    with (
        Proxy(mariadb.address) as proxy,
        holdfast.connect(session.replace(str(mariadb.port), str(proxy.port))) as locks,
    ):
        lease = locks.lock("x", ttl=600).acquire()
        proxy.to_server.hold()  # the server is not told that the connection is over
        threading.Timer(0.3, proxy.to_server.flow).start()
        lease.release()
        until(lambda: admin.run("SELECT IS_USED_LOCK(lock_key) FROM holdfast_sessions WHERE name = 'x'") == [(None,)])


def test_a_connection_with_the_number_of_an_old_holder_gets_a_token_of_its_own(
    locks: Locks, mariadb: MariaDB, admin: Admin
) -> None:
    """After a restart numbers begin anew; and a claim may have its lock, but no token yet, when it is repeated."""
    first = locks.lock("x").acquire()
    assert first.release()
    ((key,),) = admin.run("SELECT lock_key FROM holdfast_sessions WHERE name = 'x'")
    admin.run("UPDATE holdfast_sessions SET connection = CONNECTION_ID() WHERE name = 'x'")
    admin.run(f"SELECT GET_LOCK('{key.decode()}', 0)")
    ((verdict, token, *_),) = admin.run("CALL holdfast_session_claim_1('x', 'me', '', 0, 60, 3600000000)")
    assert verdict == "granted"
    assert token > first.token
    assert admin.run("CALL holdfast_session_claim_1('x', 'me', '', 0, 60, 3600000000)")[0][:2] == ("granted", token)


def test_who_has_the_number_of_a_connection_that_ended_is_somebody_else(
    session: str, mariadb: MariaDB, admin: Admin
) -> None:
    """A server that was restarted gives them out again. Here the holder believes that it has the number of another's."""
    with BlackHole(mariadb.address) as between:
        through = session.replace(str(mariadb.port), str(between.port))
        with holdfast.connect(through) as locks:
            lease = locks.lock("x", ttl=600).acquire()
            ((key,),) = admin.run("SELECT lock_key FROM holdfast_sessions WHERE name = 'x'")
            ((number,),) = admin.run(f"SELECT IS_USED_LOCK('{key.decode()}')")
            store: Any = locks._engine.store
            (held,) = store._held.values()
            between.swallow()
            admin.run(f"KILL {number}")
            until(lambda: admin.run(f"SELECT GET_LOCK('{key.decode()}', 0)") == [(1,)])
            held.connection._connection.server_thread_id = (admin.id,)
            assert lease.lost.wait(20)


def test_a_claim_whose_answer_was_lost_is_not_in_its_own_way(session: str, mariadb: MariaDB) -> None:
    before = set(threading.enumerate())
    with (
        BlackHole(mariadb.address) as between,
        holdfast.connect(session.replace(str(mariadb.port), str(between.port))) as locks,
    ):
        locks.lock("x").acquire().release()
        between.swallow()
        store = locks._engine.store
        mine = Claim("x", new_holder(), "somebody", 600.0)
        with pytest.raises(Unavailable):
            finish(store.claim(mine, 0.3))
        assert isinstance(finish(store.claim(mine, 10.0)), Grant)
        assert finish(store.release(mine))
        locks.close()
        # A socket that a thread still polls is not closed, whoever closed it, and the server not told.
        until(lambda: all(thread.name != "holdfast-watch" for thread in set(threading.enumerate()) - before))


@pytest.mark.parametrize("code", [1213, 1317], ids=["a deadlock", "interrupted"])
def test_a_refusal_on_the_way_to_a_claim_is_tried_again_or_told_in_our_words(
    locks: Locks, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """To end what was left behind is to wait for it, while it may wait for us."""
    refusals = [ServerError(code, "as the test wants it")]

    async def refused(*_: object) -> None:
        if refusals:
            raise refusals.pop()

    where, what = ("end_strays_by", "strays") if code == 1213 else ("_ask_durability", "_known")
    monkeypatch.setattr(Conversation, where, refused)
    server: Any = locks._engine.store._server  # type: ignore[attr-defined]
    setattr(server, what, {"somebody's"} if what == "strays" else False)
    store = locks._engine.store
    mine = Claim("x", new_holder(), "somebody", 60.0)
    if code == 1317:
        with pytest.raises(Unavailable, match="interrupted"):
            finish(store.claim(mine))
    assert isinstance(finish(store.claim(mine)), Grant)
    assert not refusals
    server.strays.clear()
    assert finish(store.release(mine))


def test_tokens_of_sessions_that_are_ahead_of_the_clock_are_not_swept_away(session: str, admin: Admin) -> None:
    with holdfast.connect(f"{session}&retention=0.1") as locks:
        locks.lock("x").acquire().release()
        ahead = int((time.time() + 3600) * 1_000_000)
        admin.run(f"UPDATE holdfast_sessions SET mark = {ahead} WHERE name = 'x'")
        time.sleep(0.2)
        for number in range(5):
            locks.lock(f"new:{number}").acquire().release()
        assert locks.lock("x").acquire().token > ahead


def test_who_released_it_and_takes_it_again_does_not_hold_it_yet(locks: Locks, session: str, admin: Admin) -> None:
    """Its row is what it was: a release does not write. The same connection has the same lock again, but no token yet."""
    first = locks.lock("x").acquire()
    assert first.release()
    assert locks.inspect("x").holders == ()
    assert locks.names() == []
    assert locks.force_release("x", token=first.token) is None
    admin.run("BEGIN")
    admin.run("SELECT mark FROM holdfast_sessions WHERE name = 'x' FOR UPDATE")
    got: list[Any] = []
    again = threading.Thread(target=lambda: got.append(locks.lock("x").acquire(timeout=20)))
    with holdfast.connect(session) as others:
        try:
            again.start()
            until(lambda: connection_of_or_none(admin, "x"))
            assert others.inspect("x").holders == ()
            assert others.names() == []
        finally:
            admin.run("COMMIT")
            again.join(20)
        assert [holding.token for holding in others.inspect("x").holders] == [got[0].token]
        assert got[0].token > first.token


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, pytest.importorskip("uvloop").new_event_loop])
def test_what_is_held_when_its_loop_ends_keeps_others_out_while_the_next_one_works(session: str, new_loop: Any) -> None:
    """Once, the next loop closed the connection that it lives with: others were let in, and the lease said that it was held."""
    locks = aio.connect(session)

    async def take() -> aio.Lease:
        return await locks.lock("x", ttl=60).acquire(timeout=10)

    async def work(lease: aio.Lease) -> None:
        async with locks.lock("y", timeout=10), aio.connect(session) as others:
            assert lease.held
            assert await others.lock("x").try_acquire() is None
            await lease.release()
            async with others.lock("x", timeout=10):
                pass

    with asyncio.Runner(loop_factory=new_loop) as runner:
        lease = runner.run(take())
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work(lease))
        runner.run(locks.close())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's, of what its closed loop cannot close
        gc.collect()
