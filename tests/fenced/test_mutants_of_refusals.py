"""What is refused because it could not be guarded, each with the refusal taken out: the test of it notices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.databases import django, postgresql, sqlalchemy, sqlite
from holdfast.errors import HoldfastError
from holdfast.fenced import files
from holdfast.fenced.http import gate, signature
from holdfast.fenced.sql import core, place
from holdfast.sql import core as sql_core

from . import test_files_of_others as file_tests
from . import test_http_parts as parts
from . import test_sql_autocommit as autocommit
from . import test_sql_commit_inside as inside
from . import test_sql_details as details
from .sql_drivers import DRIVERS

pytestmark = pytest.mark.server
FAILS = (AssertionError, pytest.fail.Exception, HoldfastError)


def spoil(monkeypatch: pytest.MonkeyPatch, module: Any, owner: Any, name: str, what: str, instead: str) -> None:
    """The function again, from its own text with one thing changed."""
    raw = inspect.getattr_static(owner, name)
    text = inspect.getsource(raw)
    assert what in text, f"{what!r} is not in {name} any more"
    lines = text.replace(what, instead).splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    made: dict[str, Any] = {}
    exec("\n".join(line[indent:] for line in lines), vars(module), made)  # noqa: S102  # our own source
    monkeypatch.setattr(owner, name, made[name])


MUTANTS: dict[str, tuple[Any, Any, str, str, str, Callable[[Any], None]]] = {
    "seal anywhere": (
        core, core, "seal", "if not await wire.lasts():", "if False:",
        lambda request: autocommit.test_a_seal_outside_of_a_transaction_is_refused(DRIVERS["sqlite3"], request),
    ),
    "seal believes SQLAlchemy": (
        core, core, "seal", "if not await wire.opened():", "if False:",
        lambda request: autocommit.test_a_seal_outside_of_a_transaction_is_refused(
            autocommit.SPELLINGS["the driver's own option, psycopg"], request
        ),
    ),
    "a transaction believes SQLAlchemy": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "begin", "if first and not await self.opened():", "if False:",
        lambda request: autocommit.test_a_transaction_that_would_be_none_is_refused(
            autocommit.SPELLINGS["the driver's own option, pysqlite"], request
        ),
    ),
    "a lock believes SQLAlchemy": (
        sql_core, sql_core, "_lock_postgresql", "if number == 0 and not await wire.opened():", "if False:",
        lambda request: autocommit.test_a_lock_of_a_transaction_that_is_none_is_refused(
            autocommit.SPELLINGS["the driver's own option, psycopg"], 0, request
        ),
    ),
    "SQLite is not watched": (
        sqlite, sqlite.SqliteWire, "begin", "self._watched = True", "pass",
        lambda request: inside.test_a_transaction_ended_by_a_statement_is_noticed(DRIVERS["sqlite3"], "COMMIT", request),
    ),
    "psycopg is not watched": (
        postgresql, postgresql.PsycopgWire, "_commit_watched", "{RELEASE}; COMMIT", "COMMIT",
        lambda request: inside.test_a_transaction_ended_by_a_statement_is_noticed(DRIVERS["psycopg"], "COMMIT", request),
    ),
    "asyncpg is not watched": (
        postgresql, postgresql._Together, "execute", "{RELEASE}; {query}", "{query}",
        lambda request: inside.test_a_transaction_ended_by_a_statement_is_noticed(DRIVERS["asyncpg"], "COMMIT", request),
    ),
    "Django is not watched": (
        django, django.DjangoWire, "end", "error is None and watched and", "False and",
        lambda request: inside.test_a_transaction_ended_by_a_statement_is_noticed(DRIVERS["django mysql"], "COMMIT", request),
    ),
    "Django with autocommit off": (
        django, django.DjangoWire, "busy", "return not self._connection.get_autocommit() and", "return False and",
        lambda request: details.test_django_with_autocommit_off_is_refused("postgresql", request),
    ),
    "a session joins": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "busy", "bool(bind.in_transaction())", "False",
        lambda request: details.test_a_session_on_a_connection_that_is_in_a_transaction_is_refused(
            request.getfixturevalue("postgresql")
        ),
    ),
    "a pipeline is not waited for": (
        postgresql, postgresql.PsycopgWire, "run", "if self._connection.pgconn.pipeline_status:", "if False:",
        lambda request: details.test_a_users_own_pipeline_of_psycopg_is_told_the_truth(
            request.getfixturevalue("postgresql")
        ),
    ),
    "a lost id is permission": (
        place, place.Place, "accepted", "0 < outcome.last_id", "0 <= outcome.last_id",
        lambda request: details.test_a_lost_last_insert_id_is_no_permission(),
    ),
    "a link is followed": (
        files, files.File, "_open", "os.O_NOFOLLOW | ", "",
        lambda request: file_tests.test_a_link_in_place_of_the_mark_or_its_lock_is_refused(
            request.getfixturevalue("tmp_path"), ".report.fence-lock"
        ),
    ),
    "a new file may exist": (
        files, files.File, "_replace", "os.unlink(new)", "pass",
        lambda request: file_tests.test_a_link_in_the_way_of_a_write_is_not_followed(request.getfixturevalue("tmp_path")),
    ),
    "anybody's mark": (
        files, files.File, "_open", "about.st_uid not in (os.geteuid(), os.stat(self._folder).st_uid)", "False",
        lambda request: file_tests.test_a_mark_or_a_lock_of_another_user_is_refused(
            request.getfixturevalue("tmp_path"), ".report.fence"
        ),
    ),
    "any number of marks": (
        gate, gate.Gate, "_new", "if len(self._resources) < self._most:", "if True:",
        lambda request: parts.test_marks_are_bounded_and_old_ones_make_room(),
    ),
    "ahead of the clock": (
        gate, gate.Gate, "_may_move", "if not vouched and", "if False and",
        lambda request: parts.test_a_token_that_nobody_signed_is_not_ahead_of_the_clock(),
    ),
    "a signature for any path": (
        signature, signature, "_covers", "return asked == paths", "return True",
        lambda request: parts.test_a_signature_is_for_one_method_and_path(
            ("PUT", "/invoices/42"), ("PUT", "/admin"), False
        ),
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_refusal_that_is_taken_out_is_noticed(
    mutant: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, owner, name, what, instead, test = MUTANTS[mutant]
    spoil(monkeypatch, module, owner, name, what, instead)
    with pytest.raises(FAILS):
        test(request)
