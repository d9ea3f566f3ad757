"""The simulation of etcd and Consul can fail: each of these mistakes is found, by the plans that any seed draws."""

from __future__ import annotations

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
from holdfast.testing.simulation.swarm import CONSUL, ETCD

from .spoiling import Mutant, check_that_it_is_found

TWO_INSIDE = ("linearizability", "tokens", "storage")
IN_VAIN = ("handoff", "liveness")
FOR_EVER = ("leak", "liveness")

MUTANTS = [
    Mutant(
        "a renewal brings back the lost",
        ETCD,
        75,
        TWO_INSIDE,
        Renewal,
        "_still",
        "    entry = question.entry\n",
        "    entry = question.entry\n    return True\n",
    ),
    Mutant(
        "a watch that is never heard of again",
        ETCD,
        4,
        IN_VAIN,
        Watches,
        "hear",
        "if not (heard.events or heard.canceled):",
        "if not heard.canceled:",
    ),
    Mutant(
        "let in while the first is inside, whose time is not over",
        ETCD,
        2,
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
        1599,
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


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_what_is_wrong_is_found_out(mutant: Mutant) -> None:
    check_that_it_is_found(mutant)
