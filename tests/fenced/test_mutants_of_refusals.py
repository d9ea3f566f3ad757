"""What is refused because it could not be guarded, each with the refusal taken out: the test of it notices."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.databases import django, failures, mysql, postgresql, sharing, sqlalchemy, sqlite, wire
from holdfast.fenced import files
from holdfast.fenced.http import asgi, gate, signature, wsgi
from holdfast.fenced.http import request as request_parts
from holdfast.fenced.sql import core, place
from holdfast.lockfree.idempotency import sql as idempotency_sql
from holdfast.sql import core as sql_core

from ..properties import Phase, given, settings
from ..sql import test_transaction_locks as transaction_locks
from . import test_files_locked as locked_files
from . import test_files_of_others as file_tests
from . import test_http as http
from . import test_http_fuzz as fuzz
from . import test_http_parts as parts
from . import test_sql_autocommit as autocommit
from . import test_sql_commit_inside as inside
from . import test_sql_details as details
from . import test_sql_interrupted as interrupted
from . import test_sql_row_columns as columns
from . import test_sql_sessions as sessions
from . import test_sql_shared as shared
from .sql_drivers import DRIVERS

pytestmark = pytest.mark.server
FAILS = (Exception, pytest.fail.Exception)


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


def cancelled(driver: str, request: Any) -> None:
    interrupted.test_a_transaction_cancelled_at_any_point_ends_as_cancelled_and_leaves_nothing_open(
        DRIVERS[driver], request
    )


@settings(max_examples=500, deadline=None, database=None, phases=[Phase.generate])  # any example will do
@given(fuzz.requests(signed=False))
def fuzzed(asked: list[fuzz.Asked]) -> None:
    fuzz.check(fuzz.over_asgi(None), asked, signed=False)


def at_a_service(kind: str, test: Callable[[http.Service], None]) -> None:
    service = http.Service(kind)
    try:
        test(service)
    finally:
        service.close()


MUTANTS: dict[str, tuple[Any, Any, str, str, str, Callable[[Any], None]]] = {
    "seal anywhere": (
        core, core, "seal", "if not await wire.lasts():", "if False:",
        lambda request: autocommit.test_a_seal_that_is_refused_leaves_no_mark(DRIVERS["sqlite3"], request),
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
    "a session of two databases": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "_keep_to_one", "if connection is not ours:", "if False:",
        lambda request: sessions.test_a_session_of_two_databases_changes_only_the_one_with_the_mark(
            request.getfixturevalue("tmp_path"), "binds", "added"
        ),
    ),
    "a second database that was swallowed": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "_commit", "if self._strayed is not None:", "if False:",
        lambda request: sessions.test_a_session_of_two_databases_changes_only_the_one_with_the_mark(
            request.getfixturevalue("tmp_path"), "binds", "swallowed"
        ),
    ),
    "a pipeline is not waited for": (
        postgresql, postgresql.PsycopgWire, "run", "if self._connection.pgconn.pipeline_status:", "if False:",
        lambda request: details.test_a_users_own_pipeline_of_psycopg_is_told_the_truth(
            request.getfixturevalue("postgresql")
        ),
    ),
    "a lost id is permission": (
        place, place.Place, "accepted", "outcome.last_id == self.mark.token", "outcome.last_id in (0, self.mark.token)",
        lambda request: details.test_a_lost_last_insert_id_is_no_permission(),
    ),
    "what is kept is not looked at": (
        place, place.Place, "confirmed", "or found[0] != self.mark.token", "",
        lambda request: columns.test_what_cannot_keep_a_token_lets_no_stale_one_in(
            "pymysql", "fence INT", columns.LENIENT, request
        ),
    ),
    "text is as good as a number": (
        place, place.Place, "confirmed",
        "not _whole(found[0]) or found[0] != self.mark.token", "int(found[0]) != self.mark.token",
        lambda request: columns.test_text_does_not_compare_as_text(request),
    ),
    "a row of the user's own is not looked at": (
        place, place.Place, "accepted", "self.row is None and outcome.last_id == self.mark.token", "True",
        lambda request: columns.test_what_cannot_keep_a_token_lets_no_stale_one_in("pymysql", "fence FLOAT", "", request),
    ),
    "a table without transactions": (
        place, place.Place, "confirmed", "found[2:] == (1, None)", "found[2] == 1",
        lambda request: columns.test_what_cannot_keep_a_token_lets_no_stale_one_in(
            "pymysql", "fence BIGINT) ENGINE = MyISAM -- (", "", request
        ),
    ),
    "two tasks in one transaction": (
        sharing, sharing.Stay, "__init__", "_stays.setdefault(key, mine)", "mine",
        lambda request: shared.test_of_two_tasks_that_enter_at_once_one_is_let_in(
            inside.ALL["aiosqlite autocommit"], request
        ),
    ),
    "who left is still there": (
        sharing, sharing.Stay, "end", "_stays.pop(self._key, None)", "pass",
        lambda request: shared.test_threads_enter_one_at_a_time(),
    ),
    "two succeed one who was forgotten": (
        sharing, sharing, "_succeeded", "with _succeeding:", "if True:",
        lambda request: shared.test_of_two_threads_that_find_one_forgotten_one_is_let_in(request.getfixturevalue("monkeypatch")),
    ),
    "two runs in one transaction": (
        idempotency_sql, idempotency_sql.SqlLedger, "begin", "self._stay = Stay(self._wire.shared())", "pass",
        lambda request: shared.test_the_same_for_work_that_is_done_once(request.getfixturevalue("tmp_path")),
    ),
    "SQLAlchemy goes on by itself on SQLite": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "_keep_inside", "if self.dialect == SQLITE:", "if False:",
        lambda request: inside.test_who_overlooks_that_sqlite_ended_the_transaction_changes_nothing_more(
            inside.ALL["sqlalchemy Session sqlite, begun by an event"], "INSERT INTO ended VALUES ('{name}', 'later')", request
        ),
    ),
    "SQLAlchemy begins anew": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "_keep_inside", "raise self._strayed", "return",
        lambda request: sessions.test_a_commit_inside_is_the_last_one(request.getfixturevalue("tmp_path"), "connection"),
    ),
    "SQLAlchemy begins anew in two phases": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "_keep_inside", 'event.listen(ours, "begin_twophase", begun_anew)', "pass",
        lambda request: sessions.test_nor_is_one_of_two_phases_begun_after_it(request.getfixturevalue("mariadb")),
    ),
    "Django goes on by itself on SQLite": (
        django, django.DjangoWire, "_in_it", "not self._connection.connection.in_transaction", "False",
        lambda request: inside.test_who_overlooks_that_sqlite_ended_the_transaction_changes_nothing_more(
            DRIVERS["django sqlite"], inside.WITH, request
        ),
    ),
    "Django watches those who come later": (
        django, django.DjangoWire, "_leave", "self._unwrap()", "pass",
        lambda request: inside.test_what_is_called_on_commit_is_outside(request.getfixturevalue("sqlite_file")),
    ),
    "Django's block lasts until all was called": (
        django, django.DjangoWire, "shared", "return self", "return self._connection.cursor.__self__",
        lambda request: inside.test_what_is_called_on_commit_is_outside(request.getfixturevalue("sqlite_file")),
    ),
    "SQLAlchemy goes on by itself on MySQL": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "_watch", "or (self.dialect == MYSQL and await self._commits_on())", "",
        lambda request: autocommit.test_a_transaction_that_an_event_began_is_not_enough_on_mysql(
            request.getfixturevalue("mariadb")
        ),
    ),
    "a link is followed": (
        files, files, "_open_plain", "os.O_NOFOLLOW | ", "",
        lambda request: file_tests.test_a_link_in_place_of_the_mark_or_its_lock_is_refused(
            request.getfixturevalue("tmp_path"), ".report.fence"
        ),
    ),
    "a new file may exist": (
        files, files.File, "_replace", "os.unlink(new)", "pass",
        lambda request: file_tests.test_a_link_in_the_way_of_a_write_is_not_followed(request.getfixturevalue("tmp_path")),
    ),
    "anybody's mark": (
        files, files, "_open_own", "about.st_uid not in (os.geteuid(), folder.st_uid)", "False",
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
    "MySQL is not watched": (
        mysql, mysql.MySqlWire, "_commit_watched", "COMMIT_AND_RESUME_MARIADB if self._suspended else", '"COMMIT" if True else',
        lambda request: inside.test_a_transaction_ended_by_a_statement_is_noticed(DRIVERS["pymysql"], "COMMIT", request),
    ),
    "MySQL commits on by itself": (
        mysql, mysql.MySqlWire, "begin", "self._suspended = watched and self.standalone()", "self._suspended = False",
        lambda request: inside.test_a_stale_holder_that_overlooks_a_deadlock_changes_nothing_more(
            request.getfixturevalue("mariadb")
        ),
    ),
    "MySQL's autocommit stays off": (
        mysql, mysql.MySqlWire, "_resume", "if not suspended or", "if True or",
        lambda request: inside.test_a_stale_holder_that_overlooks_a_deadlock_changes_nothing_more(
            request.getfixturevalue("mariadb")
        ),
    ),
    "SQLite commits on by itself": (
        sqlite, sqlite.SqliteWire, "begin", "if watched and (self._always_open or", "if False and (self._always_open or",
        lambda request: inside.test_who_overlooks_that_sqlite_ended_the_transaction_changes_nothing_more(
            DRIVERS["sqlite3"], request
        ),
    ),
    "Django commits on by itself": (
        django, django.DjangoWire, "begin", "if watched and outermost and", "if False and",
        lambda request: inside.test_who_overlooks_that_sqlite_ended_the_transaction_changes_nothing_more(
            DRIVERS["django sqlite"], request
        ),
    ),
    "asyncmy is not watched": (
        mysql, mysql.MySqlWire, "_commit_watched", "await self._say(RELEASE)", "pass",
        lambda request: inside.test_a_transaction_ended_by_a_statement_is_noticed(DRIVERS["asyncmy"], "COMMIT", request),
    ),
    "SQLAlchemy is not watched": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "_commit", "if watched:", "if False:",
        lambda request: inside.test_a_transaction_ended_by_a_statement_is_noticed(
            DRIVERS["sqlalchemy pymysql"], "COMMIT", request
        ),
    ),
    "Django rolls back without a word": (
        django, django.DjangoWire, "end", "error is None and self._is_undone()", "False",
        lambda request: inside.test_what_django_would_roll_back_without_a_word_is_told("django sqlite", "swallow", request),
    ),
    "several rows carry one mark": (
        place, place.Place, "confirmed", "found[2:] == (1, None)", "found[3] is None",
        lambda request: details.test_a_mark_in_a_row_belongs_to_one_row("pymysql", request),
    ),
    "the rollback's trouble is heard": (
        wire, mysql, "undo", "except BaseException as error:", "except ZeroDivisionError as error:",
        lambda request: interrupted.test_what_the_body_raised_is_heard_though_the_connection_is_gone(
            DRIVERS["pymysql"], request
        ),
    ),
    "a beginning that was cancelled": (
        postgresql, postgresql.AsyncpgWire, "_undo", 'transaction._state.name == "FAILED" or', "",
        lambda request: cancelled("asyncpg", request),
    ),
    "outermost for ever": (
        postgresql, postgresql.AsyncpgWire, "_undo", "if transaction._connection._top_xact is transaction:", "if False:",
        lambda request: cancelled("asyncpg", request),
    ),
    "what is queued is forgotten": (
        sqlite, sqlite.SqliteWire, "_roll_back", "self._queued or", "",
        lambda request: interrupted.test_what_was_cancelled_before_aiosqlite_began_it_is_undone_behind_it(request),
    ),
    "a commit that was cancelled": (
        sqlalchemy, sqlalchemy.SqlAlchemyWire, "_commit", "await self._undo()\n            explain_end", "explain_end",
        lambda request: cancelled("sqlalchemy AsyncConnection asyncpg", request),
    ),
    "any number is a database's": (
        failures, failures, "_of_a_database", "return any(", "return True or any(",
        lambda request: transaction_locks.test_who_keeps_colliding_is_told_and_other_errors_come_through(),
    ),
    "a WebSocket passes": (
        asgi, asgi.FencingMiddleware, "_other", 'scope["type"] != "websocket" or not self._required', "True",
        lambda request: http.test_a_websocket_is_refused_where_a_token_is_required(),
    ),
    "any token opens any route, ASGI": (
        request_parts, asgi, "check_resource", "mark.resource != wanted", "False",
        lambda request: http.test_a_token_opens_only_the_route_of_its_resource("asgi"),
    ),
    "any token opens any route, WSGI": (
        request_parts, wsgi, "check_resource", "mark.resource != wanted", "False",
        lambda request: http.test_a_token_opens_only_the_route_of_its_resource("wsgi"),
    ),
    "marks of one process only, ASGI": (
        asgi, asgi.FencingMiddleware, "__call__", "if self._marks is not None and not await", "if False and not await",
        lambda request: http.test_the_marks_of_several_workers_are_one_in_redis("asgi", request.getfixturevalue("redis_url")),
    ),
    "marks of one process only, WSGI": (
        wsgi, wsgi.FencingMiddleware, "__call__", "if self._marks is not None:", "if False:",
        lambda request: http.test_the_marks_of_several_workers_are_one_in_redis("wsgi", request.getfixturevalue("redis_url")),
    ),
    "a question leaves a mark, ASGI": (
        asgi, asgi.FencingMiddleware, "_read", "return mark, safe and self._signer is None", "return mark, False",
        lambda request: at_a_service("asgi", http.test_reading_with_a_token_that_nobody_signed_leaves_no_mark),
    ),
    "a question leaves a mark, WSGI": (
        wsgi, wsgi.FencingMiddleware, "__call__", 'environ["REQUEST_METHOD"] in SAFE', "False",
        lambda request: at_a_service("wsgi", http.test_reading_with_a_token_that_nobody_signed_leaves_no_mark),
    ),
    "a resource that is given twice": (
        request_parts, request_parts, "read_mark", 'if "," in name:', "if False:",
        lambda request: at_a_service("wsgi", lambda service: http.test_a_header_given_twice_is_refused(
            service, [("Fencing-Token", "1"), ("Fencing-Resource", "r"), ("Fencing-Resource", "r")]
        )),
    ),
    "a token that is given twice": (
        request_parts, asgi, "refuse_repeated", "len(set(ours)) < len(ours)", "False",
        lambda request: at_a_service("asgi", lambda service: http.test_a_header_given_twice_is_refused(
            service, [("Fencing-Token", "1"), ("Fencing-Token", "2"), ("Fencing-Resource", "r")]
        )),
    ),
    "an empty signature is none": (
        asgi, asgi.FencingMiddleware, "_read", "None if signature is None else", "signature and",
        lambda request: http.test_an_empty_signature_is_a_bad_one(),
    ),
    "what is no UTF-8 is all the same": (
        signature, signature, "_covers", 'if "\\ufffd" in path or', "if",
        lambda request: parts.test_a_signature_is_for_one_method_and_path(("PUT", "/\ufffd"), ("PUT", "/\ufffd"), False),
    ),
    "an older one is served": (
        gate, gate.Gate, "_may_move", "mark.token < seen", "False",
        lambda request: fuzzed(),
    ),
    "a child keeps the lock of a file": (
        files, files.File, "_locked", "if os.getpid() == process:", "if False:",
        lambda request: locked_files.test_a_child_forked_in_the_middle_does_not_keep_the_file_locked(
            request.getfixturevalue("tmp_path"), request.getfixturevalue("monkeypatch")
        ),
    ),
    "a child unlocks its parent's file": (
        files, files.File, "_locked", "if os.getpid() == process:", "if True:",
        lambda request: locked_files.test_a_forked_child_that_goes_its_way_does_not_unlock_its_parents_file(
            request.getfixturevalue("tmp_path")
        ),
    ),
    "a lock that was removed": (
        files, files.File, "_lock_file", "locked and _is_at(lock, self._lock)", "locked",
        lambda request: locked_files.test_a_lock_that_was_removed_is_nobodys(
            request.getfixturevalue("tmp_path"), request.getfixturevalue("monkeypatch")
        ),
    ),
    "a link in place of the content": (
        files, files.File, "_sealed", "if os.path.islink(self._path):", "if False:",
        lambda request: locked_files.test_a_link_that_took_the_place_of_the_content_is_refused(
            request.getfixturevalue("tmp_path")
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
