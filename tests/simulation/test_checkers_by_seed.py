"""What seeds taught the checkers, on histories written by hand: what is forgiven, and right beside it what is not."""

from __future__ import annotations

import pytest

from holdfast.testing import checkers, interruptions
from holdfast.testing.history import (
    ACQUIRE,
    CLAIM,
    CLOSED,
    DONE,
    EVICT,
    FAILED,
    GRANTED,
    RENEW,
    RENEWED,
    SET_BACK,
    SET_FORWARD,
    TOLD_LOST,
    TURNED_AWAY,
    UNKNOWN,
    Note,
)
from holdfast.testing.simulation.searching import search
from holdfast.testing.simulation.swarm import CONSUL, ETCD, REDIS, REDIS_CLUSTER, REDLOCK

from .test_checkers import history, lock


@pytest.mark.parametrize(
    ("store", "seed"),
    [
        ("memory", 76040),
        ("memory", 90348),
        (REDIS, 79854),
        (REDIS_CLUSTER, 5461),
        (REDLOCK, 1483),
        (ETCD, 28972),
        (ETCD, 36752),
        (CONSUL, 27786),
    ],
)
def test_seeds_that_were_called_broken_and_are_not(store: str, seed: int) -> None:
    tally = search(store, seed, 1)
    assert tally.failed is None, str(tally.failed)


# Seed 1483 of Redlock: one node of the majority had the claim at once, the other one 0.6 s later, when an older claim had run
# out there. By then 0.6 s of its time were gone: its owner counts from its asking, and so may whoever comes next.
OLDER = lock("a", CLAIM, 0.0, 0.1, GRANTED, 1, ttl=1.0)
SLOW = lock("b", CLAIM, 0.6, 1.2, GRANTED, 2, ttl=1.0)


@pytest.mark.parametrize(
    ("at", "from_asking", "right"), [(1.65, True, True), (1.55, True, False), (1.65, False, False)]
)
def test_of_several_servers_time_runs_from_the_asking(at: float, from_asking: bool, right: bool) -> None:
    told = history(OLDER, SLOW, lock("c", CLAIM, 1.3, at, GRANTED, 3))
    assert (not list(checkers.check_linearizability(told, from_asking=from_asking))) is right


def test_of_several_servers_nobody_ends_its_own_early_either() -> None:
    """What is forgiven to those who go by their own clock is not forgiven there."""
    renewed = lock("b", RENEW, 1.3, 1.7, RENEWED, 2, ttl=1.0)  # told too late: its time was over at 1.6
    told = history(SLOW, renewed, lock("c", CLAIM, 1.8, 1.9, GRANTED, 3))
    assert list(checkers.check_linearizability(told, from_asking=True))
    assert not list(checkers.check_linearizability(told, own_clock=True))


# Seed 5461 of a Redis Cluster: an attempt was told a token, and at its next asking a lower one.


def test_an_attempt_that_is_told_a_lower_token_than_before_is_told_of() -> None:
    twice = lock("a", CLAIM, 0.0, 0.5, GRANTED, 7), lock("a", CLAIM, 0.5, 0.6, GRANTED, 6)
    [found] = checkers.check_tokens(history(*twice))
    assert "token 6 was asked for at 0.5000, after 7 was known" in found.message
    assert not list(checkers.check_tokens(history(*twice), lambda *_: True)), "the store said why"
    assert not list(checkers.check_tokens(history(*reversed(twice)))), "it was not known yet"
    same = lock("a", CLAIM, 0.0, 0.5, GRANTED, 7), lock("a", CLAIM, 0.5, 0.6, GRANTED, 7)
    assert not list(checkers.check_tokens(history(*same)))


# Seed 79854 of Redis: the higher token was told after the lower one, by an answer that was on its way for 12 s; meanwhile the
# clock was set back by more than what is remembered.


def test_tokens_that_may_have_fallen_unseen_need_an_excuse_and_a_clock_that_was_set_back() -> None:
    late, lower = lock("a", CLAIM, 0.0, 12.0, GRANTED, 9), lock("b", CLAIM, 11.0, 11.5, GRANTED, 2)
    more = lock("b", RENEW, 11.6, 11.7, RENEWED, 2), lock("a", RENEW, 12.1, 12.2, RENEWED, 9)

    def found(*notes: Note, excused: bool = True) -> bool:
        told = history(late, lower, *more, notes=notes)
        return bool(list(checkers.check_linearizability(told, lambda *_: excused)))

    assert found()
    assert not found(Note(5.0, "redis", SET_BACK))
    assert found(Note(5.0, "redis", SET_BACK), excused=False)
    assert found(Note(11.6, "redis", SET_BACK)), "that was after the lower one was told"
    assert found(Note(5.0, "redis", SET_FORWARD))


# Seed 27786 of Consul: a downgrade was answered after two renewals that were asked for later. Its owner goes by what it was told
# last, so its time is over with that answer.


@pytest.mark.parametrize(("at", "own_clock", "right"), [(1.35, True, True), (1.15, True, False), (1.35, False, False)])
def test_a_late_answer_shortens_what_its_owner_believes(at: float, own_clock: bool, right: bool) -> None:
    taken = lock("a", CLAIM, 0.0, 0.1, GRANTED, 1, ttl=1.0)
    again, renewed = lock("a", CLAIM, 0.2, 1.25, GRANTED, 1, ttl=1.0), lock("a", RENEW, 0.9, 0.95, RENEWED, 1, ttl=1.0)
    told = history(taken, again, renewed, lock("b", CLAIM, at - 0.05, at, GRANTED, 2))
    assert (not list(checkers.check_linearizability(told, own_clock=own_clock))) is right


def test_an_answer_that_was_there_before_that_of_a_renewal_shortens_nothing() -> None:
    taken = lock("a", CLAIM, 0.0, 0.1, GRANTED, 1, ttl=1.0)
    again, renewed = lock("a", CLAIM, 0.2, 0.92, GRANTED, 1, ttl=1.0), lock("a", RENEW, 0.9, 0.95, RENEWED, 1, ttl=1.0)
    told = history(taken, again, renewed, lock("b", CLAIM, 1.3, 1.35, GRANTED, 2))
    assert list(checkers.check_linearizability(told, own_clock=True))


# Seed 76040 of memory: who is turned away has nothing to take back.


@pytest.mark.parametrize(("outcomes", "right"), [((TURNED_AWAY,), True), ((UNKNOWN, TURNED_AWAY), False)])
def test_only_who_was_turned_away_each_time_has_nothing_to_take_back(outcomes: tuple[str, ...], right: bool) -> None:
    claims = [lock("a", CLAIM, 0.1 * at, 0.1 * at + 0.05, outcome) for at, outcome in enumerate(outcomes, 1)]
    acquire = lock("a", ACQUIRE, 0.0, 0.5, FAILED)
    acquire.detail = "Raised"
    assert (not list(interruptions.check_withdrawn(history(acquire, *claims), ("Raised",)))) is right


# Seed 90348 of memory (of a plan that no seed has any more): two tasks of a process asked for the same name. One was
# interrupted; what the other one has need not be taken back.


@pytest.mark.parametrize(("outcome", "right"), [(GRANTED, True), (FAILED, False)])
def test_what_another_task_of_the_process_was_given_need_not_be_taken_back(outcome: str, right: bool) -> None:
    claim = lock("a", CLAIM, 0.1, 0.2, GRANTED, 1)
    other, cut_short = lock("a", ACQUIRE, 0.0, 0.2, outcome, 1), lock("a", ACQUIRE, 0.0, 0.5, FAILED)
    other.holder, cut_short.holder, cut_short.detail = claim.holder if outcome == GRANTED else "", "", "Raised"
    told = history(other, cut_short, claim)
    assert (not list(interruptions.check_withdrawn(told, ("Raised",)))) is right


# Seed 540 of Redlock: two operators put out the same holder at the same time, one on some nodes, the other on the others.


@pytest.mark.parametrize(
    ("second", "from_asking", "right"), [(1.3, True, True), (1.3, False, False), (1.7, True, False)]
)
def test_two_who_evict_at_once_may_both_have_done_it_where_there_are_several_servers(
    second: float, from_asking: bool, right: bool
) -> None:
    taken = lock("a", CLAIM, 0.0, 0.1, GRANTED, 1, ttl=60.0)
    evictions = [lock(who, EVICT, at, at + 0.5, DONE, 1) for who, at in (("b", 1.0), ("c", second))]
    told = history(taken, *evictions)
    assert (not list(checkers.check_linearizability(told, from_asking=from_asking))) is right


# Seed 36752 of etcd: by its owner's time a lock was lost, by its store's it was not, since it was claimed twice; so nobody
# released it. Then its process ended, and its session with it.

TAKEN = lock("a", CLAIM, 0.0, 0.1, GRANTED, 1, ttl=2.0)
TOLD, OVER = Note(0.5, "a", TOLD_LOST, "lock", 1), Note(0.8, "a", CLOSED)


@pytest.mark.parametrize(
    ("notes", "at", "own_clock", "right"),
    [
        ((TOLD, OVER), 1.0, True, True),
        ((TOLD, OVER), 0.7, True, False),  # its session was still there
        ((TOLD,), 1.0, True, False),
        ((OVER,), 1.0, True, False),  # it believed in it, so it has to release it first
        ((OVER, TOLD._replace(at=0.9)), 1.0, True, False),
        ((TOLD._replace(process="c"), OVER), 1.0, True, False),
        ((TOLD, OVER._replace(process="c")), 1.0, True, False),
        ((TOLD._replace(token=7), OVER), 1.0, True, False),
        ((TOLD._replace(name="another"), OVER), 1.0, True, False),
        ((TOLD, OVER), 1.0, False, False),  # a server that ends leases by its own clock knows nothing of processes
    ],
)
def test_what_its_owner_was_told_is_lost_goes_with_the_session_of_its_process(
    notes: tuple[Note, ...], at: float, own_clock: bool, right: bool
) -> None:
    told = history(TAKEN, lock("b", CLAIM, at - 0.05, at, GRANTED, 2), notes=notes)
    assert (not list(checkers.check_linearizability(told, own_clock=own_clock))) is right
