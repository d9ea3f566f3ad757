"""Rights that are missing, schemas and settings that surprise, URLs that are wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from holdfast import Misuse, Unavailable
from holdfast.stores.postgresql import migration, replies, schema
from holdfast.testing.servers.postgresql import PostgreSQL

from ..hands import SOON, Connect, in_background, until
from .hands import BACKENDS

pytestmark = pytest.mark.server


def role(postgresql: PostgreSQL, name: str, *grants: str) -> str:
    postgresql.query(f"DROP ROLE IF EXISTS {name}; CREATE ROLE {name} LOGIN")
    for grant in grants:
        postgresql.query(grant)
    return postgresql.url.replace("postgres@", f"{name}@")


def database(postgresql: PostgreSQL, name: str, more: str = "") -> str:
    with psycopg.connect(
        postgresql.url, autocommit=True
    ) as administrator:  # who has time: it copies some hundred files
        administrator.execute(f"DROP DATABASE IF EXISTS {name}")
        administrator.execute(f"CREATE DATABASE {name} {more}")
    return postgresql.url.removesuffix("postgres") + name


def apply_printed_sql(postgresql: PostgreSQL, url: str) -> None:
    """As an administrator would: with the client that comes with the server."""
    migrate = [sys.executable, "-m", "holdfast", "migrate", "--sql", "--url", url]
    printed = subprocess.run(migrate, check=True, stdout=subprocess.PIPE, timeout=30).stdout
    client = str(Path(postgresql.program).with_name("psql"))
    apply = [client, "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url]
    subprocess.run(apply, input=printed, check=True, stdout=subprocess.DEVNULL, timeout=30)


def test_a_role_that_may_not_create_is_told_what_to_do_and_the_documented_rights_are_enough(
    postgresql: PostgreSQL, connect: Connect
) -> None:
    fresh = database(postgresql, "fresh")
    app = role(postgresql, "app").removesuffix("postgres") + "fresh"
    with pytest.raises(Misuse, match="holdfast migrate --sql"):
        connect(app).lock("x", timeout=0).acquire()
    apply_printed_sql(postgresql, fresh)
    with psycopg.connect(fresh, autocommit=True) as admin:
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
    newer = schema(postgresql.url + "?schema=newer").replace("'SELECT 2'", "'SELECT 3'")
    postgresql.query(newer)
    with pytest.raises(Misuse, match=r"version 3.*upgrade holdfast"):
        connect(postgresql.url, "?schema=newer").lock("x", timeout=0).acquire()


@pytest.mark.parametrize("options", ["", "?bell=no"])
def test_in_a_schema_of_an_older_holdfast_nothing_is_kept_and_all_else_works(
    postgresql: PostgreSQL, connect: Connect, caplog: pytest.LogCaptureFixture, options: str
) -> None:
    older = database(postgresql, "older")
    locks, other = connect(older, options), connect(older, options)
    locks.lock("x").acquire().release()
    with psycopg.connect(older, autocommit=True) as admin:
        admin.execute('DROP FUNCTION "holdfast".wanted')
    for _ in range(2):
        with locks.lock("x", ttl=60, keep=60):
            pass
        with other.lock("x", timeout=SOON):
            pass
    assert [record.getMessage().count("holdfast migrate --sql") for record in caplog.records] == [1], "told, and once"


@pytest.mark.parametrize("options", ["", "?bell=no"])
def test_who_waits_elsewhere_gets_what_is_kept_also_where_nothing_rings(
    postgresql: PostgreSQL, connect: Connect, options: str
) -> None:
    locks, other = connect(postgresql.url, options), connect(postgresql.url, options)
    lock = locks.lock("x", ttl=60, keep=60)
    with lock as first:
        pass
    time.sleep(0.6)  # looked at more than once
    with lock as again:
        assert again.token == first.token, "nobody wants it"
    with other.lock("x", timeout=SOON) as lease:
        assert lease.token > first.token


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
        "statement_timeout = '300ms'",  # enough to greet us in, on a busy machine too
        "lock_timeout = '1ms'",
        "idle_in_transaction_session_timeout = '1ms'",
        "idle_session_timeout = '300ms'",
        "timezone = 'Asia/Kathmandu'",
        "default_transaction_isolation = 'serializable'",
        "synchronous_commit = 'off'",
        "search_path = 'tricks, pg_catalog'",
        "bytea_output = 'escape'",
        "datestyle = 'German'",
        "standard_conforming_strings = off",
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
        ("?durability=none", "full or relaxed"),
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


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("42501", Misuse),
        ("42601", Misuse),
        ("28P01", Misuse),
        ("3D000", Misuse),
        ("55P03", Unavailable),
        ("57014", Unavailable),
        ("53300", Unavailable),
        ("25P02", Unavailable),  # a transaction that failed: whose, nobody knows
        ("P0001", Unavailable),  # somebody's trigger
        ("99999", Unavailable),  # whatever comes with the next version, or with a fork of PostgreSQL
    ],
)
def test_what_is_not_known_to_be_a_mistake_passes(state: str, kind: type[Exception]) -> None:
    explained = replies.explained(replies.ServerError(state, "no"), "here", "holdfast")
    assert type(explained) is kind
