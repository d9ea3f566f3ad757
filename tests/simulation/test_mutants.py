"""The checks can fail: each finds out the locks that are wrong in its way, and finds nothing wrong in the right one."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any, NamedTuple
from unittest import mock

import pytest

from holdfast import rule
from holdfast.claim import ROUND, Claim, Grant, Place, Verdict
from holdfast.drivers.base import Bell
from holdfast.drivers.simulated import Simulated
from holdfast.engine import Engine
from holdfast.errors import Unavailable
from holdfast.lease import HELD, Lease
from holdfast.renewal import Renewer
from holdfast.staying import Stay
from holdfast.stores.memory import MemoryStore, _Book, _Entry
from holdfast.testing.history import Recording
from holdfast.testing.simulation import NO_TROUBLE, ROUGH, Faults, Fence, Plan, Trouble, behind_network, run
from holdfast.testing.simulation.workload import LENDING, SHARING

Patch = Callable[[], AbstractContextManager[object]]


# One lock that everybody wants, leases that are often lost, messages that are often late or come twice.
CROWDED = Plan(
    processes=5,
    rounds=6,
    kinds=("mutex",),
    ttls=(1.0,),
    faults=ROUGH._replace(slow=0.15, duplicate=0.15, slow_by=(0.05, 1.5)),
    trouble=Trouble(pause=1.0, crash=0.0, cancel=0.0, evict=0.7, partition=0.2),
)


# Late writes of the evicted, between a reader's read and its write.
LATE = CROWDED._replace(
    timeout=5.0,
    faults=Faults(slow=0.4, slow_by=(0.05, 3.0)),
    trouble=NO_TROUBLE._replace(pause=1.0, evict=2.0),
)
# Renewals that are done and not confirmed.
UNCONFIRMED = CROWDED._replace(
    hold=3.0, faults=Faults(lose_reply=0.7, loses_only="renew"), trouble=NO_TROUBLE._replace(pause=0.3)
)
JUMPY = CROWDED._replace(trouble=NO_TROUBLE._replace(pause=0.5, wall_jump=3.0))
# Late copies of claims, which arrive when their sender has been put out.
TWICE = CROWDED._replace(
    processes=2, faults=Faults(slow=0.4, slow_by=(0.05, 3.0), duplicate=0.5), trouble=NO_TROUBLE._replace(evict=3.0)
)


class Mutant(NamedTuple):
    wrong: str
    found_by: tuple[str, ...]  # any of these checkers
    store: type[MemoryStore] = MemoryStore
    patch: Patch = nullcontext
    plan: Plan = Plan()


# ---- wrong stores


class PlainDelete(MemoryStore):
    """Releases the lock, whoever has it."""

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        book = self._space.books.get(claim.name)
        if book is not None and claim.holder not in book.line:
            for holder in list(book.inside)[:1]:
                claim = claim._replace(holder=holder)
        return await super().release(claim, within)


class TokensNotRising(MemoryStore):
    def _mint(self, name: str) -> int:
        self._space.last_token += 1
        return 10_000 - self._space.last_token


class ImmortalWaiters(MemoryStore):
    def _expire(self, book: _Book, now: float) -> None:
        for entry in book.line.values():
            entry.expires = now + 60.0
        super()._expire(book, now)


class RingsTooEarly(MemoryStore):
    """The bell rings, and only then the state changes."""

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        book = self._space.books.get(claim.name)
        if book is not None and claim.holder in book.inside:
            for entry in list(book.line.values())[:1]:
                self._ring(claim.name, entry, ())
            await self._driver.sleep(0.05)
        with mock.patch.object(MemoryStore, "_ring"):
            return await super().release(claim, within)


class RingsNobody(MemoryStore):
    def _ring(self, name: str, entry: _Entry | None, watchers: Sequence[Bell]) -> None:
        pass


class ExpiresEarly(MemoryStore):
    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        answer = await super().claim(claim._replace(ttl=claim.ttl / 3), within)
        return (
            answer._replace(claim=claim, ttl=claim.ttl) if isinstance(answer, Grant) else answer._replace(claim=claim)
        )


class RenewsTheExpired(MemoryStore):
    """Brings back who had lost it, over the head of who has it now."""

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        for grant in grants:
            book = self._space.books.setdefault(grant.claim.name, _Book(grant.claim.capacity))
            if grant.claim.holder not in book.inside:
                entry = book.inside[grant.claim.holder] = _Entry(grant.claim, self._driver.now())
                entry.token = grant.token
                book.used += entry.units
        return await super().renew(grants, within)


class RenewsByHolder(MemoryStore):
    """Does not look at the token."""

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        books = self._space.books
        inside = [books[g.claim.name].inside.get(g.claim.holder) if g.claim.name in books else None for g in grants]
        held = [g._replace(token=entry.token) if entry else g for g, entry in zip(grants, inside, strict=True)]
        answers = await super().renew(held, within)
        return [grant if answer else None for grant, answer in zip(grants, answers, strict=True)]


class IgnoresCapacity(MemoryStore):
    def _decide(self, book: _Book, claim: Claim, now: float) -> Grant | Place:
        with mock.patch.object(rule, "admit", lambda *_, ahead, fair: not ahead):
            return super()._decide(book, claim, now)


# ---- wrong clients


def deadline_from_the_reply() -> AbstractContextManager[object]:
    def born(self: Lease, engine: Engine, grant: Grant, sent: float) -> None:
        original(self, engine, grant, engine.driver.now())

    def extended(self: Lease, grant: Grant, sent: float) -> None:
        extend(self, grant, self._engine.driver.now())

    original, extend = Lease.__init__, Lease._extend
    return mock.patch.multiple(Lease, __init__=born, _extend=extended)


def wall_clock_at_the_client() -> AbstractContextManager[object]:
    def now(self: Simulated) -> float:
        return original(self) if self.process.name == "server" else self.wall_us() / 1e6

    original = Simulated.now
    return mock.patch.object(Simulated, "now", now)


def renew_after_loss() -> AbstractContextManager[object]:
    async def bring_back(renewer: Renewer, lease: Lease) -> None:
        sent = renewer._driver.now()
        with contextlib.suppress(Unavailable):
            [grant] = await renewer._store.renew([lease._grant], 1.0)
            if isinstance(grant, Grant):
                lease._state = HELD
                lease._extend(grant, sent)

    def announce(self: Renewer, lost: Iterable[Lease]) -> None:
        lost = list(lost)
        original(self, lost)
        for lease in lost:
            self._driver.spawn(partial(bring_back, self, lease), "resurrection")

    original = Renewer.announce
    return mock.patch.object(Renewer, "announce", announce)


def nonce_used_twice() -> AbstractContextManager[object]:
    numbers = itertools.count()

    def twice() -> str:
        return f"nonce {next(numbers) // 2}"

    return mock.patch("holdfast.engine.new_holder", twice)


class Believer(Recording):
    """Whoever was rung is inside: no need to ask again."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rung: set[str] = set()
        self._made_up = itertools.count(2 * 10**15)

    async def wait(self, place: Place, timeout: float) -> None:
        await super().wait(place, timeout)
        self._rung.add(place.claim.holder)

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        if claim.holder in self._rung:
            return Grant(claim, next(self._made_up), claim.ttl)
        return await super().claim(claim, within)


def no_recheck_after_waiting() -> AbstractContextManager[object]:
    return mock.patch("holdfast.testing.simulation.workload.Recording", Believer)


def nobody_is_seen_inside() -> AbstractContextManager[object]:
    """What is lent is lent once more, or given up under who is inside."""
    return mock.patch.object(Stay, "borrowers", return_value=[])


MUTANTS = [
    Mutant("plain delete on release", ("linearizability",), PlainDelete),
    Mutant("deadline from the reply", ("honesty",), patch=deadline_from_the_reply, plan=CROWDED),
    Mutant("wall clock at the client", ("honesty",), patch=wall_clock_at_the_client, plan=JUMPY),
    Mutant("fence on writes only", ("storage",), plan=LATE._replace(fence=Fence.WRITES)),
    Mutant("no fence", ("storage",), plan=Plan(fence=Fence.NONE)),
    Mutant("renewal brings back the lost, at the client", ("honesty",), patch=renew_after_loss, plan=UNCONFIRMED),
    Mutant("renewal brings back the lost, at the store", ("linearizability",), RenewsTheExpired, plan=CROWDED),
    Mutant("renewal does not look at the token", ("linearizability",), RenewsByHolder, plan=TWICE),
    Mutant("!= instead of < at the storage", ("storage",), plan=Plan(fence=Fence.NOT_EQUAL)),
    Mutant("a nonce used twice", ("tokens",), patch=nonce_used_twice),
    Mutant("bell rung before the state changed", ("handoff",), RingsTooEarly),
    Mutant("bell not rung", ("handoff",), RingsNobody),
    Mutant("queue entry without expiry", ("liveness",), ImmortalWaiters),
    Mutant("no re-check after waiting", ("honesty",), patch=no_recheck_after_waiting),
    Mutant("token not rising", ("tokens",), TokensNotRising),
    Mutant("lease ends early at the store", ("linearizability",), ExpiresEarly),
    Mutant("capacity ignored", ("linearizability",), IgnoresCapacity),
    Mutant("lent to two at once", ("storage",), patch=nobody_is_seen_inside, plan=LENDING),
    Mutant("given up while readers are inside", ("honesty",), patch=nobody_is_seen_inside, plan=SHARING),
]


BUDGET = 300  # seeds


@cache
def the_right_one_passes(seed: int, plan: Plan) -> bool:
    return run(seed, plan).ok


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.wrong)
def test_what_is_wrong_is_found_out(mutant: Mutant) -> None:
    for seed in range(BUDGET):
        assert the_right_one_passes(seed, mutant.plan._replace(fence=Fence.READS_AND_WRITES)), f"seed {seed}"
        with mutant.patch():
            report = run(seed, mutant.plan, behind_network(mutant.store))
        if any(finding.checker in mutant.found_by for finding in report.findings):
            return
    pytest.fail(f"{mutant.wrong}: not found out by {mutant.found_by} in {BUDGET} seeds")
