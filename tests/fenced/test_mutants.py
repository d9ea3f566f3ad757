"""The SQL and the Lua that ship, each spoilt in one way: the suite for guards notices every one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.errors import HoldfastError
from holdfast.fenced import redis as guarded_redis
from holdfast.fenced.sql import core, place
from holdfast.testing import guards

from . import test_sql_details, test_sql_row_columns, test_sql_waiting
from .sql_drivers import DRIVERS
from .sql_under_test import SqlUnderTest
from .test_redis import RedisUnderTest

SPOILT_SQL = [
    # (dialect, what, instead, the check that notices)
    ("sqlite", "token <= excluded.token", "token < excluded.token", guards.an_equal_token_is_the_same_holder),
    ("sqlite", "token <= excluded.token", "token = excluded.token", guards.a_higher_token_is_always_accepted),
    ("sqlite", "WHERE holdfast_fences.token <= excluded.token", "", guards.a_lower_token_is_refused_to_write),
    ("sqlite", "    token = excluded.token,\n", "", guards.reading_records_the_token),
    ("sqlite", ":token,", "CAST(:token AS TEXT) || '',", guards.a_higher_token_is_always_accepted),
    ("mysql", "GREATEST(token, :token)", ":token", guards.a_lower_token_is_refused_to_write),
    ("mysql", "GREATEST(token, :token)", "token", guards.reading_records_the_token),
    ("mysql", "UNHEX(:resource_hex)", "LOWER(CONVERT(UNHEX(:resource_hex) USING utf8mb4))", guards.any_name_is_data),
    (
        "postgresql",
        "fence.token <= excluded.token",
        "fence.token <> excluded.token",
        guards.a_lower_token_is_refused_to_write,
    ),
    (
        "postgresql",
        "fence.token <= excluded.token",
        "fence.token < excluded.token",
        guards.an_equal_token_is_the_same_holder,
    ),
]
DRIVER = {"sqlite": "sqlite3", "mysql": "pymysql", "postgresql": "psycopg"}


@pytest.mark.parametrize(
    ("dialect", "what", "instead", "check"),
    [pytest.param(*one, marks=[] if one[0] == "sqlite" else [pytest.mark.server]) for one in SPOILT_SQL],
)
def test_spoilt_sql_is_noticed(
    dialect: str, what: str, instead: str, check: guards.Check, request: pytest.FixtureRequest, monkeypatch: Any
) -> None:
    driver = DRIVERS[DRIVER[dialect]]
    good = place.texts(dialect)
    assert what in good["seal"]
    spoilt = {**good, "seal": good["seal"].replace(what, instead)}
    if dialect == "sqlite" and "AS TEXT" in instead:  # a column without a type keeps the text
        spoilt["create"] = good["create"].replace("token INTEGER", "token")
    url = request.getfixturevalue(driver.server)
    if "AS TEXT" in instead:
        url += "-as-text"
    for module in (place, core):
        monkeypatch.setattr(module, "texts", lambda _: spoilt)
    guard: SqlUnderTest[Any] = SqlUnderTest(driver, url)
    try:
        with pytest.raises((AssertionError, HoldfastError)):
            check(guard)
    finally:
        guard.close()


@pytest.mark.server
@pytest.mark.parametrize("driver", ["sqlite3", "psycopg"])
def test_a_row_that_is_not_asked_whether_it_is_the_only_one_is_noticed(
    driver: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = place.texts("sqlite" if driver == "sqlite3" else "postgresql")
    what = "AND (SELECT COUNT(*) FROM {table} WHERE {key}) = 1"
    assert what in good["seal_row"]
    monkeypatch.setattr(place, "texts", lambda _: {**good, "seal_row": good["seal_row"].replace(what, "")})
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_sql_details.test_a_mark_in_a_row_belongs_to_one_row(driver, request)


def test_a_column_that_is_not_asked_what_it_keeps_is_noticed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, what = place.texts("sqlite"), "typeof({column}) = 'integer' AND "
    assert what in good["seal_row"]
    monkeypatch.setattr(place, "texts", lambda _: {**good, "seal_row": good["seal_row"].replace(what, "")})
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_sql_row_columns.test_what_cannot_keep_a_token_lets_no_stale_one_in("sqlite3", "fence TEXT", "", request)


@pytest.mark.server
@pytest.mark.parametrize("name", ["look", "look_row"])
def test_a_mark_that_is_looked_at_as_it_was_is_noticed(
    name: str, mariadb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = place.texts("mysql")
    assert good[name].endswith(" FOR UPDATE")
    two = test_sql_waiting.Two("pymysql", "mariadb", name == "look_row", mariadb)
    monkeypatch.setattr(place, "texts", lambda _: {**good, name: good[name].removesuffix(" FOR UPDATE")})
    try:
        with pytest.raises(pytest.fail.Exception):
            test_sql_waiting.test_a_seal_after_a_read_sees_the_mark_as_it_is_now(two, "read")
    finally:
        two.close()


@pytest.mark.server
def test_a_seal_that_reads_beside_the_row_is_noticed_on_mysql(mysql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fix what is seen before the row was waited for."""
    good = place.texts("mysql")
    beside = (
        " AND NOT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = :name "
        "AND engine <> 'InnoDB')"
    )
    two = test_sql_waiting.Two("pymysql", "mysql", True, mysql)
    monkeypatch.setattr(place, "texts", lambda _: {**good, "seal_row": good["seal_row"] + beside})
    try:
        with pytest.raises(AssertionError):
            test_sql_waiting.test_who_waited_reads_what_was_written_before_it(two)
    finally:
        two.close()


@pytest.mark.server
def test_a_mark_that_is_not_looked_at_as_it_was_kept_is_noticed(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = place.texts("postgresql")
    assert " WHERE kept = :token" in good["seal_row"]
    spoilt = {**good, "seal_row": good["seal_row"].replace(" WHERE kept = :token", "")}
    monkeypatch.setattr(place, "texts", lambda _: spoilt)
    with pytest.raises(pytest.fail.Exception):
        test_sql_row_columns.test_a_trigger_that_puts_the_mark_back_lets_nobody_in("psycopg", request)


@pytest.mark.server
@pytest.mark.parametrize("kind", test_sql_row_columns.REWRITTEN)
def test_a_row_that_postgresql_rewrites_is_noticed(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = place.texts("postgresql")
    assert "ev_type IN ('1', '2')" in good["seal_row"]
    spoilt = {**good, "seal_row": good["seal_row"].replace("ev_type IN ('1', '2')", "FALSE")}
    monkeypatch.setattr(place, "texts", lambda _: spoilt)
    with pytest.raises(pytest.fail.Exception):
        test_sql_row_columns.test_what_postgresql_rewrites_lets_nobody_in("psycopg", kind, request)


SPOILT_LUA = [
    (
        "#token < #seen or (#token == #seen and token < seen)",
        "tonumber(token) < tonumber(seen)",
        "the_highest_tokens_are_kept_whole",
    ),
    ("#token < #seen or (#token == #seen and token < seen)", "token < seen", "a_higher_token_is_always_accepted"),
    ("#token < #seen or (#token == #seen and token < seen)", "token ~= seen", "a_higher_token_is_always_accepted"),
    ("#token < #seen or (#token == #seen and token < seen)", "false", "a_lower_token_is_refused_to_write"),
    ("redis.call('SET', KEYS[1]", "redis.call('SETNX', KEYS[1]", "reading_records_the_token"),
]


@pytest.fixture
def fresh_scripts() -> Iterator[None]:
    """Scripts are kept for the life of the process; here each test has its own."""
    caches = (guarded_redis._lua, guarded_redis._command, guarded_redis._script)
    for kept in caches:
        kept.cache_clear()
    yield
    for kept in caches:
        kept.cache_clear()


@pytest.mark.server
@pytest.mark.usefixtures("fresh_scripts")
@pytest.mark.parametrize(("what", "instead", "name"), SPOILT_LUA)
def test_spoilt_lua_is_noticed(what: str, instead: str, name: str, redis_url: str, monkeypatch: Any) -> None:
    seal, command = guarded_redis._lua("seal"), guarded_redis._lua("command")
    assert what in seal
    spoilt = {"seal": seal.replace(what, instead), "command": command}
    monkeypatch.setattr(guarded_redis, "_lua", spoilt.__getitem__)
    guard = RedisUnderTest(redis_url)
    try:
        with pytest.raises((AssertionError, HoldfastError)):
            getattr(guards, name)(guard)
    finally:
        guard.close()
