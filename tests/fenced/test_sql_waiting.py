"""A seal that has to wait for somebody else's transaction, or comes after a read: decided by what is there then, not before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from holdfast import fenced
from holdfast.errors import StaleToken

from .sql_drivers import DRIVERS

pytestmark = pytest.mark.server
WHERE = [
    ("psycopg", "postgresql"),
    ("pymysql", "mariadb"),
    ("pymysql", "mysql"),
    ("sqlalchemy pymysql", "mysql"),
]
WAITING = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mariadb": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    "mysql": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}


def say(connection: Any, statement: str) -> list[Any]:
    if hasattr(connection, "dialect"):
        result = connection.execute(text(statement))
        return [tuple(row) for row in result] if result.returns_rows else []
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


class Two:
    """Two connections, a table, and a mark, in a row of its own or beside the table. The state is in another row: what one has
    changed oneself is seen in any case."""

    def __init__(self, driver: str, server: str, in_row: bool, url: str) -> None:
        self.server, self.name = server, f"waited_{time.time_ns()}"
        self.older, self.newer, self.looking = (DRIVERS[driver].connect(url) for _ in range(3))
        fenced.create_table(self.older)
        say(self.older, f"CREATE TABLE {self.name} (id INT PRIMARY KEY, state VARCHAR(16), fence BIGINT)")
        say(self.older, f"INSERT INTO {self.name} VALUES (1, 'marked', NULL), (2, 'old', NULL)")  # noqa: S608
        self.older.commit()
        self.row = fenced.Row(self.name, {"id": 1}) if in_row else None

    def guard(self, connection: Any, token: int) -> Any:
        return fenced.transaction(connection, (self.name, token), row=self.row)

    def state(self, connection: Any) -> object:
        return say(connection, f"SELECT state FROM {self.name} WHERE id = 2")[0][0]  # noqa: S608

    def write(self, connection: Any, state: str) -> None:
        say(connection, f"UPDATE {self.name} SET state = '{state}' WHERE id = 2")  # noqa: S608

    def meanwhile(self, work: Callable[[], None]) -> threading.Thread:
        """Begun, and waiting for a lock."""
        thread = threading.Thread(target=work)
        thread.start()
        give_up = time.monotonic() + 30
        while not say(self.looking, WAITING[self.server])[0][0]:
            self.looking.rollback()
            assert thread.is_alive(), "it did not wait"
            assert time.monotonic() < give_up
            time.sleep(0.15)  # asked oftener, InnoDB repeats what it has said before
        self.looking.rollback()
        return thread

    def close(self) -> None:
        for connection in (self.older, self.newer, self.looking):
            connection.rollback()
        say(self.looking, f"DROP TABLE {self.name}")
        self.looking.commit()
        for connection in (self.older, self.newer, self.looking):
            connection.close()


@pytest.fixture(params=WHERE, ids=" on ".join)
def two(request: pytest.FixtureRequest, in_row: bool) -> Any:
    driver, server = request.param
    made = Two(driver, server, in_row, request.getfixturevalue(server))
    yield made
    made.close()


@pytest.fixture(params=[False, True], ids=["beside", "in the row"])
def in_row(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_stale_holder_that_waited_for_a_newer_one_is_refused(two: Two) -> None:
    with two.guard(two.older, 5):
        pass
    told: list[BaseException | None] = []

    def late() -> None:
        try:
            with two.guard(two.older, 5):
                two.write(two.older, "stale")
            told.append(None)
        except BaseException as error:
            told.append(error)

    with two.guard(two.newer, 7):
        thread = two.meanwhile(late)
        two.write(two.newer, "newer")
    thread.join(30)
    assert [type(one) for one in told] == [StaleToken]
    assert two.state(two.looking) == "newer"


def test_who_waited_reads_what_was_written_before_it(two: Two) -> None:
    with two.guard(two.older, 5):
        pass
    read: list[object] = []

    def next_one() -> None:
        with two.guard(two.newer, 7):
            read.append(two.state(two.newer))

    with two.guard(two.older, 5):
        thread = two.meanwhile(next_one)
        two.write(two.older, "just now")
    thread.join(30)
    assert read == ["just now"]


@pytest.mark.parametrize("begun", ["read", "START TRANSACTION WITH CONSISTENT SNAPSHOT"])
def test_a_seal_after_a_read_sees_the_mark_as_it_is_now(two: Two, begun: str) -> None:
    """It ought to come first; but a stale token is refused in any case."""
    if begun != "read" and two.server == "postgresql":
        pytest.skip("not said there")
    with two.guard(two.older, 5):
        pass
    if begun == "read":
        two.state(two.older)
    else:
        say(two.older, begun)
    with two.guard(two.newer, 7):
        two.write(two.newer, "newer")
    with pytest.raises(StaleToken):
        fenced.seal(two.older, (two.name, 5), row=two.row)
    two.older.rollback()
    assert two.state(two.looking) == "newer"
