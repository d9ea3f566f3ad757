"""PostgreSQL, PgBouncer and MariaDB, set up well and badly."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg
import pymysql
import pytest

import holdfast
from holdfast.doctor import postgresql as postgresql_ward
from holdfast.doctor import sql as sql_ward
from holdfast.testing import servers
from holdfast.testing.servers.mariadb import MariaDB
from holdfast.testing.servers.postgresql import PgBouncer, PostgreSQL

from .looking import all_looked_at, levels, one, said, whole

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def bouncer() -> Iterator[PgBouncer]:
    with servers.start("pgbouncer") as server:
        yield server


@pytest.fixture(scope="module")
def postgresql(bouncer: PgBouncer) -> PostgreSQL:
    return bouncer.postgresql


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    with servers.start("mariadb") as server:
        yield server


@pytest.fixture
def root(mariadb: MariaDB) -> Iterator[pymysql.connections.Connection]:
    connection = pymysql.connect(
        host="127.0.0.1", port=mariadb.port, user="root", database="holdfast", autocommit=True, ssl_disabled=True
    )
    yield connection
    connection.close()


def run(connection: pymysql.connections.Connection, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_a_postgresql_is_well_but_for_a_superuser(postgresql: PostgreSQL) -> None:
    told = whole(postgresql.url)
    all_looked_at(told)
    assert "postgres is a superuser" in said(told.pop("rights"), "warning")
    assert {level for found in told.values() for level in levels(found)} == {"ok"}
    assert set(told) >= {
        "version",
        "pooler",
        "persistence",
        "replicas",
        "clock",
        "tls and login",
        "connections",
        "blockers",
    }


def test_session_locks_behind_a_transaction_pooler_are_a_problem(bouncer: PgBouncer) -> None:
    assert "waiters poll" in said(one(bouncer.url, "pooler"), "warning")
    assert "leave out mode=session" in said(one(f"{bouncer.url}?mode=session", "pooler"), "problem")


def test_settings_that_lose_grants_are_told(postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "the last 0.6 s" in said(one(f"{postgresql.url}?durability=relaxed", "persistence"), "warning")
    monkeypatch.setattr(postgresql_ward.PostgresWard, "setting", lambda *_: "off")
    assert "fsync is off" in said(one(postgresql.url, "persistence"), "problem")


def test_who_gets_in_without_a_password_is_told(postgresql: PostgreSQL) -> None:
    rules = postgresql.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"{before}\nhost all all 10.0.0.0/8 trust\n")  # it shows before it is in force
    postgresql.query("ALTER ROLE postgres SET password_encryption = 'md5'")
    try:
        found = one(postgresql.url, "tls and login")
    finally:
        rules.write_text(before)
        postgresql.query("ALTER ROLE postgres RESET password_encryption")
    assert "everybody from 10.0.0.0 gets in without a password" in said(found, "problem")
    assert "passwords are kept as MD5" in said(found, "warning")


def test_clear_text_to_elsewhere_is_a_problem(postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgresql_ward, "is_local", lambda _: False)
    text = said(one(postgresql.url, "tls and login"), "problem")
    assert "sslmode=verify-full" in text
    assert "asks for no password" in text


def test_somebody_who_locks_the_lock_table_and_sleeps_is_found(postgresql: PostgreSQL) -> None:
    with holdfast.connect(postgresql.url) as locks:
        locks.lock("x").acquire().release()
    assert levels(one(postgresql.url, "blockers")) == ["ok"]
    with psycopg.connect(postgresql.url, application_name="lunch") as sleeper:
        sleeper.execute("SELECT * FROM holdfast.locks FOR UPDATE")
        text = said(one(postgresql.url, "blockers"), "problem")
        assert "(lunch) is idle in transaction" in text
        assert "pg_terminate_backend" in text


def test_too_many_connections_are_told(postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_ward, "_CROWDED", 0.0)
    assert "connections are in use" in said(one(postgresql.url, "connections"), "warning")


def test_a_role_that_may_only_hold_locks_is_well(postgresql: PostgreSQL) -> None:
    with holdfast.connect(postgresql.url) as locks:
        locks.names()
    for statement in (
        "CREATE ROLE locker LOGIN",
        "GRANT USAGE ON SCHEMA holdfast TO locker",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast.locks TO locker",
    ):
        postgresql.query(statement)
    told = whole(f"postgresql://locker@127.0.0.1:{postgresql.port}/postgres?create=no")
    assert levels(told["claims"]) == ["ok", "ok"]
    assert "locker is no superuser" in said(told["rights"], "ok")
    assert "could not look: permission denied for view pg_hba_file_rules" in said(told["tls and login"], "warning")


def test_a_mariadb_is_well(mariadb: MariaDB) -> None:
    told = whole(mariadb.url)
    all_looked_at(told)
    assert "root may do everything" in said(told.pop("rights"), "warning")
    assert {level for found in told.values() for level in levels(found)} == {"ok"}


def test_a_mariadb_that_forgets_or_is_read_only_is_told(
    mariadb: MariaDB,
    root: pymysql.connections.Connection,
) -> None:
    run(root, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    run(root, "SET GLOBAL read_only = ON")
    try:
        found = one(mariadb.url, "persistence")
    finally:
        run(root, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        run(root, "SET GLOBAL read_only = OFF")
    assert "innodb_flush_log_at_trx_commit is 2" in said(found, "warning")
    assert "read-only" in said(found, "problem")


def test_a_user_without_a_password_is_a_problem(
    mariadb: MariaDB,
    root: pymysql.connections.Connection,
) -> None:
    run(root, "CREATE USER 'guest'@'%'")
    try:
        assert "'guest'@'%' has no password" in said(one(mariadb.url, "users"), "problem")
        run(root, "GRANT ALL ON holdfast.* TO 'guest'@'%'")
        guest = mariadb.url.replace("root@", "guest@")
        assert "could not look: " in said(one(guest, "users"), "warning")
        assert "guest is no administrator" in said(one(guest, "rights"), "ok")
    finally:
        run(root, "DROP USER 'guest'@'%'")


def test_somebody_who_locks_rows_and_sleeps_is_found_in_mariadb(
    mariadb: MariaDB,
    root: pymysql.connections.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with holdfast.connect(mariadb.url) as locks, locks.lock("x"):
        run(root, "BEGIN")
        run(root, "SELECT * FROM holdfast_meta FOR UPDATE")
        try:
            time.sleep(0.2)  # MariaDB shows transactions as they were, until nobody has looked for a tenth of a second
            assert "or: KILL " in said(one(mariadb.url, "blockers"), "warning")
        finally:
            run(root, "ROLLBACK")
    monkeypatch.setattr(sql_ward, "_CROWDED", 0.0)
    assert "connections are in use" in said(one(mariadb.url, "connections"), "warning")
