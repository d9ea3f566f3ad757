"""One MariaDB for the module; an administrator beside it; a clean slate for every test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pymysql
import pytest

from holdfast.testing import servers
from holdfast.testing.servers.mariadb import MariaDB

from .admin import Admin


@pytest.fixture(scope="module")
def shared_mariadb() -> Iterator[MariaDB]:
    with servers.start("mariadb", "--innodb-flush-method=nosync") as server:  # kill -9 loses nothing that was written
        yield server


@pytest.fixture
def mariadb(shared_mariadb: MariaDB) -> MariaDB:
    """It runs, whatever the test before has done to it."""
    shared_mariadb.mend()
    return shared_mariadb


@pytest.fixture
def admin(mariadb: MariaDB) -> Iterator[Admin]:
    one = Admin(mariadb)
    with contextlib.suppress(pymysql.err.ProgrammingError):  # no tables yet
        one.run("DELETE FROM holdfast_claims WHERE name <> ''")
        one.run("DELETE FROM holdfast_audit")
        one.run("DELETE FROM holdfast_sessions")
    yield one
    one.close()


@pytest.fixture
def url(mariadb: MariaDB, admin: Admin) -> str:
    return mariadb.url
