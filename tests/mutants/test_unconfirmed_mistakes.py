"""What may go wrong with a release that nobody waits for: each of these mistakes is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import Mutant, must_be_clean, must_be_found

FAR = "tests/test_unconfirmed.py::"

MUTANTS = [
    Mutant(
        "nobody is told of what only the store knew",
        "leaving.py",
        (("            self._lost(owed)\n", "            pass\n"),),
        FAR + "test_what_only_the_store_knew_is_an_event",
    ),
    Mutant(
        "what is repeated is taken for lost, since the first one arrived",
        "leaving.py",
        (
            ("            self._gone(owed.claim.name, owed.going)\n            if events", "            if events"),
            (", going=None), min(at, owed.until))", "), min(at, owed.until))"),
        ),
        FAR + "test_one_that_arrived_and_is_repeated_is_no_loss",
    ),
    Mutant(
        "a claim that may land late is looked for before it was released",
        "engine.py",
        (("elif lease._confirm or lease._strays:", "elif lease._confirm:"),),
        FAR + "test_one_whose_claim_may_land_late_is_waited_for",
    ),
    Mutant(
        "there is no end to those that nobody waits for",
        "leaving.py",
        ((" or len(self._owed) >= self._most", ""),),
        FAR + "test_there_are_so_many_at_once_and_then_whoever_leaves_waits",
    ),
    Mutant(
        "whoever wants it again overtakes his own release",
        "engine.py",
        (("                await self.leaving.turn(name, FIND_OUT / 2)\n", "                pass\n"),),
        FAR + "test_whoever_wants_it_again_waits_for_the_release_and_not_in_line",
    ),
    Mutant(
        "a lease counts from before its turn came",
        "engine.py",
        (("                sent = now()\n                within -= sent", "                within -= sent"),),
        FAR + "test_a_lease_counts_from_when_its_turn_had_come",
    ),
    Mutant(
        "whoever wants it again waits for a silent store as for a full line",
        "engine.py",
        (("self.leaving.turn(name, FIND_OUT / 2)", "self.leaving.turn(name, 60)"),),
        FAR + "test_whoever_wants_it_again_waits_for_a_silent_store_no_longer_than_for_any_other_answer",
    ),
    Mutant(
        "whoever is refused behind his own release is left there",
        "leaving.py",
        (("        if not (self._posted or self._owed or self._under_way):\n", "        if True:\n"),),
        FAR + "test_whoever_is_refused_behind_his_own_release_says_it_again",
    ),
    Mutant(
        "what is said again is taken for a loss",
        "leaving.py",
        (("                self._gone(name, going)  #", "                str(going)  #"),),
        FAR + "test_what_is_said_again_before_it_was_tried_is_no_loss",
    ),
    Mutant(
        "only what is no Exception is an interruption",
        "engine.py",
        (
            (
                "answer is None and not isinstance(error, HoldfastError)",
                "answer is None and not isinstance(error, Exception)",
            ),
        ),
        "tests/test_leaving.py::test_a_claim_that_was_never_answered_is_looked_for_again_after_its_withdrawal",
    ),
    Mutant(
        "nobody rings for whoever waits for the release",
        "leaving.py",
        (("        for bell in going.bells:\n            bell.ring()\n", ""),),
        FAR + "test_whoever_waits_for_a_release_is_told_when_it_is_done",
    ),
    Mutant(
        "who was interrupted while leaving is told that he lost it",
        "engine.py",
        (("            self.leaving.disregard(claim)\n", ""),),
        FAR + "test_whoever_was_interrupted_while_leaving_has_left_and_hears_of_no_loss",
    ),
    Mutant(
        "without a thread, a release is left to nobody",
        "leaving.py",
        (("        return bool(self._workers)\n", "        return True\n"),),
        FAR + "test_without_a_thread_to_be_had_whoever_leaves_waits",
    ),
    Mutant(
        "a thread is started for each",
        "leaving.py",
        (("_LINGER = 5.0", "_LINGER = 0.0"),),
        FAR + "test_one_thread_sends_them_all_and_goes_home_at_the_end",
    ),
    Mutant(
        "threads stay when all is closed",
        "leaving.py",
        (
            ("        for bell in idle:  # they go home\n            bell.ring()\n", ""),
            ("_LINGER = 5.0", "_LINGER = 500.0"),
            ("0.25 if self._owed else _UNREAD", "0.25 if self._owed else 500.0"),
        ),
        FAR + "test_one_thread_sends_them_all_and_goes_home_at_the_end",
    ),
    Mutant(
        "one that hangs keeps all others waiting",
        "leaving.py",
        (("len(self._owed) + len(self._under_way)", "len(self._owed)"),),
        FAR + "test_a_release_that_hangs_keeps_nobody_else_waiting",
    ),
    Mutant(
        "a store beside us is asked by somebody else",
        "leaving.py",
        (('self._store.traits.scope != "network" or ', ""),),
        FAR + "test_a_store_that_is_near_is_asked_at_once",
    ),
    Mutant(
        "the end of a body is not looked at",
        "engine.py",
        (
            (
                "ran_out = state is HELD and started >= lease._deadline",
                "ran_out = lease._confirm and state is HELD and started >= lease._deadline",
            ),
        ),
        FAR + "test_the_end_of_a_body_is_looked_at_here",
    ),
    Mutant(
        "closing forgets what nobody waited for",
        "leaving.py",
        (
            (
                "            self._owed = sorted((0.0, number, owed) for _, number, owed in self._owed)",
                "            self._owed = []",
            ),
        ),
        FAR + "test_closing_waits_for_those_that_nobody_waited_for",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)


def test_where_there_is_none_none_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)
