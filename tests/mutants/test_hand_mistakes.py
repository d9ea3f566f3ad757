"""What is done by hand, leases renewed and waits given up, goes wrong in these ways; each is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from .spoiling import Mutant, must_be_found

TERMS, DECORATING = "tests/test_terms.py::", "tests/test_decorating.py::"

MUTANTS = [
    Mutant(
        "an extension that does not wake the renewer",
        "renewal.py",
        (
            (
                "            if lease._state is HELD and (lease._due < self._wake_at or self._bell.asleep):\n",
                "            if False:\n",
            ),
        ),
        TERMS + "test_an_extension_wakes_the_renewer_in_time",
    ),
    Mutant(
        "a wait that never looks whether it is to be given up",
        "waiting.py",
        (("            left = min(left, FIND_OUT / 2)\n", "            pass\n"),),
        TERMS + "test_a_wait_is_given_up_when_another_thread_says_so",
    ),
    Mutant(
        "a leader that goes on leading when its work has failed",
        "sync.py",
        (
            (
                "                    lease.release()\n            finish(pause",
                "                    pass\n            finish(pause",
            ),
        ),
        TERMS + "test_each_round_of_the_loop_is_a_term_and_leaving_it_ends_the_term",
    ),
    Mutant(
        "an error of the body that is taken for a skipped call",
        "sync.py",
        (
            (
                "                return self._skipped(function, error)\n            with lease:\n"
                "                args, kwargs = call.with_lease(lease, args, kwargs)\n"
                "                return function(*args, **kwargs)\n",
                "                return self._skipped(function, error)\n            with lease:\n"
                "                args, kwargs = call.with_lease(lease, args, kwargs)\n"
                "                try:\n                    return function(*args, **kwargs)\n"
                "                except NotAcquired:\n                    return None\n",
            ),
        ),
        DECORATING + "test_an_error_of_the_body_is_not_taken_for_a_skipped_call",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what.replace(" ", "-"))
def test_a_mistake_is_found(mutant: Mutant, source: Path) -> None:  # pytest's way to ask for it
    must_be_found(mutant, source)
