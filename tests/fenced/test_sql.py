"""Fenced transactions over every driver, on real servers, pass the suite for guards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.testing import guards

from .sql_drivers import DRIVERS
from .sql_under_test import RowUnderTest, SqlUnderTest


def _marked(names: list[str]) -> list[Any]:
    return [
        pytest.param(name, marks=() if DRIVERS[name].server == "sqlite_file" else pytest.mark.server) for name in names
    ]


@pytest.fixture(scope="module", params=_marked(list(DRIVERS)))
def transactions(request: pytest.FixtureRequest) -> Iterator[SqlUnderTest[Any]]:
    driver = DRIVERS[request.param]
    guard: SqlUnderTest[Any] = SqlUnderTest(driver, request.getfixturevalue(driver.server))
    yield guard
    guard.close()


@pytest.fixture(scope="module", params=_marked(["sqlite3", "psycopg", "asyncpg", "pymysql", "sqlalchemy pymysql"]))
def rows(request: pytest.FixtureRequest) -> Iterator[RowUnderTest[Any]]:
    driver = DRIVERS[request.param]
    guard: RowUnderTest[Any] = RowUnderTest(driver, request.getfixturevalue(driver.server))
    yield guard
    guard.close()


@pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
def test_a_fenced_transaction(check: guards.Check, transactions: SqlUnderTest[Any]) -> None:
    check(transactions)


@pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
def test_a_fenced_row(check: guards.Check, rows: RowUnderTest[Any]) -> None:
    check(rows)
