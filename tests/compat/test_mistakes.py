"""Mistakes with objects that threads share: each of these is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..mutants.spoiling import Mutant, must_be_clean, must_be_found

FILELOCK = "tests/compat/test_filelock.py::"
REDIS_PY = "tests/compat/test_redis_py.py::"

MUTANTS = [
    Mutant(
        "a release forgets what another thread has just taken",
        "compat/redis_py.py",
        (("            if self.local.lease is lease:", "            if True:"),),
        REDIS_PY + "test_a_release_does_not_forget_what_another_thread_has_just_taken",
    ),
    Mutant(
        "a client with TLS, by another name, is asked without",
        "compat/redis_py.py",
        (("for kind in pool.connection_class.__mro__", "for kind in [pool.connection_class]"),),
        REDIS_PY + "test_a_connection_of_somebodys_own_has_tls_by_whatever_name",
    ),
    Mutant(
        "certificates that it does not trust are trusted",
        "compat/redis_py.py",
        (('if key.startswith("ssl_"):', "if False:"),),
        REDIS_PY + "test_what_it_trusts_is_not_passed_over",
    ),
    Mutant(
        "somebody enters what is being given back",
        "compat/filelock.py",
        (("        with entries.mutex:  # also while", "        if True:  # also while"),),
        FILELOCK + "test_nobody_enters_what_another_thread_is_giving_back",
    ),
    Mutant(
        "who lost it gives back what is another's",
        "compat/filelock.py",
        (("lease, 1 if entries.lease is None else entries.count + 1", "lease, 1"),),
        FILELOCK + "test_who_lost_it_does_not_give_back_what_another_thread_has_taken_since",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_the_mistake_is_found(mutant: Mutant, source: Path) -> None:
    must_be_found(mutant, source)


def test_where_there_is_none_none_is_found(source: Path) -> None:
    must_be_clean(MUTANTS, source)
