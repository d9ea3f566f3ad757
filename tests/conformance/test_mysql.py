"""A real MariaDB passes the suite, for a user who has what `holdfast migrate --acl` prints and nothing besides."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest

import holdfast
from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.mariadb import MariaDB

from ..tenants import PASSWORD, mysql_root, on_mysql

pytestmark = pytest.mark.server
DENIED = (1044, 1095, 1142, 1227, 1370)  # to a database, a thread, a table, a privilege, a procedure


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    with servers.start("mariadb", "--innodb-flush-method=nosync") as server:  # what a power cut does is not asked here
        on_mysql(server, tenant(server), "tenant")
        yield server


def tenant(server: MariaDB, user: str = "tenant", mode: str = "lease") -> str:
    return f"mysql://{user}:{PASSWORD}@127.0.0.1:{server.port}/holdfast?mode={mode}"


class TestMySql(Suite):
    lines_at_a_time = 5
    turns_at_a_time = 3
    ttl_short = 0.6  # every renewal is a commit of its own, which on a busy machine takes a while

    @pytest.fixture
    def url(self, mariadb: MariaDB) -> str:
        """One database for all tests of a run, made empty: creating the tables for every test would take a second each."""
        with mysql_root(mariadb) as root, root.cursor() as cursor:
            cursor.execute("DELETE FROM holdfast_claims WHERE name <> ''")
            cursor.execute("DELETE FROM holdfast_audit")
        return tenant(mariadb)


@pytest.mark.parametrize(
    "forbidden",
    [
        "SELECT * FROM holdfast_claims",
        "DELETE FROM holdfast_claims",
        "DROP PROCEDURE holdfast_claim_1",
        "CREATE TABLE mine (i INT)",
        "SELECT * FROM sibling.holdfast_claims",
        "CALL sibling.holdfast_inspect_1('x')",
        "CALL holdfast_sweep_1(0)",
        "SELECT * FROM mysql.user",
        "SET GLOBAL read_only = 1",
        "KILL {root}",
    ],
)
def test_a_tenant_may_touch_nothing_of_a_sibling(mariadb: MariaDB, forbidden: str) -> None:
    with (
        mysql_root(mariadb) as root,
        pymysql.connect(
            host="127.0.0.1", port=mariadb.port, user="tenant", password=PASSWORD, database="holdfast"
        ) as own,
        own.cursor() as cursor,
    ):
        admin = root.cursor()
        admin.execute("CREATE DATABASE IF NOT EXISTS sibling")
        admin.execute("SELECT CONNECTION_ID()")
        (number,) = admin.fetchall()[0]
        with pytest.raises(pymysql.err.MySQLError) as refused:
            cursor.execute(forbidden.format(root=number))
        assert refused.value.args[0] in DENIED


def test_session_locks_need_no_more(mariadb: MariaDB) -> None:
    url = on_mysql(mariadb, tenant(mariadb, "other", "session"), "other")
    with holdfast.connect(url) as locks, holdfast.connect(url) as others:
        lease = locks.lock("x").acquire(timeout=20)
        assert others.names() == ["x"]
        assert [one.token for one in others.inspect("x").holders] == [lease.token]
        assert others.force_release("x", token=lease.token)
        assert others.lock("x").acquire(timeout=20).release()
