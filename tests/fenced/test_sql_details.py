"""What fenced transactions refuse and say, beyond the suite for guards."""

from __future__ import annotations

import asyncio
import inspect
import sqlite3
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import fenced, sql
from holdfast.databases.connections import wire_for
from holdfast.databases.statements import Statement, bind, identifier, table_name
from holdfast.databases.wire import Outcome
from holdfast.errors import Misuse, StaleToken
from holdfast.fenced import Row, aio
from holdfast.fenced.mark import Mark
from holdfast.fenced.sql.place import Place, texts

from .sql_drivers import (
    DRIVERS,
    django,
    psycopg,
    psycopg_async,
    psycopg_autocommit,
    pymysql,
    pymysql_found_rows,
    sqlite,
    sqlite_legacy,
)
from .test_sql_autocommit import connected

SECONDS = 20.0


@pytest.fixture
def db(sqlite_file: str) -> Iterator[sqlite3.Connection]:
    connection: sqlite3.Connection = sqlite(sqlite_file)
    fenced.create_table(connection)
    connection.execute("CREATE TABLE IF NOT EXISTS account (id TEXT PRIMARY KEY, balance INTEGER, fence INTEGER)")
    connection.execute("INSERT OR REPLACE INTO account VALUES ('alice', 100, NULL), ('bob', 100, NULL)")
    connection.execute("DELETE FROM holdfast_fences")
    yield connection
    connection.close()


@pytest.fixture(
    params=[pytest.param("postgresql", marks=pytest.mark.server), pytest.param("mariadb", marks=pytest.mark.server)]
)
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    connection = {"postgresql": psycopg, "mariadb": pymysql}[request.param](request.getfixturevalue(request.param))
    fenced.create_table(connection)
    yield connection
    connection.close()


def execute(connection: Any, text: str) -> Any:
    cursor = connection.cursor()
    cursor.execute(text)
    return cursor


def test_threads_and_asyncio_have_the_same_names_and_signatures() -> None:
    assert sorted(set(fenced.__all__) - {"aio"}) == sorted(aio.__all__)
    for name in ("transaction", "seal", "create_table"):
        ours, theirs = inspect.signature(getattr(fenced, name)), inspect.signature(getattr(aio, name))
        assert list(ours.parameters) == list(theirs.parameters)
    for name in ("File", "Object", "Redis", "Etcd", "ZooKeeper"):
        ours_too, theirs_too = getattr(fenced, name), getattr(aio, name)
        public = [method for method in dir(ours_too) if not method.startswith("_")]
        assert public == [method for method in dir(theirs_too) if not method.startswith("_")]
        for method in public:
            assert inspect.signature(getattr(ours_too, method)) == inspect.signature(getattr(theirs_too, method))


def test_a_lock_and_a_fenced_transaction_go_together(db: sqlite3.Connection) -> None:
    with holdfast.connect("memory://").lock("account:alice") as lease, fenced.transaction(db, lease) as tx:
        tx.execute("UPDATE account SET balance = balance - 10 WHERE id = 'alice'")
    assert db.execute("SELECT token FROM holdfast_fences").fetchone() == (lease.token,)
    assert db.execute("SELECT balance FROM account WHERE id = 'alice'").fetchone() == (90,)


def test_a_transfer_is_fenced_by_both_leases(db: sqlite3.Connection) -> None:
    with fenced.transaction(db, ("bob", 5), ("alice", 7)) as tx:
        tx.execute("UPDATE account SET balance = 0")
    with pytest.raises(StaleToken) as caught, fenced.transaction(db, ("alice", 8), ("bob", 4)):
        raise AssertionError("bob was overtaken")
    assert caught.value.resource == "bob"
    with pytest.raises(Misuse, match="two leases"):
        fenced.transaction(db, ("alice", 7), ("alice", 8))
    marks = db.execute("SELECT resource, token FROM holdfast_fences ORDER BY 1").fetchall()
    assert marks == [("alice", 7), ("bob", 5)]  # alice's 8 was rolled back with the rest


@pytest.mark.timeout(60)
def test_a_refusal_tells_when_the_mark_was_first_seen(server: Any) -> None:
    resource = f"since {time.time_ns()}"
    before = time.time()
    for _ in range(2):  # the second, equal one does not move the time
        with fenced.transaction(server, (resource, 9)):
            pass
    with pytest.raises(StaleToken, match=r"since 20..-..-.. ..:..:.. UTC") as caught:
        fenced.transaction(server, (resource, 8)).__enter__()
    assert caught.value.since is not None
    assert before - 5 < caught.value.since < time.time() + 5


def test_an_open_transaction_is_refused(server: Any, db: sqlite3.Connection, sqlite_file: str) -> None:
    execute(server, "CREATE TABLE IF NOT EXISTS opened (id INTEGER)")
    server.commit()
    execute(server, "INSERT INTO opened VALUES (1)")
    legacy = sqlite_legacy(sqlite_file)
    legacy.execute("UPDATE account SET balance = 1")
    for connection in (server, legacy):
        with pytest.raises(Misuse, match="open already"):
            fenced.transaction(connection, ("x", 1)).__enter__()
        connection.rollback()
    legacy.close()


@pytest.mark.server
def test_an_earlier_snapshot_does_not_leak_into_a_fenced_transaction_of_mysql(mariadb: str) -> None:
    """REPEATABLE READ: without a new snapshot the stale balance would be read, and the other's update lost."""
    ours, theirs = pymysql(mariadb), pymysql(mariadb)
    fenced.create_table(ours)
    execute(ours, "CREATE TABLE IF NOT EXISTS snapshot (id INTEGER PRIMARY KEY, value INTEGER)")
    execute(ours, "REPLACE INTO snapshot VALUES (1, 1)")
    ours.commit()
    assert execute(ours, "SELECT value FROM snapshot").fetchone() == (1,)  # opens a snapshot, and says nothing of it
    execute(theirs, "UPDATE snapshot SET value = 2")
    theirs.commit()
    with fenced.transaction(ours, (f"snapshot {time.time_ns()}", 1)) as tx:
        assert execute(tx, "SELECT value FROM snapshot").fetchone() == (2,)
    ours.close()
    theirs.close()


def test_a_newer_holder_waits_for_an_older_transaction_and_an_older_one_is_refused_after(
    server: Any, request: Any
) -> None:
    """Nothing comes between the seal and the commit: check-then-write would let the second in at once."""
    resource = f"in order {time.time_ns()}"
    url = request.getfixturevalue("postgresql" if type(server).__module__.startswith("psycopg") else "mariadb")
    connect = psycopg if type(server).__module__.startswith("psycopg") else pymysql
    order: list[str] = []
    opened = threading.Event()

    def successor() -> None:
        connection = connect(url)
        opened.set()
        with fenced.transaction(connection, (resource, 2)):
            order.append("second inside")
        connection.close()

    with fenced.transaction(server, (resource, 1)):
        thread = threading.Thread(target=successor, daemon=True)
        thread.start()
        assert opened.wait(SECONDS)
        thread.join(0.2)  # it has all the time it needs to come in wrongly
        order.append("first leaves")
    thread.join(SECONDS)
    assert order == ["first leaves", "second inside"]
    with pytest.raises(StaleToken):
        fenced.transaction(server, (resource, 1)).__enter__()


def test_a_missing_table_is_explained(tmp_path: Any, server: Any) -> None:
    execute(server, "DROP TABLE holdfast_fences")
    server.commit()
    empty = sqlite_legacy(str(tmp_path / "empty.db"))
    for connection in (empty, server):
        for use in (lambda it: fenced.transaction(it, ("x", 1)).__enter__(), lambda it: fenced.seal(it, ("x", 1))):
            with pytest.raises(Misuse, match=r"create it once, with fenced\.create_table"):
                use(connection)
            connection.rollback()
        fenced.create_table(connection)
        fenced.create_table(connection)
        with fenced.transaction(connection, ("x", 1)):
            pass
    empty.close()


def test_seal_in_a_transaction_of_ones_own(db: sqlite3.Connection) -> None:
    db.execute("BEGIN")
    fenced.seal(db, ("alice", 3))
    db.execute("ROLLBACK")
    db.execute("BEGIN")
    fenced.seal(db, ("alice", 2))
    db.execute("COMMIT")
    db.execute("BEGIN")
    with pytest.raises(StaleToken):
        fenced.seal(db, ("alice", 1))
    db.execute("ROLLBACK")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit=False came with Python 3.12")
def test_sqlite_that_always_has_a_transaction_open(db: sqlite3.Connection, sqlite_file: str) -> None:
    """Even what was read before the seal is safe: SQLite writes only on the newest snapshot, and so refuses the seal."""
    db.execute("PRAGMA journal_mode = WAL")
    options: Any = {"autocommit": False}
    always = sqlite3.connect(sqlite_file, timeout=1, **options)
    with fenced.transaction(always, ("alice", 2)) as tx:
        tx.execute("UPDATE account SET balance = 7 WHERE id = 'alice'")
    assert db.execute("SELECT balance FROM account WHERE id = 'alice'").fetchone() == (7,)
    with pytest.raises(StaleToken):
        fenced.transaction(always, ("alice", 1)).__enter__()
    always.execute("SELECT balance FROM account").fetchall()  # opens a snapshot, which the next line makes old
    db.execute("UPDATE account SET balance = 8 WHERE id = 'alice'")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        fenced.transaction(always, ("alice", 3)).__enter__()
    with fenced.transaction(always, ("alice", 3)) as tx:
        assert tx.execute("SELECT balance FROM account WHERE id = 'alice'").fetchone() == (8,)
    always.close()
    db.execute("PRAGMA journal_mode = DELETE")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="autocommit=True came with Python 3.12")
def test_sqlite_whose_own_commit_does_nothing(db: sqlite3.Connection, sqlite_file: str) -> None:
    options: Any = {"autocommit": True}
    other = sqlite3.connect(sqlite_file, timeout=1, **options)
    with fenced.transaction(other, ("alice", 2)) as tx:
        tx.execute("UPDATE account SET balance = 7 WHERE id = 'alice'")
    assert not other.in_transaction
    with pytest.raises(KeyError), fenced.transaction(other, ("alice", 3)) as tx:
        tx.execute("UPDATE account SET balance = 8 WHERE id = 'alice'")
        raise KeyError
    assert not other.in_transaction
    assert db.execute("SELECT balance FROM account WHERE id = 'alice'").fetchone() == (7,)
    other.close()


def test_a_row_carries_its_own_mark(db: sqlite3.Connection) -> None:
    alice = Row("account", {"id": "alice"})
    with fenced.transaction(db, ("account:alice", 3), row=alice) as tx:
        tx.execute("UPDATE account SET balance = 1 WHERE id = 'alice'")
    assert db.execute("SELECT fence FROM account ORDER BY id").fetchall() == [(3,), (None,)]
    with pytest.raises(StaleToken, match="has seen token 3; the token presented is 2"):
        fenced.transaction(db, ("account:alice", 2), row=alice).__enter__()
    with pytest.raises(Misuse, match="has no row"):
        fenced.transaction(db, ("account:eve", 2), row=Row("account", {"id": "eve"})).__enter__()
    with pytest.raises(Misuse, match="one mark"):
        fenced.transaction(db, ("a", 1), ("b", 1), row=alice)
    with pytest.raises(Misuse, match="named by its key"):
        fenced.transaction(db, ("a", 1), row=Row("account", {}))


def test_a_row_of_mysql_that_is_not_there_is_told_from_a_stale_token(server: Any) -> None:
    execute(server, "CREATE TABLE IF NOT EXISTS rowed (id INTEGER PRIMARY KEY, fence BIGINT)")
    server.commit()
    with pytest.raises(Misuse, match="has no row"):
        fenced.transaction(server, ("x", 2), row=Row("rowed", {"id": 77})).__enter__()


@pytest.mark.server
@pytest.mark.parametrize(
    "name", ["sqlite3", "psycopg", "asyncpg", "pymysql", "pymysql FOUND_ROWS", "sqlalchemy pymysql"]
)
def test_a_mark_in_a_row_belongs_to_one_row(name: str, request: pytest.FixtureRequest) -> None:
    """Else one row would let a token in that another has seen overtaken."""
    driver = DRIVERS[name]

    async def work(module: Any, connection: Any) -> None:
        wire = wire_for(connection, driver.world)
        customer = time.time_ns() // 1000
        await _alone(wire, "CREATE TABLE IF NOT EXISTS several (id BIGINT PRIMARY KEY, customer BIGINT, fence BIGINT)")
        rows = f"({customer}, {customer}, 9), ({customer + 1}, {customer}, NULL)"
        await _alone(wire, f"INSERT INTO several VALUES {rows}")  # noqa: S608
        row = Row("several", {"customer": customer})
        for token in (5, 10):
            with pytest.raises((Misuse, StaleToken)) as caught:
                if module is aio:
                    await aio.transaction(connection, ("customer:7", token), row=row).__aenter__()
                else:
                    fenced.transaction(connection, ("customer:7", token), row=row).__enter__()
            assert "2 rows" in str(caught.value)

    connected(driver, request.getfixturevalue(driver.server), work)


async def _alone(wire: Any, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        await wire.begin(Statement(text, (), {}))
        await wire.end(None)


@pytest.mark.server
@pytest.mark.parametrize("found_rows", [False, True])
def test_a_trigger_that_makes_mysql_forget_the_mark_lets_nobody_in(mariadb: str, found_rows: bool) -> None:
    """A trigger on the table of marks resets the last insert id, by which the mark is told."""
    connection = (pymysql_found_rows if found_rows else pymysql)(mariadb)
    fenced.create_table(connection)
    execute(connection, "CREATE TABLE IF NOT EXISTS audit (id INT AUTO_INCREMENT PRIMARY KEY, token BIGINT)")
    for when in ("INSERT", "UPDATE"):
        execute(
            connection,
            f"CREATE TRIGGER forget_{when} AFTER {when} ON holdfast_fences FOR EACH ROW "  # noqa: S608
            "INSERT INTO audit (token) VALUES (NEW.token)",
        )
    resource = f"forgotten {time.time_ns()}"
    try:
        for token in (5, 5, 7):
            with fenced.transaction(connection, (resource, token)):
                pass
        with pytest.raises(StaleToken):
            fenced.transaction(connection, (resource, 6)).__enter__()
    finally:
        for when in ("INSERT", "UPDATE"):
            execute(connection, f"DROP TRIGGER forget_{when}")
        connection.close()


def test_a_lost_last_insert_id_is_no_permission() -> None:
    mark = Place(Mark("x", 5), None, "mysql", "%s")
    assert not mark.accepted(Outcome(1, 0))
    assert mark.accepted(Outcome(1, 5))


@pytest.mark.server
def test_a_table_is_not_created_inside_of_a_transaction(server: Any, db: sqlite3.Connection) -> None:
    """On MySQL that would commit what the user has begun."""
    execute(server, "CREATE TABLE IF NOT EXISTS opened (id INTEGER)")
    server.commit()
    execute(server, "INSERT INTO opened VALUES (777)")
    with pytest.raises(Misuse, match="open already"):
        fenced.create_table(server)
    if type(server).__module__.startswith("pymysql"):
        with pytest.raises(Misuse, match="open already"):
            sql.create_table(server)
    server.rollback()
    assert execute(server, "SELECT COUNT(*) FROM opened WHERE id = 777").fetchone() == (0,)
    db.execute("BEGIN")
    with pytest.raises(Misuse, match="open already"):
        fenced.create_table(db)
    db.execute("ROLLBACK")


@pytest.mark.server
def test_a_session_on_a_connection_that_is_in_a_transaction_is_refused(postgresql: str) -> None:
    from sqlalchemy import create_engine, text
    from sqlalchemy.orm import Session

    engine = create_engine(postgresql.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))  # what is read here is not covered
        with Session(bind=connection) as session, pytest.raises(Misuse, match="open already"):
            fenced.transaction(session, ("x", 1)).__enter__()
        connection.rollback()
        with Session(bind=connection) as session, fenced.transaction(session, (f"joined {time.time_ns()}", 1)):
            pass
    engine.dispose()


@pytest.mark.server
@pytest.mark.parametrize("server_name", ["sqlite_file", "postgresql", "mariadb"])
def test_django_with_autocommit_off_is_refused(server_name: str, request: pytest.FixtureRequest) -> None:
    """`atomic` would not commit, and what was read before would not be covered."""
    connection = django(request.getfixturevalue(server_name))
    fenced.create_table(connection)
    connection.set_autocommit(False)
    try:
        with pytest.raises(Misuse, match="open already"), fenced.transaction(connection, ("x", 1)):
            pytest.fail("it was let in")
        fenced.seal(connection, (f"off {time.time_ns()}", 1))
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    connection.close()


@pytest.mark.server
def test_a_users_own_pipeline_of_psycopg_is_told_the_truth(postgresql: str) -> None:
    """In a pipeline a row count is -1 until the answers are asked for."""
    connection = psycopg_autocommit(postgresql)
    fenced.create_table(connection)
    one, other = f"one {time.time_ns()}", f"other {time.time_ns()}"
    with connection.pipeline(), fenced.transaction(connection, (one, 5), (other, 5)) as tx:
        tx.execute("SELECT 1")
    with connection.pipeline(), connection.transaction():
        fenced.seal(connection, (one, 6))
    for tickets in ([(one, 5)], [(one, 6), (other, 4)]):
        with connection.pipeline(), pytest.raises(StaleToken):
            fenced.transaction(connection, *tickets).__enter__()
    with pytest.raises(StaleToken), connection.pipeline(), connection.transaction():
        fenced.seal(connection, (one, 5))
    with connection.pipeline(), pytest.raises(Misuse, match="no transaction is open"):
        fenced.seal(connection, (one, 7))
    connection.close()


@pytest.mark.server
def test_a_users_own_pipeline_of_psycopg_in_asyncio_is_told_the_truth(postgresql: str) -> None:
    async def work() -> None:
        connection = await psycopg_async(postgresql)
        one, other = f"one {time.time_ns()}", f"other {time.time_ns()}"
        await aio.create_table(connection)
        async with connection.pipeline(), aio.transaction(connection, (one, 5), (other, 5)) as tx:
            await tx.execute("SELECT 1")
        async with connection.pipeline():
            with pytest.raises(StaleToken):
                await aio.transaction(connection, (one, 6), (other, 4)).__aenter__()
        await connection.close()

    asyncio.run(work())


def test_awkward_tables_and_columns_are_quoted(db: sqlite3.Connection) -> None:
    db.execute('CREATE TABLE "odd "" table" ("k:ey %s" TEXT, "fe:nce {x}" INTEGER)')
    db.execute("""INSERT INTO "odd "" table" VALUES ('it''s', 1)""")
    row = Row(('odd " table',), {"k:ey %s": "it's"}, "fe:nce {x}")
    with fenced.transaction(db, ("odd", 5), row=row):
        pass
    with pytest.raises(StaleToken):
        fenced.transaction(db, ("odd", 4), row=row).__enter__()
    db.execute('DROP TABLE "odd "" table"')


@pytest.mark.parametrize(
    ("dialect", "table", "quoted"),
    [
        ("postgresql", "shop.orders", '"shop"."orders"'),
        ("postgresql", ("shop.orders",), '"shop.orders"'),
        ("mysql", "a`b", "`a``b`"),
        ("sqlite", 'a"b', '"a""b"'),
    ],
)
def test_a_table_is_quoted_as_its_dialect_does(dialect: str, table: Any, quoted: str) -> None:
    assert table_name(dialect, table) == quoted


@pytest.mark.parametrize("name", ["", "a\0b", "n" * 64, None, 7])
def test_what_is_no_identifier_is_refused(name: Any) -> None:
    with pytest.raises(Misuse):
        identifier("postgresql", name)


def test_a_percent_sign_is_doubled_only_where_the_driver_wants_it() -> None:
    values = {"resource": "r", "token": 1}
    assert "%%Y-%%m" in bind(texts("sqlite")["seal"], "%s", values).text
    assert "%Y-%m" in bind(texts("sqlite")["seal"], "?", values).text


def test_the_other_world_is_refused_with_the_right_name(db: sqlite3.Connection) -> None:
    with pytest.raises(Misuse, match=r"use the same function of holdfast\.fenced$"):
        aio.transaction(db, ("x", 1))
    with pytest.raises(Misuse, match="no connection that holdfast knows"):
        fenced.transaction(object(), ("x", 1))

    async def other() -> None:
        import aiosqlite

        connection = await aiosqlite.connect(":memory:")
        with pytest.raises(Misuse, match=r"holdfast\.fenced\.aio"):
            fenced.transaction(connection, ("x", 1))
        await connection.close()

    asyncio.run(other())


def test_sqlalchemy_in_autocommit_mode_is_refused(sqlite_file: str) -> None:
    from sqlalchemy import create_engine
    from sqlalchemy.orm import Session

    engine = create_engine(f"sqlite:///{sqlite_file}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(Misuse, match="AUTOCOMMIT"):
        fenced.transaction(connection, ("x", 1)).__enter__()
    with Session(engine) as session, pytest.raises(Misuse, match="AUTOCOMMIT"):
        fenced.transaction(session, ("x", 1)).__enter__()
    engine.dispose()


def test_the_schema_is_given_for_migrations(db: sqlite3.Connection) -> None:
    db.executescript(fenced.schema("sqlite"))
    with pytest.raises(Misuse, match="postgresql, mysql, sqlite"):
        fenced.schema("oracle")


@pytest.mark.server
@pytest.mark.parametrize("in_row", [False, True])
def test_a_connection_of_psycopg_with_raw_cursors_is_spoken_to_in_its_own_words(postgresql: str, in_row: bool) -> None:
    import psycopg

    with psycopg.connect(postgresql, autocommit=True, cursor_factory=psycopg.RawCursor) as connection:
        fenced.create_table(connection)
        name = f"raw_{time.time_ns()}"
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, fence bigint)")
        connection.execute(f"INSERT INTO {name} VALUES ($1, NULL)", [1])  # noqa: S608
        row = Row(name, {"id": 1}) if in_row else None
        for token in (5, 7):
            with fenced.transaction(connection, (name, token), row=row):
                pass
        with pytest.raises(StaleToken), fenced.transaction(connection, (name, 6), row=row):
            pytest.fail("let in")
        connection.execute(f"DROP TABLE {name}")


@pytest.mark.server
@pytest.mark.parametrize("autocommit", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_mariadb_that_plays_oracle_is_spoken_to_in_words_that_it_knows(mariadb: str, autocommit: bool) -> None:
    connection = DRIVERS["pymysql FOUND_ROWS" if autocommit else "pymysql"].connect(mariadb)
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = 'ORACLE'")
    name = f"oracle {time.time_ns()}"
    fenced.create_table(connection)
    with fenced.transaction(connection, (name, 5)):
        pass
    with pytest.raises(StaleToken), fenced.transaction(connection, (name, 4)):
        pytest.fail("let in")
    assert connection.get_autocommit() == autocommit
    connection.close()
