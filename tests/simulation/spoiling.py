"""A mistake in one function, and whether seeds as anybody draws them find it."""

from __future__ import annotations

import inspect
import sys
import textwrap
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

from holdfast.testing.simulation.searching import opener_of
from holdfast.testing.simulation.swarm import plan_of
from holdfast.testing.simulation.workload import run

BUDGET = 20_000


class Mutant(NamedTuple):
    wrong: str
    store: str
    seed: int  # the first, or one of the first, that finds it: looked at first, since that is quick
    found_by: tuple[str, ...]  # any of these checkers
    where: Any
    function: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.store}: {self.wrong}"


def spoilt(mutant: Mutant) -> AbstractContextManager[object]:
    """The function, from its own source with one text replaced."""
    function = inspect.getattr_static(mutant.where, mutant.function)
    plain = function.__func__ if isinstance(function, staticmethod) else function
    text = textwrap.dedent(inspect.getsource(plain))
    assert text.count(mutant.old) == 1, f"the source has changed: {mutant.old!r}"
    found: dict[str, Any] = {}
    exec(text.replace(mutant.old, mutant.new), vars(sys.modules[plain.__module__]), found)  # noqa: S102
    return mock.patch.object(mutant.where, mutant.function, found[mutant.function])


def check_that_it_is_found(mutant: Mutant) -> None:
    assert finds(mutant, mutant.seed) is False
    with spoilt(mutant):
        assert finds(mutant, mutant.seed) or any(finds(mutant, seed) for seed in range(BUDGET))


def finds(mutant: Mutant, seed: int) -> bool:
    with opener_of(mutant.store) as opener:
        report = run(seed, plan_of(mutant.store, seed), opener)
    return any(finding.checker in mutant.found_by for finding in report.findings)
