"""A real MariaDB passes the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.mariadb import MariaDB

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    with servers.start("mariadb", "--innodb-flush-method=nosync") as server:  # what a power cut does is not asked here
        yield server


class TestMySql(Suite):
    lines_at_a_time = 5
    turns_at_a_time = 3
    ttl_short = 0.6  # every renewal is a commit of its own, which on a busy machine takes a while

    @pytest.fixture
    def url(self, mariadb: MariaDB) -> str:
        return fresh(mariadb)


def fresh(server: MariaDB) -> str:
    """One database for all tests of a run, made empty: creating the tables for every test would take a second each."""
    with pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="holdfast", autocommit=True) as one:
        cursor = one.cursor()
        cursor.execute("SHOW TABLES LIKE 'holdfast_claims'")
        if cursor.fetchall():
            cursor.execute("DELETE FROM holdfast_claims WHERE name <> ''")
            cursor.execute("DELETE FROM holdfast_audit")
    return server.url
