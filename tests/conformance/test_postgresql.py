"""A real PostgreSQL passes the suite with its lease table."""

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
    # What a power cut does is not asked here.
    with servers.start("postgresql", "-c", "fsync=off") as server:
        server.query(schema(server.url))
        yield server


class TestPostgreSQL(Suite):
    ttl_short = 0.6  # connecting takes a while on a busy machine
    lines_at_a_time = 3

    @pytest.fixture
    def url(self, postgresql: PostgreSQL) -> str:
        postgresql.query("TRUNCATE holdfast.locks")
        return postgresql.url
