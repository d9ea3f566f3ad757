"""The tests can fail: each of these mistakes, made in a copy of the source, is found by the test that is meant to find it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .spoiling import SUITE, Mutant, must_be_clean, must_be_found

# Pieces of the source that are changed below.
RINGS = """            self._ring(name, heir, watchers)
        return there"""
LEAVES = """            entry = book.inside.pop(claim.holder, None)
            if entry is not None:
                book.used"""
RINGS_EARLY = """            for one in book.line.values():
                one.bell and one.bell.ring()
                break
"""
FAILS = "        except BaseException as error:\n            if lease._state is RELEASING:\n"
LEAVING = "tests/test_leaving.py::"
BELLS, FILE = "tests/stores/test_sqlite_bells.py::", "tests/stores/test_sqlite_file.py::"


MUTANTS = [
    Mutant(
        "what was interrupted is not taken back",
        "engine.py",
        (
            (
                "await self.leaving.withdraw(claim, left, unanswered=strays or interrupted, refused=refused)",
                "pass",
            ),
        ),
        SUITE + "test_cancelled_at_any_await_nothing_is_left",
    ),
    Mutant(
        "a release that does not ask whose it is",
        "stores/memory.py",
        (
            (
                "entry = book.inside.pop(claim.holder, None)\n            if entry",
                "entry = book.inside.popitem()[1] if book.inside else None\n            if entry",
            ),
        ),
        SUITE + "test_nobody_releases_what_is_not_theirs",
    ),
    Mutant(
        "no second look after waiting",
        "waiting.py",
        (
            (
                "= True\n            answer = await engine.store.claim(\n",
                "= True\n            answer = Grant(claim, 1, claim.ttl) or (\n",
            ),
        ),
        "tests/test_engine.py::test_after_waiting_it_is_asked_again_and_never_assumed",
    ),
    Mutant(
        "a deadline from the answer",
        "engine.py",
        (("lease_type(self, answer, sent)", "lease_type(self, answer, self.driver.now())"),),
        "tests/test_engine.py::test_a_deadline_counts_from_before_the_claim_was_sent",
    ),
    Mutant(
        "a renewal counted from its answer",
        "renewal.py",
        (("lease._extend(grant, sent)", "lease._extend(grant, self._driver.now())"),),
        "tests/test_renewal.py::test_a_renewal_counts_from_before_it_was_sent",
    ),
    Mutant(
        "a neighbour's lack of time is a danger",
        "renewal.py",
        (("within > ttl / 12", "within >= ttl / 12"),),
        "tests/test_renewal.py::test_who_had_little_time_because_another_runs_out_is_not_told_of_as_a_danger",
    ),
    Mutant(
        "a late yes brings a lost lease back",
        "renewal.py",
        (
            (
                "if lease._state is HELD and now >= lease._deadline:\n                    self.lose(lease)\n",
                "if False:\n                    self.lose(lease)\n",
            ),
        ),
        "tests/test_renewal.py::test_a_lost_lease_is_never_brought_back_by_a_late_yes",
    ),
    Mutant(
        "a store that renews what is over",
        "stores/memory.py",
        (("if entry is None or entry.expires <= now or entry.token", "if entry is None or entry.token"),),
        SUITE + "test_a_renewal_after_the_end_is_refused_and_revives_nothing",
    ),
    Mutant(
        "a nonce used twice",
        "claim.py",
        (("return _nonces.pop()", 'return f"{os.getpid():032x}"'),),
        SUITE + "test_while_one_is_inside_another_is_refused_and_then_gets_in",
    ),
    Mutant(
        "a bell rung before the state has changed",
        "stores/memory.py",
        (
            (
                LEAVES,
                RINGS_EARLY + LEAVES,
            ),
            (
                RINGS,
                "            pass\n        return there",
            ),
        ),
        "tests/stores/test_memory_space.py::test_the_next_in_line_is_rung_once_and_after_the_state_has_changed",
    ),
    Mutant(
        "no bell at all",
        "stores/memory.py",
        (
            (
                RINGS,
                "            pass\n        return there",
            ),
        ),
        "tests/stores/test_memory_space.py::test_the_next_in_line_is_rung_once_and_after_the_state_has_changed",
    ),
    Mutant(
        "a place in line that never ends",
        "stores/memory.py",
        (("            if book.line[head].expires > now:\n", "            if book.line[head].expires:\n"),),
        "tests/stores/test_memory_space.py::test_a_place_whose_owner_does_not_come_back_ends",
    ),
    Mutant(
        "a release that forgets the token before the store has agreed",
        "engine.py",
        (
            (
                FAILS,
                "        except BaseException as error:\n            lease._state = RELEASED\n            if False:\n",
            ),
        ),
        SUITE + "test_a_release_that_failed_may_be_repeated",
    ),
    Mutant(
        "entering without the lock",
        "waiting.py",
        (
            (
                "raise await not_acquired(engine, claim, timeout, now() - started)",
                "return Grant(claim, 1, claim.ttl), started",
            ),
        ),
        SUITE + "test_a_body_never_runs_without_the_lock",
    ),
    Mutant(
        "the wall clock",
        "drivers/system.py",
        (('getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)', "time.CLOCK_REALTIME"),),
        "tests/drivers/test_clock.py",
    ),
    Mutant(
        "an interrupted acquire that takes nothing back",
        "engine.py",
        (
            (
                "await self.leaving.withdraw(claim, left, unanswered=strays or interrupted, refused=refused)",
                "pass",
            ),
        ),
        SUITE + "test_interrupted_while_waiting_nothing_is_left",
    ),
    Mutant(
        "a line that everybody passes",
        "rule.py",
        ((" and not (ahead and fair)", ""),),
        SUITE + "test_the_fair_do_not_pass_the_line_and_the_unfair_do",
    ),
    Mutant(
        "tokens by the clock alone",
        "rule.py",
        (("max(last + 1, wall_us)", "wall_us"),),
        "tests/test_rule.py::test_tokens_rise_whatever_the_clock_does",
    ),
    Mutant(
        "one unit too many",
        "rule.py",
        (("return used + units <= capacity", "return used < capacity"),),
        "tests/test_rule.py::test_one_enters_when_there_is_room_and_nobody_ahead",
    ),
    Mutant(
        "a child that owns what its parent holds",
        "engine.py",
        (('lease._end(LOST, "it belongs', 'str("it belongs'),),
        "tests/test_lifecycle.py::test_a_child_of_a_memory_store_starts_afresh_and_the_parent_goes_on",
    ),
    Mutant(
        "several locks released in a bare loop",
        "recipes.py",
        (("            failures.append(error)\n", "            raise error\n"),),
        "tests/test_recipes.py::test_a_store_that_fails_at_the_release_of_several_fails_for_one_only",
    ),
    Mutant(
        "several locks of which the first was lost meanwhile",
        "recipes.py",
        (("            lease.check()  # the first", "            pass  # the first"),),
        "tests/test_recipes.py::test_the_first_of_several_is_checked_again_when_the_last_was_waited_for",
    ),
    Mutant(
        "each of several locks with the whole timeout",
        "recipes.py",
        (("max(0.0, give_up - engine.driver.now())", "timeout"),),
        "tests/test_recipes.py::test_several_locks_share_one_deadline",
    ),
    Mutant(
        "a renewer that goes home in two steps",
        "renewal.py",
        (("                        self._gone_home(bell)  # under", "                        # under"),),
        "tests/test_renewal.py::test_a_lease_taken_while_the_renewer_goes_home_is_renewed_all_the_same",
    ),
    Mutant(
        "a release that is tried once in the background",
        "leaving.py",
        (("            if now < owed.until:\n", "            if False:\n"),),
        LEAVING + "test_a_release_that_was_not_answered_is_repeated_until_the_lease_ends_and_only_then_told",
    ),
    Mutant(
        "a worker that decides to go, and goes a moment later",
        "leaving.py",
        (
            (
                "self._workers.discard(worker)  # under the same lock as the decision: nothing is left to nobody\n",
                "break\n",
            ),
        ),
        LEAVING + "test_what_comes_while_the_last_worker_goes_home_is_not_left_to_nobody",
    ),
    Mutant(
        "a try that is refused and forgets what it had sent before",
        "engine.py",
        (("or claim.queue or strays or type(answer)", "or claim.queue or type(answer)"),),
        LEAVING + "test_a_try_whose_first_claim_was_lost_and_whose_second_was_refused_leaves_nothing",
    ),
    Mutant(
        "a claim that lands late is never looked for",
        "leaving.py",
        (("_LATECOMERS = (0.3, 1.0, 3.0)", "_LATECOMERS = ()"),),
        LEAVING + "test_a_claim_that_was_never_answered_is_looked_for_again_after_its_withdrawal",
    ),
    Mutant(
        "a claim in line that lands late is never looked for",
        "leaving.py",
        (("if owed.latecomers and not self._closing", "if owed.latecomers and not there and not self._closing"),),
        LEAVING + "test_a_claim_in_line_that_was_not_answered_is_looked_for_though_its_place_was_given_up",
    ),
    Mutant(
        "close() that waits for latecomers",
        "leaving.py",
        (("sorted((0.0, number, owed) for _, number", "sorted((at, number, owed) for at, number"),),
        LEAVING + "test_closing_looks_for_latecomers_at_once_and_waits_for_none",
    ),
    Mutant(
        "a timeout that the store may exceed",
        "engine.py",
        (
            (
                "within = ROUND if timeout is None or timeout >= ROUND - FIND_OUT else timeout + FIND_OUT",
                "within = ROUND",
            ),
        ),
        LEAVING + "test_a_timeout_bounds_the_call_whatever_the_store_does",
    ),
    Mutant(
        "close() that waits its time for every lease",
        "leaving.py",
        (("while (left := deadline - self._driver.now()) > 0:", "while (left := 3.0):"),),
        LEAVING + "test_closing_has_one_deadline_and_says_what_it_left",
    ),
    Mutant(
        "a renewer that keeps alive what nobody has",
        "renewal.py",
        (("            same[id(lease)] = ref(lease)\n", "            same[id(lease)] = lambda: lease\n"),),
        "tests/test_dropped.py::test_a_dropped_lease_is_told_as_an_event_and_forgotten",
    ),
    Mutant(
        "renewal that ends with its task",
        "renewal.py",
        ((", lambda: self._needed(bell))", ")"),),
        "tests/test_dropped.py::test_who_cancels_all_tasks_does_not_end_renewal",
    ),
    Mutant(
        "unknown taken for lost",
        "renewal.py",
        (
            (
                "                if isinstance(grant, Unavailable):\n                    continue\n",
                "                if isinstance(grant, Unavailable):\n                    grant = None\n",
            ),
        ),
        "tests/test_renewal.py::test_what_is_unknown_of_one_lease_touches_no_other",
    ),
    Mutant(
        "a writer that waits for itself",
        "mine.py",
        (("(ask.alone or claim.units > 1)", "(ask.alone and claim.units == 1)"),),
        "tests/test_engine.py::test_who_would_wait_for_itself_is_refused_at_once",
    ),
    Mutant(
        "a connection that is closed under its users",
        "stores/sqlite/database.py",
        (
            (
                "        with self._mutex:  # a connection that is closed",
                "        if True:  # a connection that is closed",
            ),
        ),
        BELLS + "test_a_connection_is_closed_only_when_nobody_uses_it",
    ),
    Mutant(
        "another boot id that is taken for another boot",
        "stores/sqlite/database.py",
        (("        if newest > now:\n", "        if newest:\n"),),
        FILE + "test_another_boot_id_alone_frees_nothing",
    ),
    Mutant(
        "a new boot that is taken for one for ever",
        "stores/sqlite/statements.sql",
        (("SET holder = '', since = ?, expires = ?;", "SET holder = '', expires = max(?, ?);"),),
        FILE + "test_another_boot_frees_everything_and_keeps_the_order_of_tokens",
    ),
    Mutant(
        "a container's clock believed",
        "stores/sqlite/machine.py",
        (("return (lambda: now() - ahead) if ahead else now", "return now"),),
        BELLS + "test_another_clock_in_a_container_ends_no_lock",
    ),
    Mutant(
        "files as the umask makes them",
        "stores/sqlite/database.py",
        (("os.O_RDWR, 0o600", "os.O_RDWR, 0o644"),),
        FILE + "test_the_files_are_their_owners_alone_whatever_the_umask",
    ),
    Mutant(
        "bells for everybody",
        "drivers/doorbell.py",
        (
            ("        os.chmod(what, mode, **how)\n", "        os.chmod(what, 0o777)\n"),
            ('-bells", 0o700)\n', '-bells", 0o755)\n'),
        ),
        BELLS + "test_another_user_can_neither_ring_nor_find_out_whom",
    ),
    Mutant(
        "a folder of bells of whoever came first",
        "drivers/doorbell.py",
        (("if os.fstat(folder).st_uid not in (rights.st_uid, os.geteuid(), 0)", "if False"),),
        BELLS + "test_a_folder_of_bells_that_somebody_else_has_made_is_not_used",
    ),
    Mutant(
        "a child that takes its parent's bell away",
        "drivers/doorbell.py",
        (("        if self._pid != os.getpid():", "        if not self._pid:"),),
        BELLS + "test_a_forked_child_leaves_the_bell_of_its_parent_alone",
    ),
    Mutant(
        "a renewal that could not be asked for taken for a loss",
        "stores/sqlite/store.py",
        (("answers += [trouble] * len(some)", "answers += [None] * len(some)"),),
        FILE + "test_a_file_locked_by_a_stuck_process_is_told_in_the_time_that_was_given",
    ),
    Mutant(
        "a wait graph that takes the fairness of the other",
        "waitfor.py",
        (("hindered[waiting.owner] += 1 + waiting.fair", "hindered[waiting.owner] += 2"),),
        "tests/test_waitfor.py::test_an_unfair_waiter_passes_a_stuck_one_and_a_fair_one_does_not",
    ),
    Mutant(
        "a wait graph in which nobody gives anything back",
        "waitfor.py",
        (("line.free += units", "line.free += 0"),),
        "tests/test_waitfor.py::test_what_somebody_will_give_back_who_waits_for_now_is_no_deadlock",
    ),
    Mutant(
        "a wait graph in which one more fits than does",
        "waitfor.py",
        (("units <= self.free:", "units <= self.free + 1:"),),
        "tests/test_waitfor.py::test_who_waits_for_themselves_is_a_deadlock_of_one",
    ),
    Mutant(
        "a wait graph that follows whoever stands in several lines along the first",
        "waitfor.py",
        (("stuck = self._going_round(stuck)", "stuck = set(stuck)"),),
        "tests/test_waitfor.py::test_a_wait_that_leads_nowhere_hides_no_deadlock",
    ),
]


@pytest.mark.timeout(600)
def test_without_a_mistake_nothing_is_found_and_it_is_the_copy_that_is_tested(source: Path) -> None:
    where = subprocess.run(
        [sys.executable, "-c", "import holdfast; print(holdfast.__file__)"],
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(source)
    must_be_clean(MUTANTS, source)


@pytest.mark.timeout(400)  # seconds of work, but many at a time on a busy machine
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.what) for mutant in MUTANTS])
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)
