"""A mark in a row of the user's own: a column or a table that cannot keep it is refused, and never lets a stale token in."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import fenced
from holdfast.errors import Misuse, StaleToken

from .sql_drivers import DRIVERS

TOKEN = 1_800_000_000_000_000  # as a clock of microseconds gives it, in 2027
LENIENT = "SET SESSION sql_mode = ''"  # MySQL then keeps what fits, and warns

UNFIT = [
    ("sqlite3", "fence TEXT", ""),
    ("sqlite3", "fence REAL", ""),
    ("psycopg", "fence real", ""),
    ("psycopg", "fence double precision", ""),
    ("psycopg", "fence numeric(10, 0)", ""),
    ("pymysql", "fence FLOAT", ""),
    ("pymysql", "fence INT", LENIENT),
    ("pymysql", "fence DECIMAL(10, 0)", LENIENT),
    ("pymysql", "fence DATETIME", LENIENT),
    ("pymysql FOUND_ROWS", "fence INT", LENIENT),
    ("pymysql", "fence BIGINT) ENGINE = MyISAM -- (", ""),
    ("pymysql", "fence BIGINT) ENGINE = MEMORY -- (", ""),
    ("sqlalchemy pymysql", "fence FLOAT", ""),
    ("sqlalchemy psycopg", "fence real", ""),
    ("django mysql", "fence FLOAT", ""),
]
FIT = [
    ("sqlite3", "fence BIGINT"),
    ("sqlite3", "fence NUMERIC"),
    ("psycopg", "fence numeric"),
    ("psycopg", "fence fence_domain"),
    ("pymysql", "fence BIGINT UNSIGNED"),
    ("psycopg", "fence numeric(30, 5)"),
    ("pymysql", "fence DECIMAL(20, 0)"),
    ("pymysql", "fence DECIMAL(30, 5)"),
    ("pymysql FOUND_ROWS", "fence BIGINT"),
    ("sqlalchemy pymysql", "fence BIGINT"),
    ("sqlalchemy psycopg", "fence bigint"),
    ("django mysql", "fence BIGINT"),
    ("django postgresql", "fence bigint"),
]


def say(connection: Any, text: str) -> None:
    from sqlalchemy import text as of_sqlalchemy

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if hasattr(connection, "dialect"):
            connection.execute(of_sqlalchemy(text))
        else:
            cursor = connection.cursor()
            cursor.execute(text)
            cursor.close()
    if not (hasattr(connection, "vendor") and connection.get_autocommit()):
        connection.commit()


def sealed(connection: Any, table: str, token: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MySQL warns of what did not fit
        with fenced.transaction(connection, (table, token), row=fenced.Row(table, {"id": 1})):
            pass


@contextlib.contextmanager
def made(driver: str, column: str, mode: str, request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    connection = DRIVERS[driver].connect(request.getfixturevalue(DRIVERS[driver].server))
    table = f"marked_{time.time_ns()}"
    if mode:
        say(connection, mode)
    if "domain" in column:
        say(connection, "DROP DOMAIN IF EXISTS fence_domain CASCADE")
        say(connection, "CREATE DOMAIN fence_domain AS bigint CHECK (value > 0)")
    say(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, {column})")
    say(connection, f"INSERT INTO {table} (id) VALUES (1)")  # noqa: S608
    try:
        yield connection, table
        say(connection, f"DROP TABLE {table}")
    finally:
        DRIVERS[driver].close(connection)


@pytest.mark.parametrize(
    ("driver", "column", "mode"),
    [pytest.param(*one, marks=() if one[0] == "sqlite3" else pytest.mark.server) for one in UNFIT],
)
def test_what_cannot_keep_a_token_lets_no_stale_one_in(
    driver: str, column: str, mode: str, request: pytest.FixtureRequest
) -> None:
    with made(driver, column, mode, request) as (connection, table):
        with contextlib.suppress(Exception):  # in SQLite the first one is kept, as text
            sealed(connection, table, TOKEN + 5)
        for token in (TOKEN + 4, TOKEN - 10**12, TOKEN + 6):  # the last one is no stale one; but who could know?
            with pytest.raises(Exception, match=r"cannot keep the token|overflow") as caught:
                sealed(connection, table, token)
            assert isinstance(caught.value, Misuse) == ("numeric(" not in column)


@pytest.mark.server
def test_text_does_not_compare_as_text(request: pytest.FixtureRequest) -> None:
    with made("pymysql", "fence VARCHAR(40)", "", request) as (connection, table):
        for token in (10, 9, TOKEN, 10, TOKEN + 5, TOKEN + 4):
            with pytest.raises(Misuse, match="cannot keep"):
                sealed(connection, table, token)


@pytest.mark.parametrize(
    ("driver", "column"), [pytest.param(*one, marks=() if one[0] == "sqlite3" else pytest.mark.server) for one in FIT]
)
def test_what_can_keep_a_token_is_taken_as_it_is(driver: str, column: str, request: pytest.FixtureRequest) -> None:
    with made(driver, column, "", request) as (connection, table):
        for token in (9, 10, TOKEN, TOKEN, TOKEN + 5):
            sealed(connection, table, token)
        for token in (TOKEN + 4, 10, 9):
            with pytest.raises(StaleToken) as caught:
                sealed(connection, table, token)
            assert caught.value.seen == TOKEN + 5


@pytest.mark.server
@pytest.mark.parametrize("driver", ["psycopg", "sqlalchemy psycopg", "django postgresql"])
def test_a_trigger_that_puts_the_mark_back_lets_nobody_in(driver: str, request: pytest.FixtureRequest) -> None:
    """As one does that keeps columns as they are. What counts is what was kept."""
    with made(driver, "fence bigint", "", request) as (connection, table):
        say(
            connection,
            "CREATE OR REPLACE FUNCTION as_it_was() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN NEW.fence = OLD.fence; RETURN NEW; END'",
        )
        say(connection, f"CREATE TRIGGER as_it_was BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION as_it_was()")
        for token in (7, 6):
            with pytest.raises(Misuse, match="cannot keep the token"):
                sealed(connection, table, token)


@pytest.mark.server
def test_numbers_that_are_rounded_let_nobody_in(request: pytest.FixtureRequest) -> None:
    with made("psycopg", "fence numeric(30, -3)", "", request) as (connection, table):
        for token in (TOKEN + 7, TOKEN + 5, TOKEN - 7):
            with pytest.raises((Misuse, StaleToken)):
                sealed(connection, table, token)


@pytest.mark.server
@pytest.mark.parametrize("engine", ["MyISAM", "InnoDB"])
def test_a_view_is_refused_where_it_hides_what_is_below(engine: str, request: pytest.FixtureRequest) -> None:
    """MySQL: that may be a table without transactions."""
    with made("pymysql", f"fence BIGINT) ENGINE = {engine} -- (", "", request) as (connection, table):
        say(connection, f"CREATE VIEW {table}_view AS SELECT * FROM {table}")  # noqa: S608
        for token in (7, 6):
            with pytest.raises(Misuse, match="found: a view"):
                sealed(connection, f"{table}_view", token)
        say(connection, f"DROP VIEW {table}_view")


DOWN = "UPDATE {table} SET fence = NEW.fence WHERE id = OLD.id"
REWRITTEN = {
    "a view": ["CREATE VIEW {table}_seen AS SELECT * FROM {table}"],
    "a view, by a trigger": [
        "CREATE VIEW {table}_seen AS SELECT * FROM {table}",
        "CREATE FUNCTION {table}_does() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN " + DOWN + "; RETURN NEW; END'",
        "CREATE TRIGGER does INSTEAD OF UPDATE ON {table}_seen FOR EACH ROW EXECUTE FUNCTION {table}_does()",
    ],
    "a table with a rule": [
        "CREATE TABLE {table}_seen AS SELECT * FROM {table}",
        "CREATE RULE does AS ON UPDATE TO {table}_seen DO INSTEAD " + DOWN + " RETURNING {table}.*",
    ],
}


@pytest.mark.server
@pytest.mark.parametrize("driver", ["psycopg", "sqlalchemy psycopg", "django postgresql"])
@pytest.mark.parametrize("kind", REWRITTEN)
def test_what_postgresql_rewrites_lets_nobody_in(driver: str, kind: str, request: pytest.FixtureRequest) -> None:
    """A stale holder that had waited for a newer one was compared with what was there before, and wrote its own token over it."""
    with made(driver, "fence bigint", "", request) as (connection, table):
        for statement in REWRITTEN[kind]:
            say(connection, statement.format(table=table))
        try:
            for token in (7, 6):
                with pytest.raises(Misuse, match=f"found: {kind.partition(',')[0]}"):
                    sealed(connection, f"{table}_seen", token)
        finally:
            say(connection, f"DROP {'TABLE' if 'rule' in kind else 'VIEW'} {table}_seen")
            say(connection, f"DROP FUNCTION IF EXISTS {table}_does()")
