"""A journal out of a backup: positions of another server, or of a later time, are told, and never stepped over."""

from __future__ import annotations

import shutil
import sqlite3
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from holdfast import Misuse
from holdfast.lockfree import journal


def of_postgresql(url: str) -> Any:
    """In a schema of its own."""
    import psycopg

    connection = psycopg.connect(url, autocommit=True)
    schema = f"restored_{time.time_ns()}"
    connection.execute(f"CREATE SCHEMA {schema}")
    connection.execute(f"SET search_path = {schema}")
    return connection


def first(count: int, events: journal.Journal) -> list[journal.Event]:
    """Others at work on the server may keep them back for a moment."""
    return list(islice(events.subscribe(timeout=20), count))


@pytest.mark.server
def test_events_of_another_server_are_not_stepped_over(postgresql: str) -> None:
    with of_postgresql(postgresql) as connection:
        events = journal.Journal(connection)
        events.create_table()
        events.append("s", 1, 2, expected=0)
        (_, last) = first(2, events)
        # As pg_restore puts them into a server that has made fewer transactions by now:
        connection.execute("UPDATE holdfast_journal SET xact = xact + 1000000000")
        with pytest.raises(Misuse, match="restored"):
            list(events.subscribe(timeout=0.01))
        with pytest.raises(Misuse, match="restored"):
            list(journal.Journal(connection).subscribe(last.position, timeout=0.01))
        connection.execute("UPDATE holdfast_journal SET xact = 0")
        assert [event.data for event in first(2, events)] == [1, 2]
        with pytest.raises(Misuse, match="restored"):
            list(journal.Journal(connection).subscribe("4000000000:1", timeout=0.01))
        assert events.append("s", 3, expected=2) == 3
        assert [event.data for event in first(3, events)] == [1, 2, 3]


def test_an_older_copy_of_a_file_gives_no_position_twice_unheard(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "journal.db", isolation_level=None) as connection:
        events = journal.Journal(connection)
        events.create_table()
        events.append("s", 1, expected=0)
        shutil.copy(tmp_path / "journal.db", tmp_path / "copy.db")
        events.append("s", 2, 3, expected=1)
        (*_, last) = events.subscribe(timeout=0.01)
        assert list(events.subscribe(last.position, timeout=0.01)) == []
    with sqlite3.connect(tmp_path / "copy.db", isolation_level=None) as connection:
        events = journal.Journal(connection)
        assert events.append("s", "another 2", expected=1) == 2
        with pytest.raises(Misuse, match="restored"):
            list(events.subscribe(last.position, timeout=0.01))
        assert [event.data for event in events.subscribe(timeout=0.01)] == [1, "another 2"]
