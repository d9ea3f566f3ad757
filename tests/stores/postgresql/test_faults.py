"""What PostgreSQL, its administrators and the network do to a lock, done to it. The numbers are those of the table of faults."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psycopg
import pytest

from holdfast import LeaseLost, Misuse, NotAcquired, Unavailable
from holdfast.claim import MAX_TOKEN
from holdfast.drivers.base import finish
from holdfast.stores.postgresql import migration, schema
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.postgresql import PostgreSQL

from .hands import SOON, Connect, in_background, until

pytestmark = pytest.mark.server

BACKENDS = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'holdfast'"
EARS = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory'"


# ---- backends and servers that go


@pytest.mark.parametrize("pool", ["", "?pool=1"])
def test_30_backends_killed_while_holding_are_replaced_and_the_lease_lives(
    postgresql: PostgreSQL, connect: Connect, pool: str
) -> None:
    locks = connect(postgresql.url, pool)
    lease = locks.lock("x", ttl=1.5).acquire()
    since = time.monotonic()
    until(lambda: locks.inspect("x").holders[0].left > 1.5 - 0.4 and time.monotonic() - since > 0.5)  # renewed once
    postgresql.query(BACKENDS)
    until(lambda: time.monotonic() - since > 2.5)
    lease.check()
    assert lease.release()


def test_30_a_waiter_whose_ear_was_killed_is_let_in_all_the_same(postgresql: PostgreSQL, connect: Connect) -> None:
    locks, others = connect(postgresql.url), connect(postgresql.url)
    held = others.lock("x").acquire()
    got: list[int] = []
    thread = in_background(lambda: got.append(locks.lock("x", timeout=30).acquire().token))
    until(lambda: bool(others.inspect("x").waiters))
    postgresql.query(EARS)
    held.release()
    thread.join(SOON)
    assert got, "the bell was lost with the connection"


def test_8_a_restarted_server_has_kept_the_lock_and_the_line_goes_on(
    own_postgresql: PostgreSQL, connect: Connect
) -> None:
    locks, others = connect(own_postgresql.url), connect(own_postgresql.url)
    held = others.lock("x", ttl=30).acquire()
    got: list[int] = []
    thread = in_background(lambda: got.append(locks.lock("x", timeout=30).acquire().token))
    until(lambda: bool(others.inspect("x").waiters))
    own_postgresql.kill()
    own_postgresql.restart()
    until(lambda: [one.token for one in others.inspect("x").holders] == [held.token])
    assert not got, "a durable claim was forgotten"
    assert held.release()
    thread.join(SOON)
    assert got
    assert got[0] > held.token


def test_8_a_failover_to_an_empty_server_creates_the_schema_anew_and_tokens_rise(
    own_postgresql: PostgreSQL, connect: Connect
) -> None:
    locks = connect(own_postgresql.url)
    before = locks.lock("x").acquire()
    own_postgresql.query("DROP SCHEMA holdfast CASCADE")
    after = locks.lock("x", timeout=5).acquire()
    assert after.token > before.token
    assert before.release() is False
    own_postgresql.kill()
    own_postgresql.restart(empty=True)
    last = locks.lock("x", timeout=5).acquire()
    assert last.token > after.token
    assert last.release()


def test_10_tokens_rise_when_rows_are_deleted(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url)
    tokens = []
    for _ in range(5):
        tokens.append(locks.lock("x").acquire().token)
        postgresql.query("DELETE FROM holdfast.locks")
    assert tokens == sorted(set(tokens))


def test_34_tokens_at_their_limit_are_refused_and_never_wrap(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url)
    locks.lock("x").acquire().release()
    postgresql.query(f"UPDATE holdfast.locks SET last = {MAX_TOKEN}")  # noqa: S608
    with pytest.raises(Unavailable, match="used up"):
        locks.lock("x", timeout=0).acquire()


def test_37_a_deleted_lock_is_reported_as_lost_by_the_next_renewal(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url)
    lease = locks.lock("x", ttl=1.5).acquire()
    postgresql.query("DELETE FROM holdfast.locks")
    assert lease.lost.wait(SOON)
    with pytest.raises(LeaseLost, match="no longer has it"):
        lease.check()


def test_36_a_waiter_that_was_killed_holds_up_nobody(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url)
    held = locks.lock("x").acquire()
    waiter = subprocess.Popen(
        [sys.executable, "-c", f"import holdfast; holdfast.connect({postgresql.url!r}).lock('x').acquire()"]
    )
    until(lambda: len(locks.inspect("x").waiters) == 1)
    os.kill(waiter.pid, signal.SIGKILL)
    waiter.wait()
    got: list[float] = []
    second = connect(postgresql.url)
    thread = in_background(lambda: got.append(second.lock("x", timeout=25).acquire().token))
    until(lambda: len(locks.inspect("x").waiters) == 2)
    started = time.monotonic()
    held.release()
    thread.join(20)
    assert got
    assert time.monotonic() - started < 5, "waited for the dead one's ttl"


# ---- what is between


def test_15_a_grant_whose_reply_was_lost_is_found_again(postgresql: PostgreSQL, proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.address, "?timeout=0.7")
    locks.lock("warm").acquire().release()
    proxy.to_client.drop(chunks=1)
    lease = locks.lock("x").acquire(timeout=0)
    snapshot = connect(postgresql.url).inspect("x")
    assert [holding.token for holding in snapshot.holders] == [lease.token]
    assert lease.release()


def test_12_a_reply_that_comes_after_the_ttl_is_no_grant(
    postgresql: PostgreSQL, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.address, "?timeout=3")
    locks.lock("warm").acquire().release()
    proxy.to_client.delay(0.5)
    with pytest.raises((NotAcquired, Unavailable)):
        locks.lock("x", ttl=0.3, timeout=0.4).acquire()
    proxy.to_client.flow()
    until(lambda: connect(postgresql.url).names() == [])


def test_13_a_release_that_comes_late_leaves_the_successor_alone(
    postgresql: PostgreSQL, proxy: Proxy, connect: Connect
) -> None:
    locks, direct = connect(proxy.address, "?timeout=0.2"), connect(postgresql.url)
    lease = locks.lock("x", ttl=0.6, renew=False).acquire()
    proxy.to_server.hold()
    with pytest.raises(Unavailable):
        lease.release()
    successor = direct.lock("x", timeout=SOON).acquire()
    proxy.to_server.flow()
    proxy.wait_until(lambda: proxy.connections == 0)
    assert [one.token for one in direct.inspect("x").holders] == [successor.token]
    assert successor.release()


def test_a_silent_server_is_an_error_within_the_timeout_and_recovers(
    postgresql: PostgreSQL, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.address, "?timeout=0.4")
    locks.lock("x").acquire().release()
    proxy.to_client.hold()
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"did not answer within|cannot connect"):
        locks.lock("y", timeout=0).acquire()
    assert time.monotonic() - started < 5
    proxy.flow()
    with locks.lock("x", timeout=SOON):
        pass


def test_22_renewal_goes_on_when_all_connections_are_busy(postgresql: PostgreSQL, connect: Connect) -> None:
    locks, looker = connect(postgresql.url, "?pool=1&timeout=1.5"), connect(postgresql.url)
    lease = locks.lock("mine", ttl=0.9).acquire()
    locks.lock("busy").acquire().release()
    failures: list[Exception] = []

    def busy() -> None:
        try:
            locks.lock("busy", timeout=0).acquire()
        except Unavailable as error:
            failures.append(error)

    with psycopg.connect(postgresql.url) as other:
        other.execute("SELECT FROM holdfast.locks WHERE name = 'busy' FOR UPDATE")  # somebody sits on a row of ours
        thread = in_background(busy)
        until(lambda: looker.inspect("mine").holders[0].age > 1.2)
        lease.check()
        thread.join(SOON)
        assert failures
        other.rollback()
    assert lease.release()


def test_a_row_locked_by_a_stranger_is_told_and_leaves_no_ghost(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, "?timeout=0.4")
    locks.lock("x").acquire().release()
    with psycopg.connect(postgresql.url) as other:
        other.execute("SELECT FROM holdfast.locks FOR UPDATE")
        with pytest.raises(Unavailable, match="timeout"):
            locks.lock("x", timeout=0).acquire()
        other.rollback()
    assert locks.names() == []
    assert locks.lock("x").acquire(timeout=1).release()


# ---- what is not as it should be


def role(postgresql: PostgreSQL, name: str, *grants: str) -> str:
    postgresql.query(f"DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN")
    for grant in grants:
        postgresql.query(grant)
    return postgresql.url.replace("postgres@", f"{name}@")


def database(postgresql: PostgreSQL, name: str, more: str = "") -> str:
    postgresql.query(f"DROP DATABASE IF EXISTS {name}")
    postgresql.query(f"CREATE DATABASE {name} {more}")
    return postgresql.url.removesuffix("postgres") + name


def test_a_role_that_may_not_create_is_told_what_to_do_and_the_documented_rights_are_enough(
    postgresql: PostgreSQL, connect: Connect
) -> None:
    fresh = database(postgresql, "fresh")
    app = role(postgresql, "app").removesuffix("postgres") + "fresh"
    with pytest.raises(Misuse, match="holdfast migrate --sql"):
        connect(app).lock("x", timeout=0).acquire()
    with psycopg.connect(fresh, autocommit=True) as admin:
        admin.execute(schema(fresh).encode())
        with pytest.raises(Misuse, match="GRANT"):
            connect(app).lock("x", timeout=0).acquire()
        for line in migration.text().splitlines():
            if line.startswith("--   GRANT"):
                admin.execute(line.removeprefix("--   ").encode())
    locks, others = connect(app), connect(app)
    lease = locks.lock("x").acquire()
    thread = in_background(lambda: others.lock("x", timeout=SOON).acquire().release())
    until(lambda: bool(locks.inspect("x").waiters))
    lease.release()
    thread.join(SOON)
    lease = locks.lock("x").acquire()
    assert locks.force_release("x", token=lease.token)
    assert connect(app, "?mode=session").lock("x").acquire().release()


def test_a_table_of_a_newer_version_is_refused(postgresql: PostgreSQL, connect: Connect) -> None:
    newer = schema(postgresql.url + "?schema=newer").replace("'SELECT 1'", "'SELECT 2'")
    postgresql.query(newer)
    with pytest.raises(Misuse, match=r"version 2.*upgrade holdfast"):
        connect(postgresql.url, "?schema=newer").lock("x", timeout=0).acquire()


def test_a_schema_that_must_not_be_created_is_asked_for(postgresql: PostgreSQL, connect: Connect) -> None:
    with pytest.raises(Misuse, match="create=no"):
        connect(postgresql.url, "?schema=nowhere&create=no").lock("x", timeout=0).acquire()


def test_many_may_create_the_schema_at_the_same_moment(postgresql: PostgreSQL, connect: Connect) -> None:
    url = database(postgresql, "crowded")
    threads = [in_background(lambda: connect(url).lock("x", timeout=SOON).acquire().release()) for _ in range(6)]
    for thread in threads:
        thread.join(SOON)
    with connect(url).lock("x", timeout=SOON):
        pass


def test_a_read_only_server_says_so(postgresql: PostgreSQL, connect: Connect) -> None:
    url = database(postgresql, "readonly")
    locks = connect(url)
    locks.lock("x").acquire().release()
    postgresql.query("ALTER DATABASE readonly SET default_transaction_read_only = on")
    postgresql.query(BACKENDS)
    until(lambda: not postgresql.query("SELECT FROM pg_stat_activity WHERE application_name = 'holdfast'"))
    with pytest.raises(Unavailable, match="target_session_attrs=read-write"):
        locks.lock("x", timeout=0).acquire()
    postgresql.query("ALTER DATABASE readonly RESET default_transaction_read_only")
    with locks.lock("x", timeout=SOON):
        pass


def test_wrong_databases_roles_and_passwords_are_refused_and_never_shown(
    own_postgresql: PostgreSQL, connect: Connect
) -> None:
    own_postgresql.query("CREATE ROLE careful LOGIN PASSWORD 'hush'")
    rules = own_postgresql.data / "pg_hba.conf"
    rules.write_text("host all careful all scram-sha-256\n" + rules.read_text())
    own_postgresql.query("SELECT pg_reload_conf()")
    place = own_postgresql.url.partition("@")[2]
    for login in (f"careful:wr0ng@{place}", f"nobody:wr0ng@{place}", f"careful@{place}", f"postgres@{place}_not"):
        with pytest.raises(Misuse, match="cannot log in") as refused:
            connect(f"postgresql://{login}").lock("x", timeout=0).acquire()
        assert "wr0ng" not in str(refused.value)
    own_postgresql.query("GRANT CREATE ON DATABASE postgres TO careful")
    with connect(f"postgresql://careful:hush@{place}").lock("x"):
        pass


@pytest.mark.parametrize(
    "setting",
    [
        "statement_timeout = '1ms'",
        "lock_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '1ms'",
        "idle_session_timeout = '50ms'",
        "timezone = 'Asia/Kathmandu'",
        "default_transaction_isolation = 'serializable'",
        "synchronous_commit = 'off'",
        "search_path = 'tricks, pg_catalog'",
        "bytea_output = 'escape'",
        "datestyle = 'German'",
    ],
)
def test_settings_of_a_role_do_not_change_what_we_mean(postgresql: PostgreSQL, connect: Connect, setting: str) -> None:
    url = role(postgresql, "odd", "ALTER ROLE odd SUPERUSER", f"ALTER ROLE odd SET {setting}")
    postgresql.query(
        "CREATE SCHEMA IF NOT EXISTS tricks; "
        "CREATE OR REPLACE FUNCTION tricks.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT NULL::timestamptz'; "
        "CREATE OR REPLACE FUNCTION tricks.pg_notify(text, text) RETURNS void LANGUAGE sql AS ''"
    )
    locks, others = connect(url), connect(url)
    lease = locks.lock("x", ttl=1.2).acquire()
    got: list[bool] = []
    thread = in_background(lambda: got.append(others.lock("x", timeout=SOON).acquire().release()))
    until(lambda: bool(locks.inspect("x").waiters))
    until(lambda: locks.inspect("x").holders[0].age > 0.6)
    started = time.monotonic()
    assert lease.release()
    thread.join(SOON)
    assert got == [True]
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_names_of_any_script_fit_into_a_database_of_any_encoding(
    postgresql: PostgreSQL, connect: Connect, encoding: str
) -> None:
    url = database(postgresql, encoding.lower(), f"ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    for options in ("", "?mode=session"):
        locks = connect(url, options, label="день")
        leases = [
            locks.lock(name, timeout=5).acquire() for name in ("замо́к 🔒", "锁", "ü", "'; DROP TABLE x; --", "a%_\\")
        ]
        assert locks.names() == sorted(lease.name for lease in leases)
        assert locks.inspect("锁").holders[0].owner == leases[1].owner
        assert all(lease.release() for lease in leases)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("?durability=none", "durable or relaxed"),
        ("?mode=both", "lease or session"),
        ("?schema=Bad-Name", "schema"),
        ("?pool=0", "pool"),
        ("?timeout=never", "timeout"),
        ("?timeout=1&timeout=2", "twice"),
        ("?retention=-1", "retention"),
        ("?colour=blue", "colour"),
    ],
)
def test_bad_options_are_refused_when_connecting(
    postgresql: PostgreSQL, connect: Connect, options: str, says: str
) -> None:
    with pytest.raises(Misuse, match=says):
        connect(postgresql.url, options)


# ---- nothing is left behind


def test_names_used_once_leave_nothing_after_the_retention_time(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, "?retention=0.1&durability=relaxed")
    for number in range(600):
        locks.lock(f"once:{number}").acquire().release()
    store = locks._engine.store
    until(lambda: (finish(store._sweep()), postgresql.query("SELECT count(*) FROM holdfast.locks"))[1] == [("0",)])  # type: ignore[attr-defined]


def test_many_cycles_do_not_bloat_the_table_even_without_vacuum(postgresql: PostgreSQL, connect: Connect) -> None:
    locks = connect(postgresql.url, "?durability=relaxed")
    postgresql.query("ALTER TABLE holdfast.locks SET (autovacuum_enabled = off)")
    try:
        for _ in range(1500):
            locks.lock("x").acquire().release()
        ((size,),) = postgresql.query("SELECT pg_relation_size('holdfast.locks') + pg_indexes_size('holdfast.locks')")
        assert int(size) <= 65536
    finally:
        postgresql.query("ALTER TABLE holdfast.locks RESET (autovacuum_enabled)")
