"""Mistakes in `also=` that the attacks must find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.spoiling import Mutant, must_be_found

BOTH = "tests/stores/also/test_both.py::"
ATTACKS = "tests/stores/also/test_attacks.py::"

MUTANTS = [
    Mutant(
        "what the old side has lost stays taken on the new one",
        "stores/also/both.py",
        (("await self.release(lost.claim, self._left(until))", "await self._old.give_back(lost.claim, 1)"),),
        BOTH + "test_what_the_old_side_has_lost_is_free_on_the_new_one_at_once",
    ),
    Mutant(
        "what the new side has lost stays taken on the old one",
        "stores/also/both.py",
        (("await self.release(lost.claim, self._left(until))", "await self._new.release(lost.claim, 1)"),),
        BOTH + "test_what_the_new_side_has_lost_is_free_on_the_old_one_at_once",
    ),
    Mutant(
        "an old side that is silent hides what is lost",
        "stores/also/both.py",
        (("return [error] * len(claims)", "raise"),),
        BOTH + "test_an_old_side_that_is_silent_makes_nothing_lost_but_what_the_new_one_has_lost",
    ),
    Mutant(
        "who was put out stays in the line of the old lock",
        "stores/also/both.py",
        (("                await self._let_go(claim, until)\n", ""),),
        BOTH + "test_who_is_put_out_while_it_waits_for_the_old_lock_stands_in_its_line_no_more",
    ),
    Mutant(
        "a silent old side keeps the new one taken",
        "stores/also/both.py",
        (("            trouble = error\n", "            raise\n"),),
        BOTH + "test_a_release_goes_on_though_the_old_side_is_silent_and_is_told_as_unanswered",
    ),
    Mutant(
        "a child keeps its parent's connection",
        "stores/also/sql.py",
        (("        void(plain)\n", "        pass\n"), ("idle_session_timeout", "application_name")),
        ATTACKS + "test_who_is_killed_keeps_nobody_out_though_a_child_lives_on[advisory]",
    ),
    Mutant(
        "what could not be let go is forgotten",
        "stores/also/errands.py",
        (
            (
                "self._ends.update((one, self._driver.now() + _AGAIN) for one in over if one in self._ends)",
                "self._ends.clear()",
            ),
        ),
        ATTACKS + "test_what_could_not_be_let_go_during_a_cut_is_let_go_after_it[kazoo]",
    ),
    Mutant(
        "a node whose creation was not answered is nobody's",
        "stores/also/nodes.py",
        (
            (
                "        self._errands.hold(claim.holder, claim.ttl)\n        self._ask",
                "        self._ask",
            ),
        ),
        ATTACKS + "test_a_node_that_was_made_unknown_to_us_is_let_go[kazoo]",
    ),
]


@pytest.mark.server
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what.replace(" ", "-"))
def test_a_mistake_is_found(mutant: Mutant, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PATIENCE", "8")
    must_be_found(mutant, source)
