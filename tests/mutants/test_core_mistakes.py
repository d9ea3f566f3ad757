"""What the core was found to get wrong when it was attacked: scopes, ends, forks and bounds. Each is found again."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import SUITE, Mutant, must_be_clean, must_be_found

REFUSED_LOGIN = "test_a_store_that_refuses_the_login_is_not_asked_again_and_keeps_nobody_waiting"
LOOKED_FOR = "test_what_has_left_is_not_told_as_a_failed_release_since_nobody_answers_when_it_is_looked_for_again"
SCOPE, ENGINE, LEAVING = "tests/test_scope.py::", "tests/test_engine.py::", "tests/test_leaving.py::"
THERE = "tests/stores/test_nobody_there.py::"
INTERRUPTED, STARTING = "tests/test_interrupted.py::", "tests/drivers/test_starting.py::"
LIFECYCLE, RENEWAL = "tests/test_lifecycle.py::", "tests/test_renewal.py::"
ANY_LINE = SCOPE + "test_interrupted_at_any_line_a_lock_is_given_back_though_somebody_still_has_the_lease"

REMEMBERED = "tests/test_recipes.py::test_what_is_wrong_is_refused_also_when_something_equal_was_right_a_moment_ago"

MUTANTS = [
    Mutant(
        "children that Python was not told of ask with their parent's nonces",
        "engine.py",
        (
            (
                "        if os.getpid() != self._process:\n            self._is_forked()\n"
                "        if self.closed:\n            raise self._closed",
                "        if self.closed:\n            raise self._closed",
            ),
        ),
        "tests/test_lifecycle.py::test_children_forked_in_silence_do_not_ask_as_one",
    ),
    Mutant(
        "children that Python was not told of release what is their parent's",
        "engine.py",
        (
            (
                "        if os.getpid() != self._process:\n            self._is_forked()\n        claim = lease._grant.claim",
                "        claim = lease._grant.claim",
            ),
        ),
        "tests/test_lifecycle.py::test_a_child_forked_in_silence_releases_nothing_of_its_parent",
    ),
    Mutant(
        "the key of a decorator is remembered, and all that it belongs to",
        "recipes.py",
        (
            ("    if key is not None:\n        # Not", "    if False:\n        # Not"),
            ("_known_ask(name, ttl, fair, reentrant, renew)", "_known_ask(name, ttl, fair, reentrant, renew, key)"),
        ),
        "tests/test_recipes.py::test_what_the_key_of_a_decorator_belongs_to_is_let_go_and_its_lease_with_it",
    ),
    Mutant(
        "True is a number of seconds, since it is 1",
        "recipes.py",
        (("lru_cache(1024, typed=True)", "lru_cache(1024)"),),
        f"{REMEMBERED}[wrong0]",
    ),
    Mutant(
        "a name that is a list is told in the words of a dict",
        "recipes.py",
        (("    except TypeError:  # a list, say,", "    except ZeroDivisionError:  # a list, say,"),),
        f"{REMEMBERED}[wrong4]",
    ),
    Mutant(
        "a log that fails keeps a loss from being told",
        "events.py",
        (("    except Exception as unlogged:\n", "    except () as unlogged:\n"),),
        "tests/test_events.py::test_a_log_that_fails_takes_no_lock_away_and_hides_no_loss",
    ),
    Mutant(
        "a renewer that sleeps in a loop that was closed",
        "renewal.py",
        (("if due < self._wake_at or self._bell.asleep:", "if due < self._wake_at:"),),
        "tests/test_renewal.py::test_a_loop_that_was_closed_does_not_take_renewal_with_it",
    ),
    Mutant(
        "what is interrupted while a lease is dropped is not done",
        "lease.py",
        (
            (
                "            if self._is_owed():\n                self._let_go(told=self.held)\n            elif",
                "            if",
            ),
        ),
        "tests/test_dropped.py::test_a_signal_handler_that_raises_while_a_lease_is_dropped_keeps_no_lock",
    ),
    Mutant(
        "whoever waits for a loss, and is interrupted, leaves a mutex locked that the renewer needs",
        "sync.py",
        (("        self._event = Flag()\n", "        self._event = __import__('threading').Event()\n"),),
        INTERRUPTED + "test_whoever_waits_for_a_loss_stops_nobody_who_tells_of_it",
    ),
    Mutant(
        "a condition is entered, and a signal handler that raises there leaves it locked for ever",
        "stores/zookeeper/sessions.py",
        (("        with self._mutex:  # under one lock", "        with self._condition:  # under one lock"),),
        "tests/drivers/test_mutexes.py::test_nobody_enters_a_condition",
    ),
    Mutant(
        "SQLite: a connection that can be used before it can be closed",
        "stores/sqlite/database.py",
        (
            (
                "        self._identity, self._closing = (status.st_dev, status.st_ino), closing\n",
                "        self._identity = (status.st_dev, status.st_ino)\n",
            ),
            (
                "        self._connection, self._cursor = connection, cursor\n",
                "        self._connection, self._cursor = connection, cursor\n        len('')\n        self._closing = closing\n",
            ),
        ),
        INTERRUPTED + "test_an_sqlite_file_that_is_being_opened",
    ),
    Mutant(
        "a claim that was not answered is made again, although the connection was closed meanwhile",
        "engine.py",
        (
            (
                "                if self.closed:  # meanwhile: what would be granted now",
                "                if False:  # meanwhile: what",
            ),
        ),
        "tests/test_engine.py::test_a_claim_that_was_not_answered_is_not_made_again_once_the_connection_is_closed",
    ),
    Mutant(
        "what a thread was to do, whose start was interrupted, is kept by its own traceback",
        "drivers/starting.py",
        (("            del cause\n            raise\n", "            raise\n        raise cause\n"),),
        STARTING + "test_what_was_to_be_done_is_forgotten_at_once_when_the_start_was_interrupted",
    ),
    Mutant(
        "a lease that was dropped, and whose bell was not rung since somebody interrupted that",
        "lease.py",
        (("                self._engine.renewer.ring()\n", "                pass\n"),),
        INTERRUPTED + "test_a_lease_that_is_dropped",
    ),
    Mutant(
        "a renewer whose start was interrupted, and that all believe to run",
        "renewal.py",
        (
            (
                "            bell = self._driver.bell()\n            self._bell, self._wake_at = bell, due",
                "            self._wake_at = due\n            self._bell = bell = self._driver.bell()",
            ),
        ),
        INTERRUPTED + "test_the_first_acquire_which_starts_the_renewer",
    ),
    Mutant(
        "a renewer whose start was interrupted, and that runs beside the next one",
        "renewal.py",
        (("                    if self._bell is not bell:\n", "                    if False:\n"),),
        INTERRUPTED + "test_the_first_acquire_which_starts_the_renewer",
    ),
    Mutant(
        "a claim that is forgotten by whoever is interrupted while taking it back",
        "engine.py",
        (("                if not self.leaving.owes(claim):\n", "                if False:\n"),),
        INTERRUPTED + "test_an_acquire_that_fails",
    ),
    Mutant(
        "a worker whose start was interrupted, and that is counted as one",
        "leaving.py",
        (("            self._workers.discard(worker)  # interrupted, say", "            pass  # interrupted, say"),),
        INTERRUPTED + "test_what_is_released_in_the_background_is_not_left_to_somebody_who_was_never_started",
    ),
    Mutant(
        "who was rung, and not answered, waits for another bell",
        "waiting.py",
        (("            answer = None  # if this is not answered, ask again:", "            #"),),
        SUITE + "test_a_waiter_who_is_rung_and_not_answered_asks_again_and_does_not_wait_for_another_bell[threads-1]",
    ),
    # ---- scopes
    Mutant(
        "a scope that is dropped without a word",
        "scope.py",
        (("            self.inside._abandon(self.depth)\n", "            pass\n"),),
        ANY_LINE + "[plain]",
    ),
    Mutant(
        "a lease that is looked for by thread",
        "scope.py",
        (("        of._scopes.looked_up[id(sys._getframe(1))] = ref(scope)\n", "        str(scope)\n"),),
        SCOPE + "test_generators_that_share_a_lock_each_leave_with_their_own_lease",
    ),
    Mutant(
        "an inner scope that ends what the outer one holds",
        "lease.py",
        (("        if self._state is not HELD or self._entries < depth:\n", "        if self._state is not HELD:\n"),),
        SCOPE + "test_an_inner_scope_that_was_left_and_then_interrupted_ends_nothing_of_the_outer_one",
    ),
    Mutant(
        "several locks of which one is forgotten by an interruption",
        "recipes.py",
        (("            lease._abandon(1)  # if", "            pass  # if"), ("del interruption  #", "pass  #")),
        ANY_LINE + "[several]",
    ),
    Mutant(
        "an interrupted release that is found again on re-entry",
        "engine.py",
        (
            (
                "                self.renewer.remove(lease)\n                if lease._key is not None:\n"
                "                    self.mine.forget(lease)\n            if at_once:",
                "                self.renewer.remove(lease)\n            if at_once:",
            ),
        ),
        SCOPE + "test_a_lock_may_be_entered_anew_after_its_release_was_interrupted_at_any_line",
    ),
    # ---- oneself
    Mutant(
        "a holder that waits for itself",
        "engine.py",
        (
            (
                "                    self.mine.not_for_itself(claim, self.renewer.leases())\n",
                "                    pass\n",
            ),
        ),
        ENGINE + "test_a_call_of_oneself_under_a_lock_that_is_not_reentrant_is_told_and_not_waited_for",
    ),
    Mutant(
        "a neighbour that is taken for oneself",
        "mine.py",
        ((" and lease._by() is me:", ":"),),
        SUITE + "test_one_who_holds_a_lock_and_would_wait_for_it_for_ever_is_told_so[threads]",
    ),
    # ---- ends
    Mutant(
        "a subscriber that closes and waits for itself",
        "engine.py",
        (("any(self._telling.get(holder) is not me for holder in list(self._under_way))", "bool(self._under_way)"),),
        ENGINE + "test_a_subscriber_may_close_the_connection_and_does_not_wait_for_itself",
    ),
    Mutant(
        "a release of nothing that waits for a mutex",
        "engine.py",
        (("        if lease._state is RELEASED and lease._key is None:\n", "        if False:\n"),),
        ENGINE + "test_what_was_released_is_released_again_without_a_mutex",
    ),
    Mutant(
        "ZooKeeper: two mind the sessions, since the start of one was interrupted",
        "stores/zookeeper/sessions.py",
        (("if self._housekeeper is not threading.current_thread():", "if False:"),),
        STARTING + "test_sessions_of_zookeeper_have_one_who_minds_them",
    ),
    Mutant(
        "one more in the crew, since its start was interrupted",
        "lockfree/mailbox/crew.py",
        (("if me not in self._threads:", "if False:"),),
        STARTING + "test_a_crew_has_as_many_as_it_should",
    ),
    Mutant(
        "two tell the dashboard, since the start of one was interrupted",
        "observe/dashboard.py",
        (("if self._thread is not threading.current_thread():", "if False:"),),
        STARTING + "test_events_are_told_to_the_dashboard_by_one",
    ),
    Mutant(
        "the last words of a store come to the time for closing",
        "engine.py",
        (("self.store.close(min(LAST_WORDS, max(deadline - self.driver.now(), 0.0)))", "self.store.close()"),),
        LEAVING + "test_the_last_words_of_a_store_are_a_part_of_closing",
    ),
    Mutant(
        "no time is left for the last words of a store",
        "engine.py",
        (("deadline - min(LAST_WORDS, timeout / 5)", "deadline"),),
        LEAVING + "test_the_last_words_of_a_store_are_a_part_of_closing",
    ),
    Mutant(
        "a close that leaves its renewer behind",
        "engine.py",
        (("            await self.renewer.gone(deadline)\n", ""),),
        ENGINE + "test_closing_waits_for_the_renewer_to_end",
    ),
    Mutant(
        "a bell that nobody rings at the end of the process",
        "drivers/doorbell.py",
        (("    if _sender().fileno() >= 0:\n", "    if True:\n"),),
        "tests/drivers/test_doorbell.py",
    ),
    Mutant(
        "a store that wakes nobody who waits",
        "stores/memory.py",
        (("        for bell in list(self._listening):\n            bell.ring()\n", "        return None\n"),),
        SUITE + "test_closing_wakes_whoever_waits_and_takes_them_from_the_line[threads]",
    ),
    # ---- forks and callbacks
    Mutant(
        "a child that withdraws what its parent has claimed",
        "engine.py",
        (("            if claim.holder not in self._under_way:  # we", "            if False:  # we"),),
        LIFECYCLE + "test_a_child_that_is_forked_in_the_middle_of_an_acquire_leaves_the_claim_to_its_parent",
    ),
    Mutant(
        "a callback that keeps the renewer waiting",
        "renewal.py",
        (
            (
                '            self._driver.aside(lambda: self.announce(lost), "holdfast-lost")\n',
                "            self.announce(lost)\n",
            ),
        ),
        RENEWAL + "test_a_callback_that_takes_its_time_costs_no_other_lease_its_life",
    ),
    # ---- bounds
    Mutant(
        "a repeated claim that may take its time",
        "engine.py",
        (("left = ROUND if timeout is None else min(ROUND, started + timeout + FIND_OUT - now())", "left = ROUND"),),
        LEAVING + "test_a_timeout_bounds_the_call_whatever_the_store_does",
    ),
    Mutant(
        "a withdrawal that outlasts the timeout",
        "engine.py",
        (
            (
                "                    left = min(FIND_OUT, started + timeout + FIND_OUT - now())\n",
                "                    pass\n",
            ),
        ),
        LEAVING + "test_a_timeout_bounds_the_call_whatever_the_store_does",
    ),
    Mutant(
        "who is interrupted has another second",
        "engine.py",
        (
            (
                "                    elif timeout is not None:  # also",
                "                    elif timeout is not None and isinstance(error, Exception):  # also",
            ),
        ),
        LEAVING + "test_a_timeout_bounds_the_call_of_whoever_is_interrupted_on_a_slow_store",
    ),
    Mutant(
        "who is refused late has half a second more to find out why",
        "waiting.py",
        (("min(FIND_OUT / 2, timeout + FIND_OUT - waited)", "FIND_OUT / 2"),),
        LEAVING + "test_a_timeout_bounds_the_call_of_whoever_is_refused_by_a_slow_store",
    ),
    Mutant(
        "a waiter that asks for as long as it likes",
        "waiting.py",
        (
            (
                "claim, ROUND if give_up is None else max(FIND_OUT / 2, min(ROUND, give_up + FIND_OUT - sent))",
                "claim, ROUND",
            ),
        ),
        LEAVING + "test_a_waiter_whose_store_falls_silent_gives_up_in_time",
    ),
    Mutant(
        "a try in the background that takes as long as it likes",
        "leaving.py",
        (("await self._try(owed, min(within, max(owed.until - now, 0.05)))", "await self._try(owed, ROUND)"),),
        LEAVING + "test_a_try_in_the_background_takes_a_second_at_most_and_no_longer_than_the_claim_lives",
    ),
    Mutant(
        "a claim that may have arrived is forgotten, since the login is refused now",
        "engine.py",
        (("isinstance(error, Misuse) and not strays", "isinstance(error, Misuse)"),),
        LEAVING + REFUSED_LOGIN,
    ),
    Mutant(
        "a refused login keeps close() waiting",
        "leaving.py",
        (("return refused and isinstance(error, Misuse)", "return False"),),
        LEAVING + REFUSED_LOGIN,
    ),
    Mutant(
        "what was refused is not taken back, though its release was not answered",
        "leaving.py",
        (("return refused and isinstance(error, Misuse)", "return refused"),),
        LEAVING + REFUSED_LOGIN,
    ),
    Mutant(
        "who was withdrawn is told as a failed release",
        "leaving.py",
        (("latecomers=tuple(rest), left=True)", "latecomers=tuple(rest))"),),
        LEAVING + LOOKED_FOR,
    ),
    Mutant(
        "who has released is told as a failed release",
        "engine.py",
        (("unanswered=True, left=True)", "unanswered=True)"),),
        LEAVING + LOOKED_FOR,
    ),
    Mutant(
        "closing asks for what has ended by itself",
        "leaving.py",
        (("if self._closing and self._driver.now() >= owed.until:", "if False:"),),
        LEAVING + "test_closing_does_not_ask_for_what_has_ended_by_itself_meanwhile",
    ),
    Mutant(
        "who is not awaited any more waits",
        "engine.py",
        (("isinstance(error, GeneratorExit)", "False"),),
        LEAVING + "test_whoever_is_not_awaited_any_more_leaves_without_waiting",
    ),
    Mutant(
        "a last try that outlasts close()",
        "leaving.py",
        (("pause = await self.step(min(0.5, left))", "pause = await self.step(2.0)"),),
        LEAVING + "test_closing_asks_everybody_although_some_do_not_answer",
    ),
    # ---- a server that is not there
    Mutant(
        "what was never sent is taken back, and whoever ends waits for that",
        "engine.py",
        (('if getattr(self.store, "reached", True):', "if True:"),),
        THERE + "test_a_thread_that_reached_nobody_has_nothing_to_take_back[redis]",
    ),
    Mutant(
        "whoever was let in once is taken for one that never was",
        "stores/kit/pool.py",
        (("            self._reached = True\n", ""),),
        THERE + "test_who_was_let_in_once_takes_back_what_it_asked_for[etcd]",
    ),
    Mutant(
        "Redlock in asyncio: what follows when a node is there is taken for never sent",
        "stores/redlock/shared.py",
        (("node.wire.reached or node.pipe is not None", "node.wire.reached"),),
        "tests/stores/redlock/test_connecting.py::test_who_is_asked_while_nodes_are_dialled_may_yet_be_told",
    ),
    Mutant(
        "whoever only looks for the other kind of `with` is refused",
        "scope.py",
        (("class Mixed(TypeError, AttributeError):", "class Mixed(TypeError):"),),
        SCOPE + "test_the_other_kind_of_with_is_refused_in_a_sentence_and_whoever_only_looks_finds_nothing",
    ),
    Mutant(
        "that there was no time left is told, and not what was wrong",
        "stores/kit/again.py",
        (("                if driver.now() >= deadline:\n                    break\n", ""),),
        "tests/stores/kit/test_alarm.py::"
        "test_that_there_was_no_time_left_to_connect_is_not_told_instead_of_what_was_wrong",
    ),
]


@pytest.mark.timeout(600)
def test_without_a_mistake_nothing_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
