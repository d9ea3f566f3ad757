"""What was connected in an event loop that is over: each of these mistakes was once ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import Mutant, must_be_clean, must_be_found

NEXT = "test_what_was_connected_in_a_loop_that_is_over_goes_on_in_the_next"
REDIS = f"tests/conformance/test_redis.py::TestRedis::{NEXT}"
POSTGRESQL = f"tests/conformance/test_postgresql.py::TestPostgreSQL::{NEXT}[asyncio]"
STRANDED = (
    "tests/stores/postgresql/test_sessions.py::test_what_was_held_when_its_loop_ended_is_released_without_an_alarm"
)
LOOKED = "test_nothing_stays_open_of_loops_that_only_looked_nor_of_those_that_were_closed_late"
KEEPS = "test_what_is_held_when_its_loop_ends_keeps_others_out_while_the_next_one_works"
AT_ONCE = "test_a_second_loop_at_the_same_time_works_or_is_refused_by_name"
ALARM = "tests/stores/kit/test_alarm.py"
SEVERAL = "tests/drivers/test_several_loops.py"
NOT_CANCELLED = "test_who_waits_in_a_loop_that_is_closed_and_was_not_cancelled_keeps_nobody_out"
CLOSED_LATER = "test_a_coroutine_that_is_closed_after_its_loop_waits_for_nothing"
EVERY_TURN = "test_whoever_has_a_loop_for_every_turn_keeps_nobody_waiting"
# Else the next loop ends it before anybody is misled.
KEPT = ("    ends_with_this_loop(pipe, Pipe.end_with_loop)\n", "")
STILL = "test_who_waits_is_rung_while_a_loop_that_was_used_before_stands_still"
STAYS = "self.loop.create_future()\n        if not self.open:"

MUTANTS = [
    Mutant(
        "what a loop has left in the middle keeps what it had taken",
        "drivers/aio.py",
        (("        self._task()\n        self.bury()\n", "        self._task()\n"),),
        "tests/drivers/test_loops_that_are_over.py::test_what_was_left_in_the_middle_puts_back_what_it_had",
    ),
    Mutant(
        "what goes on though its caller is cancelled keeps what it had taken",
        "drivers/aio.py",
        (("        self._attempts.add(task)\n", ""),),
        "tests/drivers/test_loops_that_are_over.py::test_what_was_left_in_the_middle_puts_back_what_it_had",
    ),
    Mutant(
        "a release that a loop has left undone is left to nobody",
        "engine.py",
        (("        self.leaving.go_on_if_nobody_does()\n", ""),),
        "tests/test_leaving.py::test_a_release_that_a_loop_has_left_undone_goes_on_in_the_next",
    ),
    Mutant(
        "a lease that was dropped after the end of its loop is let go when the next is due",
        "engine.py",
        (
            (
                "            self.renewer.let_go()\n        self.leaving.go_on_if",
                "            pass\n        self.leaving.go_on_if",
            ),
        ),
        "tests/test_leaving.py::test_a_lease_that_was_dropped_after_the_end_of_its_loop_is_released_in_the_next",
    ),
    Mutant(
        "a release that was interrupted and had arrived is told as a loss",
        "leaving.py",
        ((" and not there and not tried:", " and not there:"),),
        "tests/test_unconfirmed.py::test_one_that_a_loop_left_in_the_middle_goes_on_in_the_next_and_is_no_loss",
    ),
    Mutant(
        "what a loop that is over was connected to stays open until it is collected",
        "drivers/loops.py",
        (("        if loop is not None and loop.is_closed():\n", "        if False:\n"),),
        f"tests/conformance/test_postgresql.py::TestPostgreSQL::{EVERY_TURN}[asyncio]",
    ),
    Mutant(
        "what was connected by loops that only looked stays open",
        "drivers/loops.py",
        (("    end_what_loops_have_left()\n    _of_loops", "    _of_loops"),),
        f"tests/conformance/test_redis.py::TestRedis::{LOOKED}[asyncio]",
    ),
    Mutant(
        "one that cannot be ended keeps all others open",
        "drivers/loops.py",
        (("                except OSError:  # no", "                except ZeroDivisionError:  # no"),),
        "tests/drivers/test_loops_that_are_over.py::test_what_cannot_be_ended_now_is_ended_by_the_next",
    ),
    Mutant(
        "what uvloop is about to close is closed by its number, which is another's",
        "drivers/loops.py",
        (("    if isinstance(loop, asyncio.BaseEventLoop):\n", "    if True:\n"),),
        "tests/drivers/test_loops_that_are_over.py::test_what_uvloop_is_about_to_close_is_left_to_it",
    ),
    Mutant(
        "who waits in a loop that was closed, and was not cancelled, stays in line",
        "drivers/aio.py",
        (("        self._end_calls()\n        end_what", "        end_what"),),
        f"tests/conformance/test_etcd.py::TestEtcd::{NOT_CANCELLED}[asyncio]",
    ),
    Mutant(
        "and of one that was closed late",
        "drivers/aio.py",
        (("            self.tidy_up()  # after one", "            pass  # after one"),),
        "tests/drivers/test_loops_that_are_over.py::test_who_waited_in_a_loop_that_was_closed_is_out_of_the_line",
    ),
    Mutant(
        "who only watched in a loop that was closed is waited for",
        "drivers/aio.py",
        (("            self._before += (ref(bell._loop),)  #", "            pass  #"),),
        "tests/drivers/test_loops_that_are_over.py::test_who_watched_in_a_loop_that_was_closed_is_not_waited_for",
    ),
    Mutant(
        "what stands behind another awaitable is not found",
        "drivers/standing.py",
        (("    if type(at).__name__ in _WRAPPERS or", "    if"),),
        "tests/drivers/test_loops_that_are_over.py::test_who_waited_in_a_loop_that_was_closed_is_out_of_the_line",
    ),
    Mutant(
        "who is ended by the collector waits in the name of somebody else",
        "aio.py",
        (("            if type(error) is GeneratorExit and _is_gone(self, error):", "            if False:"),),
        f"tests/conformance/test_postgresql.py::TestPostgreSQL::{CLOSED_LATER}[asyncio]",
    ),
    Mutant(
        "who closes a generator is taken for the collector",
        "aio.py",
        ((" and _came_through_a_coroutine(error)\n", "\n"),),
        f"{SEVERAL}::test_whoever_closes_a_generator_finds_the_lock_free",
    ),
    Mutant(
        "who runs a loop at the end of a generator is taken for the collector",
        "aio.py",
        ((" and _came_through_a_coroutine(error)\n", "\n"),),
        f"{SEVERAL}::test_who_runs_a_loop_in_the_end_of_a_plain_generator_waits_for_the_release",
    ),
    Mutant(
        "a loss is told in the loop of whoever renews",
        "hearing.py",
        ((" and loop.is_running():", " and False:"),),
        f"{SEVERAL}::test_a_loss_is_heard_of_in_the_loop_that_waits_for_it[in_a_body]",
    ),
    Mutant(
        "who waits for a loss is woken by his own loop alone",
        "hearing.py",
        (("            bell.ring()\n", "            bell._heard()\n"),),
        f"{SEVERAL}::test_a_loss_is_heard_of_in_the_loop_that_waits_for_it[for_the_release]",
    ),
    Mutant(
        "a lease is left to a loop that does not run",
        "renewal.py",
        (("due < self._wake_at or self._bell.asleep:  #", "due < self._wake_at or self._bell.gone:  #"),),
        f"{SEVERAL}::test_what_is_relied_on_in_the_next_loop_is_renewed_there[beside_another-stopped]",
    ),
    Mutant(
        "a lease that is entered is left to the loop that is over",
        "aio.py",
        (
            (
                "        self._engine.renewer.go_on()\n        self._enter(With).body = Body([self])",
                "        self._enter(With).body = Body([self])",
            ),
        ),
        f"{SEVERAL}::test_what_is_relied_on_in_the_next_loop_is_renewed_there[in_its_body-closed]",
    ),
    Mutant(
        "a lease whose loss is waited for is left to the loop that is over",
        "aio.py",
        (("            self._lease._engine.renewer.go_on()\n", ""),),
        f"{SEVERAL}::test_what_is_relied_on_in_the_next_loop_is_renewed_there[beside_a_watch-closed]",
    ),
    Mutant(
        "a loop that goes on leaves its leases to another that does not",
        "renewal.py",
        (("self._bell is None or not self._bell.asleep:", "True:"),),
        f"{SEVERAL}::test_a_loop_that_goes_on_after_another_renews_again",
    ),
    Mutant(
        "an attempt that is over is kept for ever",
        "drivers/aio.py",
        (
            (
                "                self._attempts.discard(task)\n        if cancelled",
                "                pass\n        if cancelled",
            ),
        ),
        "tests/drivers/test_loops_that_are_over.py::test_an_attempt_that_is_over_is_forgotten",
    ),
    Mutant(
        "in a forked child the parent's loop is thought to run",
        "drivers/aio.py",
        ((" and self._process == os.getpid()", ""),),
        "tests/conformance/test_redis.py::TestRedis::test_a_child_owns_nothing_and_its_exit_releases_nothing[asyncio]",
    ),
    Mutant(
        "closing is refused while another loop runs",
        "aio.py",
        (("cast(Asyncio, self._engine.driver).tidy_up()", "cast(Asyncio, self._engine.driver).whoami()"),),
        f"tests/conformance/test_redis.py::TestRedis::{AT_ONCE}[asyncio]",
    ),
    Mutant(
        "Redis: what a loop that runs elsewhere is connected to is left to the collector",
        "stores/redis/shared_wire.py",
        (("                    if left is not None:  # in", "                    if False:  # in"),),
        "tests/stores/redis/test_aio.py::test_a_connection_that_another_loop_has_replaced_is_ended_in_its_own",
    ),
    Mutant(
        "MySQL: a session lock that is held ends with its loop",
        "stores/mysql/connection_aio.py",
        (("        if self._watching is None:\n            self.close()", "        self.close()"),),
        f"tests/stores/mysql/test_session.py::{KEEPS}",
    ),
    Mutant(
        "MySQL: errors are looked for under PyMySQL's name, which another copy may have",
        "stores/mysql/connection.py",
        (
            (
                "    from pymysql.err import MySQLError, OperationalError\n",
                "    import pymysql\n\n    MySQLError, OperationalError = pymysql.err.MySQLError, pymysql.err.OperationalError\n",
            ),
        ),
        "tests/contrib/test_django.py::"
        "test_locks_are_in_the_mysql_that_django_reaches_through_pymysql_under_the_name_of_mysqlclient",
    ),
    Mutant(
        "Django: all loops share what one of them was connected to",
        "contrib/django/connections.py",
        (("    alocks = StoresOfLoops(aio.connect)", "    alocks = Stores(aio.connect)"),),
        "tests/contrib/test_django.py::"
        "test_asynchronous_views_have_a_loop_each_under_wsgi_and_wait_for_each_other_all_the_same",
    ),
    Mutant(
        "Django: every loop has a connection made for it, and nobody goes on with those that are left",
        "contrib/django/connections.py",
        (("_left_behind(used) or self._new(*key)", "self._new(*key)"),),
        "tests/contrib/test_django.py::"
        "test_asynchronous_views_have_a_loop_each_under_wsgi_and_wait_for_each_other_all_the_same",
    ),
    Mutant(
        "Django: what was closed is gone on with",
        "contrib/django/connections.py",
        ((" and not taken._engine.closed", ""),),
        "tests/contrib/test_django.py::"
        "test_asynchronous_views_have_a_loop_each_under_wsgi_and_wait_for_each_other_all_the_same",
    ),
    Mutant(
        "MySQL: what a loop that is over was connected to cannot be closed",
        "stores/mysql/connection_aio.py",
        (('            give_up_socket(self.transport.get_extra_info("socket"), self._loop)\n', ""),),
        f"tests/conformance/test_mysql.py::TestMySql::{EVERY_TURN}[asyncio]",
    ),
    Mutant(
        "PostgreSQL: a spare session of a loop that is over stays open",
        "stores/postgresql/session_wire.py",
        (("return session\n                session.close()\n", "return session\n"),),
        f"tests/conformance/test_postgresql_sessions.py::TestPostgreSQLSessions::{EVERY_TURN}[asyncio]",
    ),
    Mutant(
        "MySQL: an ear in a loop that is over is thought to listen",
        "stores/mysql/ear.py",
        (("if self._here is not None and self._here.asleep:", "if False:"),),
        "tests/stores/mysql/test_ear.py",
    ),
    Mutant(
        "Redis: an ear in a loop that stands still is thought to listen",
        "stores/redis/pipe.py",
        (("return self.open and self.loop.is_running()", "return self.open and not self.loop.is_closed()"),),
        f"tests/conformance/test_redis.py::TestRedis::{STILL}[asyncio]",
    ),
    Mutant(
        "PostgreSQL: an ear in a loop that stands still is thought to listen",
        "stores/postgresql/ear.py",
        ((" and not connection.unread", " and not connection.stranded"),),
        f"tests/conformance/test_postgresql.py::TestPostgreSQL::{STILL}[asyncio]",
    ),
    Mutant(
        "MySQL: an ear in a loop that stands still is thought to listen",
        "stores/mysql/ear.py",
        (("if self._here is not None and self._here.asleep:", "if self._here is not None and self._here.gone:"),),
        "tests/stores/mysql/test_ear.py",
    ),
    Mutant(
        "MySQL: an ear whose loop stood still goes on with the connection of another",
        "stores/mysql/ear.py",
        (
            (
                "                if self._here is not home:\n                    return  # our",
                "                if False:\n                    return  # our",
            ),
        ),
        "tests/stores/mysql/test_ear.py",
    ),
    Mutant(
        "MySQL: an ear that connects anew is taken for that of another loop",
        "stores/mysql/ear.py",
        (("= self._here or here, connection", "= here, connection"),),
        "tests/stores/mysql/test_ear.py",
    ),
    Mutant(
        "etcd: an ear in a loop that stands still is thought to listen",
        "stores/etcd/ear.py",
        (("and not self._home.asleep", "and not self._home.gone"),),
        f"tests/conformance/test_etcd.py::TestEtcd::{STILL}[asyncio]",
    ),
    Mutant(
        "Consul: an ear in a loop that stands still is thought to listen",
        "stores/consul/ears.py",
        (("ear is not None and not ear.pulse.asleep", "ear is not None and not ear.pulse.gone"),),
        f"tests/conformance/test_consul.py::TestConsul::{STILL}[asyncio]",
    ),
    Mutant(
        "keep=: what a loop keeps that stands still is lent in another, and renewed by nobody",
        "staying.py",
        (("and not self.bell.asleep", "and not self.bell.gone"),),
        f"tests/conformance/test_sqlite.py::TestSqlite::{STILL}[asyncio]",
    ),
    Mutant(
        "keep=: who reads waits for readers in a loop that stands still",
        "lending.py",
        ((" and not kept.is_others(self._now())\n", "\n"),),
        f"tests/conformance/test_sqlite.py::TestSqlite::{STILL}[asyncio]",
    ),
    Mutant(
        "what is due is left to a loop that stands still",
        "stores/kit/alarm.py",
        (("not bell.asleep", "not bell.gone"), ("self._bell is None or self._bell.asleep or", "self._bell is None or")),
        f"{ALARM}::test_one_whose_event_loop_stands_still_is_replaced_and_goes_home_when_that_goes_on",
    ),
    Mutant(
        "who stood still goes on beside whoever took over",
        "stores/kit/alarm.py",
        (("while not self.closed and self._bell is bell:", "while not self.closed:"),),
        f"{ALARM}::test_one_whose_event_loop_stands_still_is_replaced_and_goes_home_when_that_goes_on",
    ),
    Mutant(
        "a release is left to a loop that stands still",
        "leaving.py",
        (("if not idle.asleep and idle.ring():", "if idle.ring():"),),
        "tests/test_leaving.py::test_a_release_goes_on_though_the_loop_that_is_at_another_stands_still",
    ),
    Mutant(
        "two loops share connections that are one's",
        "aio.py",
        (('    driver.one_loop = _two_loops if engine.store.traits.scope == "network" else None\n', ""),),
        "tests/stores/redis/test_aio.py::test_a_second_loop_at_the_same_time_is_refused_by_name",
    ),
    Mutant(
        "Redis: an ear in a loop that is over is thought to listen",
        "stores/redis/pipe.py",
        (("return self.open and self.loop.is_running()", "return self.open"), KEPT),
        f"{REDIS}[asyncio]",
    ),
    Mutant(
        "Redis: what a loop that is over has left cannot be closed",
        "stores/redis/pipe.py",
        (("        if self.loop.is_closed():  # nobody", "        if False:  # nobody"), KEPT),
        f"tests/conformance/test_redis.py::TestRedis::{EVERY_TURN}[asyncio]",
    ),
    Mutant(
        "Redis: who dials waits in a loop that is over",
        "stores/kit/turns.py",
        (("return self.until >= now and self._bell.ring()", "return self.until >= now"),),
        "tests/stores/redis/test_aio.py::test_who_was_connecting_in_a_loop_that_is_over_keeps_nobody_out",
    ),
    Mutant(
        "PostgreSQL: an ear in a loop that is over is thought to listen",
        "stores/postgresql/ear.py",
        ((" and not connection.unread", ""),),
        POSTGRESQL,
    ),
    Mutant(
        "PostgreSQL: who asks a session of a loop that is over is not answered",
        "stores/postgresql/lane.py",
        (("asyncio.get_running_loop().create_future()\n        if self.is_stale():", STAYS),),
        STRANDED,
    ),
    Mutant(
        "PostgreSQL: a session lock of a loop that is over is hung up on, and then asked for",
        "stores/postgresql/session_wire.py",
        (("return self.connection.stranded", "return False"),),
        STRANDED,
    ),
]


@pytest.mark.timeout(600)
def test_without_a_mistake_nothing_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
