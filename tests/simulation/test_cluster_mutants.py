"""The simulation of etcd and Consul can fail: each of these mistakes is found, by the plans that any seed draws."""

from __future__ import annotations

import inspect
import sys
import textwrap
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

import pytest

from holdfast.stores.consul.book import Book
from holdfast.stores.consul.ears import Ears
from holdfast.stores.consul.keeper import Keeper
from holdfast.stores.consul.renewing import Renewing
from holdfast.stores.consul.store import ConsulStore
from holdfast.stores.etcd import claiming
from holdfast.stores.etcd.ear import Watches
from holdfast.stores.etcd.renewing import Renewal
from holdfast.stores.etcd.store import EtcdStore
from holdfast.testing.simulation.machines import on_machines
from holdfast.testing.simulation.swarm import CONSUL, ETCD, plan_of
from holdfast.testing.simulation.workload import run


class Mutant(NamedTuple):
    wrong: str
    store: str
    seed: int  # the first, or one of the first, that finds it: looked at first, since that is quick
    found_by: tuple[str, ...]  # any of these checkers
    where: Any
    function: str
    old: str
    new: str


def spoilt(mutant: Mutant) -> AbstractContextManager[object]:
    """The function, from its own source with one text replaced."""
    function = inspect.getattr_static(mutant.where, mutant.function)
    plain = function.__func__ if isinstance(function, staticmethod) else function
    text = textwrap.dedent(inspect.getsource(plain))
    assert text.count(mutant.old) == 1, f"the source has changed: {mutant.old!r}"
    found: dict[str, Any] = {}
    exec(text.replace(mutant.old, mutant.new), vars(sys.modules[plain.__module__]), found)  # noqa: S102
    return mock.patch.object(mutant.where, mutant.function, found[mutant.function])


TWO_INSIDE = ("linearizability", "tokens", "storage")
IN_VAIN = ("handoff", "liveness")
FOR_EVER = ("leak", "liveness")

MUTANTS = [
    Mutant(
        "a renewal brings back the lost",
        ETCD,
        155,
        TWO_INSIDE,
        Renewal,
        "_still",
        "    entry = question.entry\n",
        "    entry = question.entry\n    return True\n",
    ),
    Mutant(
        "a watch that is never heard of again",
        ETCD,
        2,
        IN_VAIN,
        Watches,
        "hear",
        "if not (heard.events or heard.canceled):",
        "if not heard.canceled:",
    ),
    Mutant(
        "let in while the first is inside, whose time is not over",
        ETCD,
        10,
        TWO_INSIDE,
        EtcdStore,
        "_enter",
        "entry.deadline = sent + claim.ttl",
        "entry.deadline = sent + claim.ttl / 2",
    ),
    Mutant(
        "a place in line that never ends",
        ETCD,
        75,
        FOR_EVER,
        claiming,
        "_look",
        "[op_put(entry.at.in_line, value, lease)]",
        "[op_put(entry.at.in_line, value, 0)]",
    ),
    Mutant(
        "what is just being claimed again is lost",
        ETCD,
        1746,
        TWO_INSIDE,
        Renewal,
        "renew",
        "entry is not None and entry.claiming",
        "False",
    ),
    Mutant(
        "a repeated claim is believed, whoever came between",
        CONSUL,
        7,
        TWO_INSIDE,
        ConsulStore,
        "_claim",
        "    sent = self.driver.now()\n",
        "    sent = self.driver.now()\n"
        "    if mine is not None and mine.token:\n        return Grant(claim, mine.token, claim.ttl)\n",
    ),
    Mutant(
        "a renewal brings back the lost",
        CONSUL,
        5,
        TWO_INSIDE,
        Renewing,
        "renew",
        "keeper.forget(kept.pop(holder))",
        "pass",
    ),
    Mutant(
        "an ear that is never heard of again",
        CONSUL,
        1,
        IN_VAIN,
        Ears,
        "_run",
        "index = answer.at if answer.at >= index else 0",
        "return",
    ),
    Mutant(
        "a place in line that never ends",
        CONSUL,
        195,
        FOR_EVER,
        Book,
        "without",
        "if packed[SESSION] not in dead}",
        "}",
    ),
    Mutant(
        "what was overdue is put out, whatever its owner has claimed since",
        CONSUL,
        149,
        TWO_INSIDE,
        Keeper,
        "_work",
        ", overdue=True)",
        ")",
    ),
]

BUDGET = 20_000


def finds(mutant: Mutant, seed: int) -> bool:
    report = run(seed, plan_of(mutant.store, seed), on_machines)
    return any(finding.checker in mutant.found_by for finding in report.findings)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.store}: {mutant.wrong}")
def test_what_is_wrong_is_found_out(mutant: Mutant) -> None:
    assert finds(mutant, mutant.seed) is False
    with spoilt(mutant):
        assert finds(mutant, mutant.seed) or any(finds(mutant, seed) for seed in range(BUDGET))
