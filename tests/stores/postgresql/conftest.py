"""A real PostgreSQL for the tests of this folder, an empty table for each, and connections that are closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast.stores.postgresql import schema
from holdfast.sync import Locks
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.postgresql import PgBouncer, PostgreSQL

from .stores import OpenStore, Stored

Connect = Callable[..., Locks]


@pytest.fixture(scope="session")
def shared_postgresql() -> Iterator[PostgreSQL]:
    with servers.start("postgresql", "-c", "fsync=off") as server:
        yield server


@pytest.fixture
def postgresql(shared_postgresql: PostgreSQL) -> PostgreSQL:
    shared_postgresql.query(schema(shared_postgresql.url))
    shared_postgresql.query("TRUNCATE holdfast.locks")
    return shared_postgresql


@pytest.fixture
def own_postgresql() -> Iterator[PostgreSQL]:
    """For tests that kill it."""
    with servers.start("postgresql") as server:
        yield server


@pytest.fixture(scope="session")
def shared_forgetful() -> Iterator[PostgreSQL]:
    with servers.start("postgresql", "-c", "wal_writer_delay=10000") as server:
        yield server


@pytest.fixture
def forgetful(shared_forgetful: PostgreSQL) -> PostgreSQL:
    """What did not wait for the disk is not on it for ten seconds; to be killed, and restarted."""
    shared_forgetful.mend()
    shared_forgetful.query(schema(shared_forgetful.url))
    shared_forgetful.query("TRUNCATE holdfast.locks")
    return shared_forgetful


@pytest.fixture(scope="session")
def pgbouncer() -> Iterator[PgBouncer]:
    """In transaction mode."""
    with servers.start("pgbouncer") as server:
        assert isinstance(server, PgBouncer)
        yield server


@pytest.fixture
def proxy(postgresql: PostgreSQL) -> Iterator[Proxy]:
    with Proxy(postgresql.address) as between:
        yield between


@pytest.fixture
def connect() -> Iterator[Connect]:
    """`holdfast.connect`, closed at the end of the test."""
    opened: list[Locks] = []

    def open_locks(where: str | tuple[str, int], options: str = "", label: str = "") -> Locks:
        url = where if isinstance(where, str) else f"postgresql://postgres@{where[0]}:{where[1]}/postgres"
        opened.append(holdfast.connect(url + options, label=label))
        return opened[-1]

    yield open_locks
    for locks in opened:
        locks.close()


@pytest.fixture(params=["threads", "asyncio"])
def opened(request: pytest.FixtureRequest) -> Iterator[OpenStore]:
    """A bare store, in threads and in asyncio; closed at the end of the test."""
    stores: list[Stored] = []

    def open_store(where: str | tuple[str, int], options: str = "") -> Stored:
        url = where if isinstance(where, str) else f"postgresql://postgres@{where[0]}:{where[1]}/postgres"
        stores.append(Stored(url + options, request.param == "asyncio"))
        return stores[-1]

    yield open_store
    for store in stores:
        store.close()
