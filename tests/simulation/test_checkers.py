"""The checkers, on histories written by hand: what they must find, and what they must let pass."""

from __future__ import annotations

import pytest

from holdfast.testing import checkers
from holdfast.testing.history import (
    ACQUIRE,
    CHECK,
    CLAIM,
    DONE,
    EVICT,
    FORGOT,
    GONE,
    GRANTED,
    LEFT,
    LOST,
    OPEN,
    PLACED,
    READ,
    RELEASE,
    RENEW,
    RENEWED,
    SET_BACK,
    STALE,
    TURNED_AWAY,
    UNKNOWN,
    WRITE,
    Entry,
    History,
    Note,
    Operation,
)


def lock(
    who: str, kind: str, invoked: float, returned: float, outcome: str, token: int = 0, *, ttl: float = 2.0
) -> Operation:
    return Operation(who, kind, "lock", invoked, returned, outcome, f"h-{who}", token, ttl=ttl)


def touch(who: str, kind: str, at: float, outcome: str, token: int, *value: Entry) -> Operation:
    return Operation(who, kind, "account", at, at + 0.1, outcome, token=token, value=value)


def history(*operations: Operation, final: tuple[Entry, ...] | None = None, notes: tuple[Note, ...] = ()) -> History:
    told = History()
    told.operations += operations
    told.notes += notes
    if final is not None:
        told.final["account"] = final
    return told


# ---- storage


def test_an_acknowledged_update_that_is_not_there_at_the_end_is_lost() -> None:
    written = touch("a", WRITE, 1, DONE, 5, ("u1", 5))
    assert not list(checkers.check_storage(history(written, final=(("u1", 5),))))
    [found] = checkers.check_storage(history(written, final=()))
    assert "lost" in found.message


def test_an_unanswered_update_may_be_there_or_not() -> None:
    written = Operation("a", WRITE, "account", 1.0, token=5, value=(("u1", 5),))
    assert not list(checkers.check_storage(history(written, final=(("u1", 5),))))
    assert not list(checkers.check_storage(history(written, final=())))


def test_an_older_token_must_not_be_accepted_after_a_newer_one() -> None:
    read = touch("b", READ, 1, DONE, 6)
    assert list(checkers.check_storage(history(read, touch("a", WRITE, 2, DONE, 5))))
    assert not list(checkers.check_storage(history(read, touch("a", WRITE, 1.05, DONE, 5)))), (
        "they were at the same time"
    )
    assert not list(checkers.check_storage(history(read, touch("a", WRITE, 2, STALE, 5))))


def test_nobody_is_refused_unless_a_newer_token_came() -> None:
    [found] = checkers.check_storage(history(touch("a", READ, 1, DONE, 5), touch("b", READ, 2, STALE, 6)))
    assert "though nobody had come" in found.message


# ---- tokens


def test_two_must_not_have_one_token() -> None:
    told = history(lock("a", CLAIM, 0, 1, GRANTED, 7), lock("b", CLAIM, 5, 6, GRANTED, 7))
    assert list(checkers.check_tokens(told))


def test_tokens_rise_with_time_and_a_repeated_claim_keeps_its_own() -> None:
    repeated = lock("a", CLAIM, 0, 1, GRANTED, 7), lock("a", CLAIM, 3, 4, GRANTED, 7)
    assert not list(checkers.check_tokens(history(*repeated, lock("b", CLAIM, 5, 6, GRANTED, 8))))
    assert list(checkers.check_tokens(history(*repeated, lock("b", CLAIM, 5, 6, GRANTED, 6))))
    assert not list(checkers.check_tokens(history(*repeated, lock("b", CLAIM, 0.5, 6, GRANTED, 6))))


# ---- linearizability


def explained(*operations: Operation, own_clock: bool = False) -> bool:
    return not list(checkers.check_linearizability(history(*operations), own_clock=own_clock))


A_HOLDS = lock("a", CLAIM, 0, 0.1, GRANTED, 1)


def test_a_second_holder_before_the_first_has_left_or_run_out_is_not_explained() -> None:
    assert not explained(A_HOLDS, lock("b", CLAIM, 1.0, 1.1, GRANTED, 2))
    assert explained(A_HOLDS, lock("b", CLAIM, 2.0, 2.1, GRANTED, 2)), "the ttl was over"
    assert explained(A_HOLDS, lock("a", RELEASE, 0.9, 1.05, LEFT), lock("b", CLAIM, 1.0, 1.1, GRANTED, 2))
    assert not explained(A_HOLDS, lock("b", CLAIM, 1.0, 1.1, GRANTED, 2), lock("a", RELEASE, 1.2, 1.3, LEFT))


def test_a_renewal_makes_it_last_longer() -> None:
    renewed = lock("a", RENEW, 1.0, 1.1, RENEWED)
    assert not explained(A_HOLDS, renewed, lock("b", CLAIM, 2.5, 2.6, GRANTED, 2))
    assert explained(A_HOLDS, renewed, lock("b", CLAIM, 3.0, 3.1, GRANTED, 2))


def test_what_ran_out_for_another_cannot_be_renewed() -> None:
    b_holds = lock("b", CLAIM, 2.5, 2.6, GRANTED, 2)
    assert not explained(A_HOLDS, b_holds, lock("a", RENEW, 2.7, 2.8, RENEWED))
    assert explained(A_HOLDS, b_holds, lock("a", RENEW, 2.7, 2.8, LOST))


def test_nobody_loses_a_lease_before_its_time() -> None:
    assert not explained(A_HOLDS, lock("a", RENEW, 1.0, 1.1, LOST))


def test_an_unanswered_release_may_have_happened_at_any_later_time_or_never() -> None:
    unanswered = lock("a", RELEASE, 0.5, OPEN, UNKNOWN)
    assert explained(A_HOLDS, unanswered, lock("b", CLAIM, 1.0, 1.1, GRANTED, 2))
    assert explained(A_HOLDS, unanswered, lock("a", RENEW, 1.0, 1.1, RENEWED))
    assert not explained(
        A_HOLDS,
        unanswered,
        lock("b", CLAIM, 1.0, 1.1, GRANTED, 2),
        lock("a", RENEW, 1.2, 1.3, RENEWED),
    )


def test_an_eviction_makes_room_at_once() -> None:
    evicted = Operation("operator", EVICT, "lock", 0.5, 0.6, DONE, token=1, past=5)
    assert explained(A_HOLDS, evicted, lock("b", CLAIM, 1.0, 1.1, GRANTED, 6))
    assert not explained(A_HOLDS, evicted, lock("b", CLAIM, 1.0, 1.1, GRANTED, 4)), (
        "its token must be past the eviction's"
    )


def test_where_a_process_ends_its_own_claims_their_time_runs_from_when_they_were_asked_for() -> None:
    before = lock("z", CLAIM, 0, 0.1, GRANTED, 1), lock("z", RELEASE, 1.0, 1.1, LEFT)
    waited = lock("a", CLAIM, 0.5, 1.5, GRANTED, 2)
    for at, own_clock in ((2.4, True), (2.6, False)):
        assert not explained(*before, waited, lock("b", CLAIM, at, at, GRANTED, 3), own_clock=own_clock)
    assert explained(*before, waited, lock("b", CLAIM, 2.6, 2.6, GRANTED, 3), own_clock=True)


def test_a_claim_that_arrives_late_does_not_end_what_its_owner_has_renewed_since() -> None:
    unanswered, granted = lock("a", CLAIM, 0, OPEN, UNKNOWN), lock("a", CLAIM, 1, 1.1, GRANTED, 1)
    renewed = lock("a", RENEW, 2.5, 2.6, RENEWED)
    for own_clock in (False, True):
        for at, right in ((4.4, False), (4.7, True)):
            other = lock("b", CLAIM, at, at, GRANTED, 2)
            assert explained(unanswered, granted, renewed, other, own_clock=own_clock) is right


def test_who_is_turned_away_was_put_out_only_if_it_had_asked_for_less_time() -> None:
    other = lock("b", CLAIM, 1.0, 1.1, GRANTED, 2)
    for own_clock in (False, True):
        assert not explained(A_HOLDS, lock("a", CLAIM, 0.5, 0.9, TURNED_AWAY), other, own_clock=own_clock)
        assert explained(A_HOLDS, lock("a", CLAIM, 0.5, 0.9, TURNED_AWAY, ttl=0.3), other, own_clock=own_clock)


def test_units_are_counted() -> None:
    three = [Operation(f"p{n}", CLAIM, "lock", n, n + 0.1, GRANTED, f"h{n}", n + 1, 1, 2, 9.0) for n in range(3)]
    assert explained(*three[:2])
    assert not explained(*three)


def shared(who: str, units: int, invoked: float, returned: float, token: int) -> Operation:
    return Operation(who, CLAIM, "lock", invoked, returned, GRANTED, f"h-{who}", token, units, 2, ttl=4.0)


def test_a_downgrade_that_was_asked_for_twice_may_have_let_others_in_at_the_first_time() -> None:
    """Seed 3810 of Consul: its answer was lost, and when it was asked for again, the lease was over and a new one given."""
    writes, downgraded = shared("a", 2, 0.0, 0.1, 1), shared("a", 1, 0.5, 9.0, 3)
    assert explained(writes, downgraded, shared("b", 1, 1.0, 1.1, 2))
    assert not explained(writes, downgraded, shared("b", 2, 1.0, 1.1, 2)), "there was never room for that"
    assert not explained(writes, shared("a", 1, 1.5, 9.0, 3), shared("b", 1, 1.0, 1.1, 2)), (
        "it had not been asked for yet"
    )


# ---- overlap, liveness, handoff


def test_overlaps_are_counted() -> None:
    holds = [Operation(who, ACQUIRE, "lock", at, at, GRANTED, f"h-{who}", 1) for who, at in (("a", 1.0), ("b", 3.0))]
    told = history(*holds, lock("a", RELEASE, 3.5, 3.6, GONE), lock("b", RELEASE, 4.0, 4.1, LEFT))
    [overlap] = checkers.overlaps(told)
    assert (overlap.since, overlap.seconds, overlap.who) == (3.0, 0.5, ("a", "b"))


def test_what_is_lent_twice_to_one_after_the_other_is_no_overlap() -> None:
    first, second = (Operation("a", ACQUIRE, "lock", at, at, GRANTED, "h-a", 1) for at in (1.0, 2.0))
    uses = [lock("a", CHECK, at, at, DONE, 1) for at in (1.5, 2.5)]
    released = lock("a", RELEASE, 3.0, 3.1, LEFT)
    assert not checkers.overlaps(history(first, uses[0], second, uses[1], released))
    other = Operation("b", ACQUIRE, "lock", 2.4, 2.4, GRANTED, "h-b", 2)
    late = lock("b", CHECK, 2.6, 2.6, DONE, 2)
    [overlap] = checkers.overlaps(history(first, uses[0], second, uses[1], other, late, released))
    assert (overlap.since, set(overlap.who)) == (2.4, {"a", "b"})


def test_who_waits_too_long_after_the_healing_is_told_of() -> None:
    waits = Operation("a", ACQUIRE, "lock", 1.0, 20.0, GRANTED)
    assert list(checkers.check_liveness(history(waits), healed=5.0, within=10.0))
    assert not list(checkers.check_liveness(history(waits), healed=15.0, within=10.0))
    died = Note(6.0, "a", "crashed")
    assert not list(checkers.check_liveness(history(waits, notes=(died,)), healed=5.0, within=10.0))


def test_a_release_must_wake_whoever_is_in_line() -> None:
    story = A_HOLDS, lock("b", CLAIM, 0.2, 0.3, PLACED), lock("a", RELEASE, 0.5, 0.6, LEFT)
    late, prompt = lock("b", CLAIM, 1.2, 1.3, GRANTED, 2), lock("b", CLAIM, 0.6, 0.7, GRANTED, 2)
    assert list(checkers.check_handoff(history(*story, late), healed=0.0, within=0.3))
    assert not list(checkers.check_handoff(history(*story, prompt), healed=0.0, within=0.3))


def some(units: int, one: Operation) -> Operation:
    one.units, one.capacity = units, 3
    return one


@pytest.mark.parametrize(("units", "waits", "found"), [(1, 2, True), (1, 3, False), (3, 1, False)])
def test_a_downgrade_must_wake_whoever_is_in_line_if_there_is_room_for_all(units: int, waits: int, found: bool) -> None:
    whole, fewer = some(3, lock("a", CLAIM, 0.0, 0.1, GRANTED, 1)), some(units, lock("a", CLAIM, 0.5, 0.6, GRANTED, 1))
    waiting = some(waits, lock("b", CLAIM, 0.2, 0.3, PLACED))
    late, prompt = (some(waits, lock("b", CLAIM, at, at + 0.1, GRANTED, 2)) for at in (1.2, 0.6))
    assert bool(list(checkers.check_handoff(history(whole, waiting, fewer, late), healed=0.0, within=0.3))) is found
    assert not list(checkers.check_handoff(history(whole, waiting, fewer, prompt), healed=0.0, within=0.3))
    writer = some(3, lock("c", CLAIM, 0.25, OPEN, UNKNOWN))
    told = history(whole, waiting, writer, fewer, late)
    assert not list(checkers.check_handoff(told, healed=0.0, within=0.3)), "it may be ahead in line"


def test_what_landed_after_its_release_may_be_in_the_way_where_a_clock_was_set_back() -> None:
    unseen = lock("c", CLAIM, 0.0, OPEN, UNKNOWN), lock("c", RELEASE, 0.1, 0.2, GONE)
    story = A_HOLDS, *unseen, lock("b", CLAIM, 0.2, 0.3, PLACED), lock("a", RELEASE, 0.5, 0.6, LEFT)
    set_back = Note(0.3, "server", SET_BACK)
    assert list(checkers.check_handoff(history(*story), healed=0.0, within=0.3))
    assert not list(checkers.check_handoff(history(*story, notes=(set_back,)), healed=0.0, within=0.3))
    answered = A_HOLDS, lock("c", CLAIM, 0.0, 0.1, PLACED), *story[2:]
    assert list(checkers.check_handoff(history(*answered, notes=(set_back,)), healed=0.0, within=0.3))


def test_who_left_just_before_a_replica_took_over_may_be_inside_again_where_a_clock_was_set_back() -> None:
    """Seed 847 of Redis. Who had left long before, and where one name was forgotten, nobody comes back."""

    def found(left: float, *notes: Note) -> bool:
        gone = lock("c", CLAIM, left - 0.2, left - 0.1, GRANTED, 1), lock("c", RELEASE, left - 0.1, left, LEFT)
        story = lock("a", CLAIM, 9.0, 9.1, GRANTED, 2), lock("b", CLAIM, 9.2, 9.3, PLACED, ttl=9.0)
        told = history(*gone, *story, lock("a", RELEASE, 9.5, 9.6, LEFT), notes=notes)
        return bool(list(checkers.check_handoff(told, healed=8.0, within=0.3)))

    set_back, takes_over = Note(7.0, "redis", SET_BACK), Note(6.0, "redis", FORGOT)
    assert found(5.0)
    assert found(5.0, takes_over), "without that clock it has run out"
    assert not found(5.0, takes_over, set_back)
    assert found(3.0, takes_over, set_back)
    assert found(5.0, takes_over._replace(name="lock"), set_back)


def test_who_is_refused_while_a_slot_moves_has_its_time_from_then_on() -> None:
    story = A_HOLDS, lock("b", CLAIM, 0.2, 0.3, PLACED), lock("a", RELEASE, 0.5, 0.6, LEFT)
    for at, right in ((1.2, True), (1.4, False)):
        told = history(*story, lock("b", CLAIM, at, at, GRANTED, 2))
        assert (not list(checkers.check_handoff(told, 0.0, 0.3, lambda name, since, until: 1.0))) is right


# ---- honesty


def held_at(at: float, outcome: str = DONE) -> Operation:
    return lock("a", CHECK, at, at, outcome, 1)


def test_a_lease_may_say_that_it_is_held_for_a_ttl_from_when_it_was_asked_for() -> None:
    slow = lock("a", CLAIM, 0.0, 1.5, GRANTED, 1)
    assert not list(checkers.check_honesty(history(slow, held_at(1.9))))
    assert list(checkers.check_honesty(history(slow, held_at(2.1)))), "from the request, not from the reply"
    assert not list(checkers.check_honesty(history(slow, held_at(2.1, LOST))))
    renewed = lock("a", RENEW, 1.6, 1.7, RENEWED, 1)
    assert not list(checkers.check_honesty(history(slow, renewed, held_at(3.5))))


def test_a_lease_that_was_lost_stays_lost() -> None:
    lost = lock("a", RENEW, 1.0, 1.1, LOST, 1)
    assert list(checkers.check_honesty(history(A_HOLDS, lost, held_at(1.5))))
    signalled = Note(1.2, "a", "lost", "lock", 1)
    assert list(checkers.check_honesty(history(A_HOLDS, held_at(1.5), notes=(signalled,))))
    assert not list(checkers.check_honesty(history(A_HOLDS, held_at(1.1), notes=(signalled,))))


def test_a_lease_that_nobody_granted_is_not_held() -> None:
    assert list(checkers.check_honesty(history(held_at(1.0))))
