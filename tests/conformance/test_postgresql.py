"""A real PostgreSQL passes the suite with its lease table, for a role that has what `holdfast migrate --acl` prints, no more."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.postgresql import PostgreSQL

from ..tenants import on_postgresql

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    # What a power cut does is not asked here.
    with servers.start("postgresql", "-c", "fsync=off") as server:
        on_postgresql(server, tenant(server), "tenant")
        yield server


def tenant(server: PostgreSQL) -> str:
    return f"postgresql://tenant@127.0.0.1:{server.port}/postgres?create=no"


class TestPostgreSQL(Suite):
    ttl_short = 0.6  # connecting takes a while on a busy machine
    lines_at_a_time = 3

    @pytest.fixture
    def url(self, postgresql: PostgreSQL) -> str:
        postgresql.query("TRUNCATE holdfast.locks")
        return tenant(postgresql)


@pytest.mark.parametrize(
    "forbidden",
    [
        "SELECT * FROM sibling.locks",
        "DELETE FROM sibling.locks",
        "SELECT sibling.anything()",
        "DROP TABLE holdfast.locks",
        "TRUNCATE holdfast.locks",
        "CREATE TABLE holdfast.mine ()",
        "CREATE TABLE public.mine ()",
        "CREATE OR REPLACE FUNCTION holdfast.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'postgres'",
        "CREATE SCHEMA mine",
    ],
)
def test_a_tenant_may_touch_nothing_of_a_sibling(postgresql: PostgreSQL, forbidden: str) -> None:
    postgresql.query("CREATE SCHEMA IF NOT EXISTS sibling; CREATE TABLE IF NOT EXISTS sibling.locks (name text)")
    with (
        psycopg.connect(f"postgresql://tenant@127.0.0.1:{postgresql.port}/postgres", autocommit=True) as own,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        own.execute(forbidden)
