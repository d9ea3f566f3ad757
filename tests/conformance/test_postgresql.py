"""A real PostgreSQL passes the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.stores.postgresql import schema
from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.postgresql import PostgreSQL

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    with servers.start("postgresql", "-c", "fsync=off") as server:  # what a power cut does is not asked here
        server.query(schema(server.url))
        yield server


class TestPostgreSQL(Suite):
    @pytest.fixture
    def url(self, postgresql: PostgreSQL) -> str:
        postgresql.query("TRUNCATE holdfast.locks")
        return postgresql.url


class TestPostgreSQLSessions(Suite):
    @pytest.fixture
    def url(self, postgresql: PostgreSQL) -> str:
        postgresql.query("TRUNCATE holdfast.locks")
        return f"{postgresql.url}?mode=session"
