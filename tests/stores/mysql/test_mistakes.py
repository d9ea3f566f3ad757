"""The tests can fail: each of these mistakes, made in a copy of the source, is found by the test that is meant to find it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...mutants.spoiling import Mutant, must_be_found

pytestmark = pytest.mark.server


def mistake(what: str, file: str, right: str, wrong: str, killer: str) -> Mutant:
    return Mutant(what, f"stores/mysql/{file}", ((right, wrong),), f"tests/stores/mysql/{killer}")


BOUNDED = "    SET p_retention = LEAST(GREATEST(p_retention, 100000), 2592000000000);\n"
AND_CAPACITY = "    SET p_ttl = LEAST(GREATEST(p_ttl, 1000), 2592000000000);\n    SET p_capacity"

MUTANTS = [
    mistake(
        "a forked child that keeps what is in use",
        "conversation.py",
        "        for connection in list(self._everything):\n",
        "        for connection in (*self._pool.idle(), *self._apart.idle()):\n",
        "test_connections.py::test_a_forked_child_lets_go_of_every_connection_also_of_those_that_are_in_use",
    ),
    mistake(
        "a connection that is asked again though an answer is to come",
        "conversation.py",
        "                    hand.drop()\n            finally:\n",
        "                    pass\n            finally:\n",
        "test_connections.py::test_a_connection_whose_answer_did_not_come_in_time_is_closed",
    ),
    mistake(
        "warnings of the server are printed",
        "connection_aio.py",
        "            await connection.query(statement)\n",
        "            await connection.cursor().execute(statement)\n",
        "test_pool.py::test_creating_the_tables_prints_nothing",
    ),
    mistake(
        "a cancellation that the driver swallowed",
        "connection_aio.py",
        "        dialling.get_loop().call_later(_AGAIN, _end, dialling)\n",
        "        pass\n",
        "test_dialling.py::test_a_cancellation_that_the_driver_swallows_does_not_make_it_wait_for_ever",
    ),
    mistake(
        "an ear that sleeps on in the server",
        "store.py",
        "            self._server.strays.add(asleep)\n",
        "            pass\n",
        "test_strays.py::test_closing_leaves_nothing_asleep_in_the_server",
    ),
    mistake(
        "what was left behind is ended by its number",
        "conversation.py",
        '((number,),) = (await connection.ask(f"SELECT IS_USED_LOCK({lock})", self.left(give_up)))[0]',
        "number = NUMBERS.get(name)",
        "test_strays.py::test_after_ctrl_c_and_a_restart_of_the_server_no_connection_of_others_is_ended",
    ),
    mistake(
        "a dial is thrown away with its caller",
        "conversation.py",
        "await self._driver.shield(partial(self._dial_into, hand, give_up))",
        "await self._dial_into(hand, give_up)",
        "test_pool.py::test_a_dial_goes_on_for_whoever_comes_next_though_its_caller_has_gone",
    ),
    mistake(
        "the place of a dial is given away before it has ended",
        "connection_aio.py",
        "                await asyncio.wait({dialling})  # before its place in the pool is another's\n",
        "",
        "test_dialling.py::test_a_cancellation_that_the_driver_swallows_does_not_make_it_wait_for_ever",
    ),
    mistake(
        "what was left behind runs on",
        "conversation.py",
        "            if number is not None:\n",
        "            if False:\n",
        "test_bounds.py::test_what_was_left_in_the_middle_is_ended_before_anything_else_is_said",
    ),
    mistake(
        "a release is not repeated",
        "conversation.py",
        "if attempt >= _ATTEMPTS or self._driver.now() >= give_up:",
        "if True:",
        "test_bounds.py::test_an_answer_to_a_release_that_was_lost_is_asked_for_again",
    ),
    mistake(
        "a read takes more time than it was given",
        "connection.py",
        "left = self.deadline - boot_time()",
        "left = 6.0 + self.deadline - boot_time()",
        "test_bounds.py::test_a_silent_server_is_unavailable_in_time_though_signals_interrupt",
    ),
    mistake(
        "nobody is woken",
        "ear.py",
        "            bells = list(self._bells.values())\n        for bell in bells:\n            bell.ring()\n\n    def close",
        "            pass\n\n    def close",
        "test_bounds.py::test_waiters_and_watchers_are_woken",
    ),
    mistake(
        "a locked row keeps all others waiting",
        "procedures.sql",
        "FOR UPDATE /*!80000 OF held */ SKIP LOCKED;\n    END IF;\n    SET v_now",
        "FOR UPDATE;\n    END IF;\n    SET v_now",
        "test_renewing.py::test_a_row_that_somebody_does_not_let_go_of_is_unknown_and_the_others_are_kept",
    ),
    mistake(
        "a row that is busy for a moment is in danger",
        "store.py",
        "await self._renew(grants, [number], 1,",
        "await self._renew(grants, [number], 0,",
        "test_renewing.py::test_a_row_that_is_busy_for_a_moment_is_waited_for",
    ),
    mistake(
        "a ping that is late is a loss",
        "session.py",
        "if answer is False:",
        "if answer is not True:",
        "test_renewing.py::test_a_session_whose_connection_is_stuck_is_unknown_then_kept_and_the_others_are_kept",
    ),
    mistake(
        "who has answered waits for who has not",
        "connection.py",
        "                asked.pop(number).end_ping()\n",
        "",
        "test_renewing.py::test_a_session_is_released_though_the_connection_of_another_is_stuck",
    ),
    mistake(
        "nobody looks whose the locks are",
        "session.py",
        "if not ours and self._held.get(holder) is one:",
        "if False:",
        "test_session.py::test_a_connection_that_only_the_server_ended_is_a_loss_told_in_seconds",
    ),
    mistake(
        "a connection's number says who holds",
        "procedures.sql",
        "IF v_again AND @holdfast_key <=> v_key THEN",
        "SELECT mark INTO @holdfast_token FROM holdfast_sessions WHERE name = p_name AND connection = CONNECTION_ID();\n"
        "    IF v_again THEN",
        "test_session.py::test_a_connection_with_the_number_of_an_old_holder_gets_a_token_of_its_own",
    ),
    mistake(
        "the lock is his who has the number",
        "session.py",
        "= IS_USED_LOCK('holdfast:line:{one.connection.name}')\"",
        '= {one.connection._connection.thread_id()}"',
        "test_session.py::test_who_has_the_number_of_a_connection_that_ended_is_somebody_else",
    ),
    mistake(
        "a session waits for itself",
        "session.py",
        "                first=self._end_strays,\n",
        "",
        "test_session.py::test_a_claim_whose_answer_was_lost_is_not_in_its_own_way",
    ),
    mistake(
        "a socket that is watched is closed without a word",
        "connection.py",
        "        plug = self._sock\n        if plug is not None:\n            with",
        "        plug = None\n        if plug is not None:\n            with",
        "test_session.py::test_a_claim_whose_answer_was_lost_is_not_in_its_own_way",
    ),
    mistake(
        "a connection is watched under its own number, which another may have by then",
        "connection.py",
        "self._watched = another_number(number)",
        "self._watched = FileIO(number, closefd=False)",
        "test_connections.py::test_the_end_of_a_connection_is_heard_though_another_has_its_number_by_then",
    ),
    mistake(
        "a child keeps the connection that its parent watches",
        "connection.py",
        "        self._unwatch()\n        void(self)\n",
        "        void(self)\n",
        "test_connections.py::test_a_forked_child_keeps_nothing_of_a_connection_that_is_watched",
    ),
    mistake(
        "a connection that has the lock has the token that it had before",
        "procedures.sql",
        "        AND IS_USED_LOCK(CONCAT('hf=', mark, '=', SUBSTR(CONVERT(lock_key USING ascii), 4, 44))) = connection\n",
        "",
        "test_session.py::test_who_released_it_and_takes_it_again_does_not_hold_it_yet",
    ),
    mistake(
        "a session's token is the clock's",
        "procedures.sql",
        "LAST_INSERT_ID(GREATEST(mark + 1, v_now))",
        "LAST_INSERT_ID(v_now)",
        "test_session.py::test_tokens_of_sessions_that_are_ahead_of_the_clock_are_not_swept_away",
    ),
    mistake(
        "sessions forget tokens that are ahead of the clock",
        "procedures.sql",
        "since < v_now - p_retention AND mark < v_now - p_retention AND",
        "since < v_now - p_retention AND",
        "test_session.py::test_tokens_of_sessions_that_are_ahead_of_the_clock_are_not_swept_away",
    ),
    mistake(
        "tokens that are ahead of the clock are forgotten",
        "procedures.sql",
        "v_seq = 0 AND v_mark + v_retention <= v_now",
        "v_seq = 0",
        "test_faults.py::test_a_name_whose_last_token_is_ahead_of_the_clock_is_not_swept_away",
    ),
    mistake(
        "a head that died is not looked for",
        "procedures.sql",
        "IF v_head IS NOT NULL AND v_used < p_capacity THEN -- it may be dead",
        "IF FALSE THEN -- it may be dead",
        "test_faults.py::test_a_head_that_died_after_it_was_rung_is_found_by_who_comes_next",
    ),
    Mutant(
        "a negative retention is believed",
        "stores/mysql/procedures.sql",
        (
            ("DEFAULT GREATEST(p_retention, 100000);", "DEFAULT p_retention;"),
            (f"{BOUNDED}{AND_CAPACITY}", AND_CAPACITY),
        ),
        "tests/stores/mysql/test_rights.py::test_who_may_only_execute_cannot_wipe_what_is_others",
    ),
    mistake(
        "what the sweep remembers can be claimed",
        "procedures.sql",
        "    IF p_name = '' OR p_holder = '' THEN",
        "    IF p_holder = '' THEN",
        "test_rights.py::test_who_may_only_execute_does_not_get_at_what_the_sweep_remembers",
    ),
    mistake(
        "what failed in a claim keeps the row",
        "procedures.sql",
        "BEGIN ROLLBACK; RESIGNAL; END; -- nothing that failed keeps the row\n",
        "RESIGNAL;\n",
        "test_rights.py::test_what_fails_in_a_procedure_leaves_no_row_locked",
    ),
    mistake(
        "bells that MySQL refuses to look for",
        "procedures.sql",
        "SET p_bell = IF(UNHEX(p_bell) IS NULL, '', p_bell); -- of other bells",
        "SET p_ttl = p_ttl; -- of other bells",
        "../../conformance/test_mysql_itself.py::test_nobody_is_kept_inside_by_a_bell_that_is_none",
    ),
    mistake(
        "in MariaDB one sleeps as in MySQL",
        "ear.py",
        'if "mariadb" not in connection.server.lower() or',
        "if True or",
        "../../conformance/test_mysql.py::TestMySql::test_many_are_rung_at_once_and_nobody_waits_for_another",
    ),
    mistake(
        "who is cut off listens on",
        "procedures.sql",
        "            LEAVE nap;\n",
        "            SET v_sleep = 1;\n",
        "test_strays.py::test_who_is_cut_off_has_no_bell_from_then_on",
    ),
    mistake(
        "the password goes to whoever asks",
        "connections.py",
        "return {} if private else",
        "return {} if True else",
        "test_logins.py::test_a_server_that_asks_for_the_password_in_clear_text_does_not_get_it",
    ),
]
# For the mistake that goes by numbers: what the server calls each connection.
NUMBERS = """
NUMBERS = {}
from . import connection as _connection
_made = _connection.BlockingConnection.__init__


def _noted(self, connection, target):
    _made(self, connection, target)
    NUMBERS[self.name] = connection.thread_id()


_connection.BlockingConnection.__init__ = _noted
"""


@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    if "NUMBERS" in mutant.changes[0][1]:
        with (source / "holdfast" / mutant.file).open("a") as file:
            file.write(NUMBERS)
    must_be_found(mutant, source)
