"""The triggers on real databases: by Python, by `holdfast fence`, by Alembic and by Django."""

from __future__ import annotations

import io
import json
import sqlite3
import time
from typing import Any

import pytest

from holdfast import fenced
from holdfast.cli import main
from holdfast.errors import Misuse
from holdfast.fenced import triggers

from . import sql_drivers

KINDS = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.server),
    pytest.param("mysql", marks=pytest.mark.server),
]


class Shop:
    """A database with one order, in a table of its own."""

    def __init__(self, dialect: str, url: str) -> None:
        connect = {
            "sqlite": sql_drivers.sqlite,
            "postgresql": sql_drivers.psycopg_autocommit,
            "mysql": sql_drivers.pymysql,
        }
        self.dialect = dialect
        self.url = f"sqlite://{url}" if dialect == "sqlite" else url
        self.path = url
        self.connection = connect[dialect](url)
        self.table = f"orders_{time.time_ns()}"
        self.run(f"CREATE TABLE {self.table} (id INTEGER PRIMARY KEY, state VARCHAR(40), fence BIGINT)")
        self.run(f"INSERT INTO {self.table} VALUES (1, 'new', NULL)")

    def run(self, statement: str) -> Any:
        cursor = self.connection.cursor()
        cursor.execute(statement)
        self.connection.commit()
        return cursor

    def set(self, fence: str) -> None:
        """As code does that forgot to compare."""
        self.run(f"UPDATE {self.table} SET state = 'by {fence}', fence = {fence} WHERE id = 1")

    def refuses(self, fence: str) -> BaseException | None:
        try:
            self.set(fence)
        except Exception as error:
            self.connection.rollback()
            return error
        return None

    def state(self) -> Any:
        return self.run(f"SELECT state FROM {self.table}").fetchone()[0]


@pytest.fixture(params=KINDS)
def shop(request: pytest.FixtureRequest) -> Any:
    fixture = {"sqlite": "sqlite_file", "postgresql": "postgresql", "mysql": "mariadb"}[request.param]
    database = Shop(request.param, request.getfixturevalue(fixture))
    yield database
    database.connection.close()


def guards_it(shop: Shop) -> None:
    """Kills `!=`, which would refuse 10 after 9, and comparing as text, which would refuse 10 as well."""
    shop.set("8")
    shop.set("9")
    shop.set("9")
    shop.set("10")
    for stale in ("9", "1", "NULL", "-1"):
        error = shop.refuses(stale)
        assert error is not None, f"{stale} passed after 10"
        told = triggers.stale(error)
        assert told is not None, error
        assert told.resource == f"{shop.table}.fence"
        assert told.seen == (0 if shop.dialect == "sqlite" else 10)
    assert shop.state() == "by 10"
    shop.run(f"UPDATE {shop.table} SET state = 'by nobody'")  # does not mention the token: documented to pass
    shop.set("9223372036854775807")
    assert shop.refuses("9223372036854775806")


def test_a_trigger_refuses_what_forgot_to_compare(shop: Shop) -> None:
    assert shop.refuses("9") is None
    assert shop.refuses("8") is None, "without a trigger a lower token passes: the test has teeth"
    shop.run(f"UPDATE {shop.table} SET fence = NULL")
    for _ in range(2):  # again is harmless
        for statement in triggers.install(shop.dialect, shop.table):
            shop.run(statement)
    guards_it(shop)
    for statement in triggers.remove(shop.dialect, shop.table):
        shop.run(statement)
    assert shop.refuses("1") is None


def test_a_row_is_sealed_through_its_trigger(shop: Shop) -> None:
    for statement in triggers.install(shop.dialect, shop.table):
        shop.run(statement)
    row = fenced.Row(shop.table, {"id": 1})
    for token in (1, 2, 2):
        with fenced.transaction(shop.connection, ("order:1", token), row=row):
            pass
    with pytest.raises(fenced_stale()):
        fenced.transaction(shop.connection, ("order:1", 1), row=row).__enter__()


def fenced_stale() -> type[Exception]:
    from holdfast import StaleToken

    return StaleToken


def test_the_command_applies_and_removes_it(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--table", shop.table, "--column", "fence", "--database", shop.url]
    assert main(["fence", "install", *where, "--apply"]) == 0
    guards_it(shop)
    assert main(["fence", "remove", *where, "--apply", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["applied"] is True
    assert shop.refuses("1") is None


def test_the_command_adds_the_column(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--table", shop.table, "--column", "second", "--database", shop.url, "--apply"]
    assert main(["fence", "install", *where]) == 125
    assert "second" in capsys.readouterr().err
    assert main(["fence", "install", *where, "--add-column"]) == 0
    shop.run(f"UPDATE {shop.table} SET second = 2")
    with pytest.raises(Exception, match="holdfast: stale token"):
        shop.run(f"UPDATE {shop.table} SET second = 1")
    shop.connection.rollback()


def test_what_is_printed_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fence", "install", "--table", "odd \" ' table", "--dialect", "sqlite"]) == 0
    database = sqlite3.connect(":memory:")
    database.execute("""CREATE TABLE "odd "" ' table" (fence INTEGER)""")
    database.execute("""INSERT INTO "odd "" ' table" VALUES (5)""")
    database.executescript(capsys.readouterr().out)
    with pytest.raises(sqlite3.IntegrityError, match="holdfast: stale token for odd"):
        database.execute("""UPDATE "odd "" ' table" SET fence = 4""")
    with pytest.raises(sqlite3.IntegrityError):
        database.execute("""UPDATE "odd "" ' table" SET fence = 'text sorts above numbers'""")
    database.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["install"], "--table"),
        (["install", "--table", "t"], "--dialect"),
        (["install", "--table", "t", "--apply"], "--database"),
        (["install", "--table", "t", "--dialect", "oracle"], "oracle"),
        (["install", "--table", "t", "--database", "oracle://x"], "postgresql"),
        (["install", "--table", "t", "--dialect", "mysql", "--database", "sqlite:///x"], "says"),
        (["paint", "--table", "t", "--dialect", "mysql"], "install"),
        ([], "install"),
    ],
)
def test_what_makes_no_sense_is_refused(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fence", *words]) == 125
    assert told in capsys.readouterr().err


def test_names_that_could_end_the_body_are_refused() -> None:
    with pytest.raises(Misuse):
        triggers.install("postgresql", "a$holdfast$b")
    assert triggers.stale(ValueError("something else")) is None


def test_two_long_tables_have_triggers_of_their_own() -> None:
    one, other = ("t" * 60 + end for end in "ab")
    assert triggers.remove("postgresql", one) != triggers.remove("postgresql", other)


def test_the_table_of_marks_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fence", "table", "--dialect", "sqlite"]) == 0
    database = sqlite3.connect(":memory:", isolation_level=None)
    database.executescript(capsys.readouterr().out)
    with fenced.transaction(database, ("x", 1)):
        pass
    database.close()


def test_alembic_operations(shop: Shop) -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    import holdfast.fenced.triggers.alembic as operations_of_ours

    driver = {"sqlite": "pysqlite", "postgresql": "psycopg", "mysql": "pymysql"}[shop.dialect]
    connection = sql_drivers.core(driver)(shop.path)
    op: Any = Operations(MigrationContext.configure(connection))
    op.create_fences()
    op.install_fence(shop.table, "fence")
    connection.commit()
    guards_it(shop)
    op.invoke(operations_of_ours.InstallFence(shop.table, "fence").reverse())
    connection.commit()
    assert shop.refuses("1") is None
    sql_drivers.close_with_engine(connection)


def test_alembic_prints_offline() -> None:
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    import holdfast.fenced.triggers.alembic

    assert holdfast.fenced.triggers.alembic
    printed = io.StringIO()
    context = MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": printed})
    op: Any = Operations(context)
    op.install_fence("orders")
    assert 'NEW."fence"::text' in printed.getvalue()


def test_a_django_migration(shop: Shop) -> None:
    connection = sql_drivers.django(shop.path)
    from holdfast.fenced.triggers.django import CreateFences, InstallFence

    operations = [CreateFences(), InstallFence(shop.table)]
    with connection.schema_editor() as editor:
        for operation in operations:
            operation.database_forwards("shop", editor, None, None)
    guards_it(shop)
    with connection.schema_editor() as editor:
        operations[1].database_backwards("shop", editor, None, None)
    assert shop.refuses("1") is None
    assert operations[1].deconstruct() == ("InstallFence", [shop.table, "fence"], {})
    assert "stale" in operations[1].describe()
    connection.close()


@pytest.mark.server
def test_a_session_that_plays_the_replica_passes_the_trigger_and_only_who_may(postgresql: str) -> None:
    """As the page says: what PostgreSQL does not run, refuses nothing. An ordinary role may not say so."""
    import psycopg

    shop = Shop("postgresql", postgresql)
    for statement in triggers.install(shop.dialect, shop.table):
        shop.run(statement)
    shop.set("9")
    assert shop.refuses("8") is not None
    shop.run("DROP ROLE IF EXISTS plain")
    shop.run("CREATE ROLE plain")
    shop.run("SET ROLE plain")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        shop.run("SET session_replication_role = replica")
    shop.run("RESET ROLE")
    shop.run("SET session_replication_role = replica")
    assert shop.refuses("8") is None
    shop.run("SET session_replication_role = origin")
    assert shop.refuses("7") is not None
    shop.connection.close()
