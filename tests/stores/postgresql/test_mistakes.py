"""The store with one mistake each: the test that is meant to find it does."""

from __future__ import annotations

from typing import Any

import pytest
import uvloop

from holdfast import Unavailable
from holdfast.stores.postgresql import lane, session_wire, store
from holdfast.stores.postgresql.released import Released
from holdfast.stores.postgresql.session import SessionStore
from holdfast.stores.postgresql.statements import Row, SessionStatements, Statement, Statements
from holdfast.stores.postgresql.url import Target
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.postgresql import PostgreSQL

from ..hands import until
from . import test_resets as resets
from . import test_sessions as sessions
from . import test_trouble as trouble
from .stores import OpenStore

pytestmark = pytest.mark.server
FOUND = (AssertionError, Unavailable)


def test_found_a_late_answer_taken_for_a_loss(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_wire, "SILENCE", 0.1)
    monkeypatch.setattr(lane.WatchedLane, "patient", False)
    with pytest.raises(FOUND):
        trouble.test_one_stuck_connection_makes_its_own_session_lock_unknown_and_a_late_answer_keeps_it(
            postgresql, proxy, opened
        )


def test_found_a_release_that_is_not_repeated(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Statements.__init__

    def mistaken(self: Statements, schema: str) -> None:
        original(self, schema)
        self.release = self.release._replace(repeats=False)

    monkeypatch.setattr(Statements, "__init__", mistaken)
    with pytest.raises(FOUND):
        trouble.test_a_release_on_a_connection_that_was_cut_is_repeated_on_another(postgresql, proxy, opened, "lease")


def test_found_a_session_that_is_released_by_hanging_up_only(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = SessionStore._plainly

    async def mistaken(self: SessionStore, statement: Statement, *rest: Any) -> list[Row]:
        return [(b"",)] if statement is self._sql.end else await original(self, statement, *rest)

    monkeypatch.setattr(SessionStore, "_plainly", mistaken)
    with pytest.raises(FOUND):
        trouble.test_a_session_whose_connection_is_stuck_is_released_over_another(postgresql, proxy, opened)


def test_found_a_session_that_waits_for_itself(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionStore, "_doubt", lambda self, claim: None)
    monkeypatch.setattr(trouble, "SOON", 1.0)
    with pytest.raises(FOUND):
        trouble.test_a_session_whose_answer_was_lost_is_not_in_its_own_way(postgresql, opened)


def test_found_a_waiter_that_waits_for_ever(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = SessionStore._is_forgotten

    async def never(self: SessionStore, *rest: Any) -> bool:
        await original(self, *rest)
        return False

    monkeypatch.setattr(SessionStore, "_is_forgotten", never)
    monkeypatch.setattr(sessions, "until", lambda condition, within=2.0: until(condition, 2.0))
    with pytest.raises(AssertionError, match="did not come true"):
        sessions.test_a_waiter_whose_place_ended_without_a_word_joins_again(postgresql, opened, monkeypatch)


def test_found_a_waiter_that_gives_its_place_away(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(SessionStore, "_is_forgotten", always)
    with pytest.raises(FOUND):
        sessions.test_a_waiter_that_is_in_line_keeps_its_place(postgresql, opened, monkeypatch)


def test_found_a_line_of_those_who_have_asked(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = SessionStatements.__init__

    def mistaken(self: SessionStatements, schema: str) -> None:
        original(self, schema)
        sql = self.inspect.sql.replace(b"k.pid IS NOT NULL", b"k.pid IS NOT NULL OR l.place > 0")
        assert sql != self.inspect.sql
        self.inspect = self.inspect._replace(name=b"mistaken", sql=sql)
        self.preparing += self.inspect.preparing()

    monkeypatch.setattr(SessionStatements, "__init__", mistaken)
    monkeypatch.setattr(sessions, "until", lambda condition: until(condition, 2.0))
    with pytest.raises(FOUND):
        sessions.test_the_line_that_is_shown_is_the_servers_own(postgresql, proxy, opened)


def test_found_a_wait_for_a_row_that_outlasts_whoever_asked(
    postgresql: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.PostgresStore, "_patience", lambda self, within: 0)
    monkeypatch.setattr(trouble, "until", lambda condition: until(condition, 2.0))
    with pytest.raises(FOUND):
        trouble.test_what_was_given_up_is_not_done_later(postgresql, opened)


def test_found_a_release_that_is_not_said_again_after_a_crash(
    forgetful: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Released, "add", lambda self, name, holder: None)
    with pytest.raises(FOUND):
        trouble.test_a_release_that_a_crash_of_the_server_forgets_is_said_again(forgetful, opened)


def test_found_a_forgotten_release_that_is_said_once(
    forgetful: PostgreSQL, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Released, "owed", False)
    monkeypatch.setattr(trouble, "until", lambda condition: until(condition, 2.0))
    with pytest.raises(FOUND):
        trouble.test_a_forgotten_release_whose_row_is_locked_is_said_before_the_next_question(forgetful, opened)


def test_found_silence_that_is_no_loss(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trouble, "SILENT", 8.0)
    monkeypatch.setattr(session_wire, "SILENCE", 1000.0)
    with pytest.raises(FOUND):
        trouble.test_a_session_that_falls_silent_is_a_loss_long_before_its_ttl(postgresql, proxy, opened)


def test_found_a_silent_host_that_uses_up_the_time_of_all(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Target, "of_each_host", lambda self: [self])
    with pytest.raises(FOUND):
        trouble.test_of_several_hosts_a_silent_one_takes_no_more_than_its_share(postgresql, proxy, opened, "lease")


def test_found_a_watch_that_cannot_be_woken_before_it_listens(
    postgresql: PostgreSQL, proxy: Proxy, opened: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store.PostgresStore, "wake_waiters", lambda self: self._wire.ear.wake_waiters())
    monkeypatch.setattr(trouble, "SOON", 3.0)
    with pytest.raises((*FOUND, TimeoutError)):
        trouble.test_a_watch_that_is_only_about_to_listen_is_woken(postgresql, proxy, opened)


def test_found_a_reset_that_is_looked_for_once(
    postgresql: PostgreSQL, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane.Lane, "_something_came", lambda self: self._readable())
    monkeypatch.setattr(lane, "MOMENT", 1000.0)  # else its silence would be noticed soon
    with pytest.raises(FOUND):
        resets.test_who_waits_for_an_answer_asks_again_at_once(postgresql, proxy, uvloop.new_event_loop)
