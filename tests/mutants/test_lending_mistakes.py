"""What may go wrong when a grant stays with its process and is lent there: each of these mistakes is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import SUITE, Mutant, must_be_clean, must_be_found

LENDING = "tests/test_lending.py::"
UNCONFIRMED = "tests/stores/redis/test_unconfirmed.py::"

MUTANTS = [
    Mutant(
        "a thread that was not started is remembered, and what it was for",
        "drivers/starting.py",
        (("        todo.clear()\n", ""),),
        "tests/drivers/test_threads.py::test_an_interrupted_start_runs_or_is_forgotten",
    ),
    Mutant(
        "what is over is lent",
        "staying.py",
        (("            now < stay._deadline\n            and (", "            ("),),
        LENDING + "test_what_is_over_is_not_lent_though_nobody_has_noticed_yet",
    ),
    Mutant(
        "nobody listens to who waits elsewhere",
        "lending.py",
        (("                    kept.wanted = self._now()\n", "                    pass\n"),),
        SUITE + "test_who_waits_elsewhere_gets_what_nobody_uses[threads]",
    ),
    Mutant(
        "who waits elsewhere waits for everybody here",
        "staying.py",
        (("(now >= self.wanted + self.keep or self.first() is None)", "self.first() is None"),),
        LENDING + "test_who_waits_elsewhere_waits_no_longer_than_keep_for_those_who_wait_here",
    ),
    Mutant(
        "lent to two at once",
        "staying.py",
        (("            and (self.shared or not stay.inside or not stay.borrowers())\n", ""),),
        SUITE + "test_who_does_not_wait_is_told_at_once_and_leaves_nothing[threads]",
    ),
    Mutant(
        "a newcomer overtakes the line",
        "lending.py",
        (("if stay is None or kept.line or not kept.may_lend", "if stay is None or not kept.may_lend"),),
        LENDING + "test_a_newcomer_does_not_overtake_the_line",
    ),
    Mutant(
        "lent on after a section that failed",
        "lease.py",
        (("            self._stay.spoiled = True\n", "            pass\n"),),
        SUITE + "test_a_section_that_failed_ends_the_grant[threads]",
    ),
    Mutant(
        "a loss does not reach who is inside",
        "staying.py",
        (("            lease._state = LOST if state is LOST else RELEASED\n", ""),),
        SUITE + "test_a_loss_reaches_who_is_inside_and_nobody_is_lent_it_any_more[asyncio]",
    ),
    Mutant(
        "a renewal does not reach who is inside",
        "staying.py",
        (("            lease._extend(grant, sent)\n", "            pass\n"),),
        LENDING + "test_what_happens_to_the_grant_happens_to_who_is_inside",
    ),
    Mutant(
        "a reader who leaves takes the grant from those who read",
        "lending.py",
        (("                stays = stays or bool(stay.borrowers())\n", ""),),
        SUITE + "test_who_writes_elsewhere_gets_in_when_the_last_reader_here_has_left[threads]",
    ),
    Mutant(
        "readers who come here keep a writer out for ever",
        "staying.py",
        (("            and not ((self.wanted", "            and not (not self.shared and (self.wanted"),),
        LENDING + "test_who_writes_elsewhere_waits_no_longer_than_keep_for_readers_who_come_here",
    ),
    Mutant(
        "a loss reaches one reader of several",
        "staying.py",
        (("self.borrowers()\n        self._now", "self.borrowers()[:1]\n        self._now"),),
        SUITE + "test_a_loss_reaches_all_who_read[threads]",
    ),
    Mutant(
        "a renewal reaches one reader of several",
        "staying.py",
        (
            (
                "        for lease in self.borrowers():\n            lease._extend",
                "        for lease in self.borrowers()[:1]:\n            lease._extend",
            ),
        ),
        SUITE + "test_a_renewal_reaches_all_who_read[threads]",
    ),
    Mutant(
        "who writes waits for what its own readers have left",
        "engine.py",
        (("                timeout = await self.lending.make_way(name, timeout)\n", "                pass\n"),),
        SUITE + "test_who_writes_here_does_not_wait_for_what_no_reader_uses[threads]",
    ),
    Mutant(
        "to make way for who writes comes on top of its time",
        "lending.py",
        (("max(timeout - (self._now() - started), -GIVING_UP)", "timeout"),),
        LENDING + "test_who_writes_asks_in_what_is_left_of_its_time",
    ),
    Mutant(
        "a reader that was lent it is not known when it asks to write",
        "lending.py",
        (("if ask.reentrant or ask.reads:\n            engine.mine", "if ask.reentrant:\n            engine.mine"),),
        SUITE + "test_a_reader_that_asks_to_write_is_told_that_it_would_wait_for_itself[threads]",
    ),
    Mutant(
        "a reader who only tries is refused since others here ask",
        "lending.py",
        (("        if kept is None or (kept.shared and not joined):", "        if kept is None:"),),
        LENDING + "test_a_reader_who_only_tries_is_not_refused_since_others_here_ask",
    ),
    Mutant(
        "what nobody uses is kept for ever",
        "lending.py",
        (("(left <= 0 and kept.first() is None)", "False"),),
        SUITE + "test_it_is_given_up_when_nobody_has_used_it_for_so_long[asyncio]",
    ),
    Mutant(
        "a grant that nobody keeps is kept by who has left",
        "lending.py",
        (("            lease._stay = stay._by = None\n", "            stay._by = None\n"),),
        LENDING + "test_without_a_keeper_the_grant_goes_with_who_was_inside",
    ),
    Mutant(
        "a keeper goes home and takes the grant with it",
        "lending.py",
        (("            if self._engine.closed or kept.is_over", "            if kept.is_over"),),
        LENDING + "test_whoever_knows_of_it_last_gives_it_back_when_everything_is_closed",
    ),
    Mutant(
        "nobody tells the keeper that nobody is inside any more",
        "staying.py",
        (("        elif self.bell is not None:\n            self.bell.ring()\n", ""),),
        SUITE + "test_who_waits_elsewhere_gets_what_was_lent_and_dropped_at_once[threads]",
    ),
    Mutant(
        "the last in line leaves the name to nobody",
        "staying.py",
        (("        if stay is None or self.shared or not stay.borrowers():\n", "        if self.line:\n"),),
        SUITE + "test_who_waits_elsewhere_gets_what_nobody_here_took_in_its_turn[threads]",
    ),
    Mutant(
        "what is over is given up for as long as it takes",
        "lending.py",
        (("self.give_up(stay, ROUND if timeout is None else GIVING_UP)", "self.give_up(stay)"),),
        LENDING + "test_what_is_over_is_given_up_in_the_time_of_who_asks",
    ),
    Mutant(
        "to give up what is over comes on top of the time to find out",
        "lending.py",
        (("max(started + timeout - now, -GIVING_UP)", "max(started + timeout - now, 0.0)"),),
        LENDING + "test_what_is_over_is_given_up_in_the_time_of_who_asks",
    ),
    Mutant(
        "who was put out lends on",
        "lending.py",
        (("                        await self._ask_for(stay)\n", "                        pass\n"),),
        SUITE + "test_who_was_put_out_lets_nobody_in_any_more[threads]",
    ),
    Mutant(
        "every name that is not kept is compared with all that are",
        "lending.py",
        (("            if now >= self._swept + LOOK:", "            if now:"),),
        LENDING + "test_names_beyond_those_that_are_kept_are_not_compared_with_all_of_them",
    ),
    Mutant(
        "a grant whose end was interrupted is left where it is",
        "staying.py",
        (("lease does it\n            self._was_dropped()\n", "lease does it\n"),),
        "tests/test_interrupted.py::test_a_grant_that_is_dropped_before_anybody_was_lent_it",
    ),
    Mutant(
        "the answer to a release is taken for that to the next claim",
        "stores/redis/wire.py",
        (("data = data[4:] or self._rest(connection, now + within)", "data = data[:4]"),),
        UNCONFIRMED + "test_its_answer_is_read_by_who_uses_the_connection_next",
    ),
    Mutant(
        "an answer that nobody reads is never asked for",
        "leaving.py",
        (("            self._ask_again(self._driver.now() - _UNREAD)\n", "            pass\n"),),
        UNCONFIRMED + "test_one_that_nobody_reads_is_asked_for",
    ),
    Mutant(
        "who reads waits for those who read, since one of them failed",
        "staying.py",
        (("        over = stay.spoiled or now", "        over = now"),),
        SUITE + "test_who_reads_does_not_wait_for_others_here_one_of_whom_failed[threads]",
    ),
    Mutant(
        "a child lends what is its parent's",
        "engine.py",
        (
            (
                "        self._start()\n\n    def _is_forked",
                "        kept, _ = self.lending, self._start()\n        self.lending = kept\n\n    def _is_forked",
            ),
            ('            lease._end(LOST, "it belongs', '            str("it belongs'),
        ),
        "tests/conformance/test_sqlite.py::TestSqlite::test_a_forked_child_is_lent_nothing[threads]",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)


def test_where_there_is_none_none_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)
