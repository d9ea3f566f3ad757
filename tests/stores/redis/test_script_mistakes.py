"""The scripts with one mistake each: the scenario that is meant to find it does, and passes without it."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable

import pytest

import holdfast
from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.redis import scripts, store
from holdfast.stores.redis.keys import pack
from holdfast.stores.redis.scripts import Script
from holdfast.sync import Lease, Locks
from holdfast.testing.servers.redis import Redis

from ..hands import Background, until

pytestmark = pytest.mark.server
Scenario = Callable[[Locks, Redis], None]


def claim(name: str = "x", ttl: float = 30.0, units: int = 1, capacity: int = 1) -> Claim:
    return Claim(name, new_holder(), "somebody", ttl, units, capacity)


def ask(locks: Locks, asked: Claim) -> Grant | Place:
    return finish(locks._engine.store.claim(asked))


def only_the_holder_releases(locks: Locks, _: Redis) -> None:
    lease = locks.lock("x").acquire()
    assert not finish(locks._engine.store.release(claim()))
    assert locks.inspect("x").holders
    assert lease.release()


def a_repeated_claim_gets_its_token_again(locks: Locks, _: Redis) -> None:
    mine = claim(capacity=2)
    first = ask(locks, mine)
    assert isinstance(first, Grant)
    assert isinstance(ask(locks, claim(capacity=2)), Grant)
    second = ask(locks, mine)
    assert first == second


FAR_AHEAD = 3 * 3600 * 1_000_000  # further than a name's last token is remembered after its last use


def set_mark(redis: Redis) -> int:
    """As if the clock had been set back: the last token is far ahead of it."""
    ahead = int(time.time() * 1_000_000) + FAR_AHEAD
    script = "return redis.call('SET', KEYS[1], 'hf:idle' .. struct.pack('>d', ARGV[1]), 'PX', 60000)"
    redis.execute("EVAL", script, 1, "hf:{x}", ahead)
    return ahead


def tokens_rise_though_the_clock_does_not(locks: Locks, redis: Redis) -> None:
    ahead = set_mark(redis)
    assert locks.lock("x").acquire().token > ahead


def remembered_for_long(redis: Redis) -> None:
    left = redis.execute("PTTL", "hf:{x}")
    assert isinstance(left, int)
    assert left > FAR_AHEAD // 1000, "the last token is forgotten before the clock has passed it"


def a_token_ahead_of_the_clock_outlives_it(locks: Locks, redis: Redis) -> None:
    set_mark(redis)
    mine = claim()
    grant = ask(locks, mine)
    assert isinstance(grant, Grant)
    remembered_for_long(redis)
    ask(locks, mine)  # repeated
    remembered_for_long(redis)


def also_when_it_is_renewed(locks: Locks, redis: Redis) -> None:
    set_mark(redis)
    grant = ask(locks, claim())
    assert isinstance(grant, Grant)
    assert list(finish(locks._engine.store.renew([grant], 1.0))) == [grant]
    remembered_for_long(redis)


def also_with_many_inside(locks: Locks, redis: Redis) -> None:
    set_mark(redis)
    grants = [ask(locks, claim(capacity=2)) for _ in range(2)]
    remembered_for_long(redis)
    for grant in grants:
        assert isinstance(grant, Grant)
        assert list(finish(locks._engine.store.renew([grant], 1.0))) == [grant]
    remembered_for_long(redis)


def also_when_many_have_left(locks: Locks, redis: Redis) -> None:
    set_mark(redis)
    grants = [ask(locks, claim(capacity=2)) for _ in range(2)]
    for grant in grants:
        assert finish(locks._engine.store.release(grant.claim))
    remembered_for_long(redis)


def move_its_slot(redis: Redis) -> None:
    """As if to a node whose clock is far behind: what was written there is of the future, what is left of its time is not."""
    script = """
        local state = redis.call('GET', KEYS[1])
        local token, since, ttl, ends = struct.unpack('>dddd', state, 8)
        local later = struct.pack('>dddd', token + ARGV[1], since + ARGV[1], ttl, ends + ARGV[1])
        return redis.call('SET', KEYS[1], string.sub(state, 1, 7) .. later .. string.sub(state, 40), 'PX', 60000)
    """
    assert redis.execute("EVAL", script, 1, "hf:{x}", FAR_AHEAD) == b"OK"


def also_when_its_slot_has_moved_and_it_leaves(locks: Locks, redis: Redis) -> None:
    mine = claim()
    ask(locks, mine)
    move_its_slot(redis)
    assert finish(locks._engine.store.release(mine))
    remembered_for_long(redis)


def also_when_its_slot_has_moved_and_others_ask(locks: Locks, redis: Redis) -> None:
    ask(locks, claim())
    move_its_slot(redis)
    assert isinstance(ask(locks, claim()._replace(queue=False)), Place)
    remembered_for_long(redis)


def a_crowd_that_has_died_holds_up_nobody(locks: Locks, redis: Redis) -> None:
    lease = locks.lock("x").acquire()
    with holdfast.connect(redis.url) as crowd:
        for _number in range(250):
            ask(crowd, claim())
    assert len(locks.inspect("x").waiters) == 250
    the_next_comes_in_soon(locks, lease, behind=250)


def a_crowd_that_has_died_inside_is_out_at_the_first_asking(locks: Locks, _: Redis) -> None:
    for _number in range(250):
        ask(locks, claim(ttl=1.0, capacity=1000))
    until(lambda: not locks.inspect("x").holders)
    assert isinstance(ask(locks, claim(units=1000, capacity=1000)._replace(queue=False)), Grant)


def an_overwritten_key_costs_no_other_its_renewal(locks: Locks, redis: Redis) -> None:
    grants = [ask(locks, claim(name)) for name in "abc"]
    redis.execute("DEL", "hf:{b}")
    redis.execute("LPUSH", "hf:{b}", "something else")
    with contextlib.suppress(holdfast.Unavailable):
        verdicts = finish(locks._engine.store.renew([one for one in grants if isinstance(one, Grant)], 1.0))
        assert list(verdicts) == [grants[0], None, grants[2]]
        return
    raise AssertionError("nobody was renewed")


def a_line_that_the_server_has_evicted_is_joined_again(locks: Locks, redis: Redis) -> None:
    ask(locks, claim())
    mine = claim()
    ask(locks, mine)
    redis.execute("DEL", "hf:{x}:line")
    ask(locks, mine)
    assert redis.execute("ZCARD", "hf:{x}:line") == 1


def a_name_that_was_overwritten_is_in_nobodys_list(locks: Locks, redis: Redis) -> None:
    for name in "abc":
        ask(locks, claim(name))
    redis.execute("SET", "hf:{b}", "hf:sole")
    with contextlib.suppress(holdfast.Unavailable):
        assert locks.names() == ["a", "c"]
        return
    raise AssertionError("one foreign key hides all names")


def a_waiter_that_was_cut_off_keeps_its_place(locks: Locks, redis: Redis) -> None:
    for number in range(20):
        lease = locks.lock(f"x{number}").acquire()
        first, second = claim(f"x{number}"), claim(f"x{number}")
        ask(locks, first)
        ask(locks, second)
        redis.execute("CLIENT", "KILL", "TYPE", "pubsub")
        released = time.monotonic()
        lease.release()
        answers = [ask(locks, second), ask(locks, first)]
        if time.monotonic() < released + 0.4:  # it has half a second to come back
            assert [type(answer) for answer in answers] == [Place, Grant]
            return


def what_is_over_is_not_renewed(locks: Locks, _: Redis) -> None:
    grant = ask(locks, claim(ttl=0.1))
    assert isinstance(grant, Grant)
    time.sleep(0.2)
    assert finish(locks._engine.store.renew([grant], 1.0)) == [None]


def a_grant_is_renewed_by_its_own_holder_only(locks: Locks, _: Redis) -> None:
    grant = ask(locks, claim())
    assert isinstance(grant, Grant)
    other = grant._replace(claim=claim())
    assert list(finish(locks._engine.store.renew([other, grant], 1.0))) == [None, grant]


def the_capacity_is_kept(locks: Locks, _: Redis) -> None:
    answers = [ask(locks, claim(capacity=2)) for _ in range(3)]
    assert [type(answer) for answer in answers] == [Grant, Grant, Place]


def nobody_overtakes(locks: Locks, _: Redis) -> None:
    inside = ask(locks, claim(units=2, capacity=3))
    waiting = claim(units=3, capacity=3)
    assert isinstance(ask(locks, waiting), Place)
    assert isinstance(ask(locks, claim(units=1, capacity=3)), Place)
    finish(locks._engine.store.release(inside.claim))


def a_dead_waiter_expires(locks: Locks, _: Redis) -> None:
    for _number in range(2):
        ask(locks, claim(ttl=0.1))  # the first inside, the second in line; both dead
    time.sleep(0.2)
    assert isinstance(ask(locks, claim()), Grant)


def a_release_wakes_the_next(locks: Locks, _: Redis) -> None:
    the_next_comes_in_soon(locks, locks.lock("x").acquire())


def the_next_comes_in_soon(locks: Locks, lease: Lease, behind: int = 0) -> None:
    def enter() -> None:
        with contextlib.suppress(holdfast.NotAcquired):
            locks.lock("x", timeout=4).acquire()

    thread = threading.Thread(target=enter)
    thread.start()
    while len(locks.inspect("x").waiters) <= behind:
        time.sleep(0.005)
    started = time.monotonic()
    lease.release()
    thread.join(5)
    assert time.monotonic() - started < 2


def who_may_not_ring_is_told_and_rings_when_it_may(locks: Locks, redis: Redis) -> None:
    redis.execute("ACL", "SETUSER", "ringer", "reset", "on", ">pw", "~*", "&*", "+@all")
    with holdfast.connect(redis.url.replace("//", "//ringer:pw@")) as ringer:
        lease = ringer.lock("x").acquire()
        waiting = Background(lambda: locks.lock("x", timeout=9).acquire().release())
        until(lambda: bool(locks.inspect("x").waiters))
        redis.execute("ACL", "SETUSER", "ringer", "-publish")
        told = ""
        try:
            lease.release()
        except holdfast.Misuse as error:
            told = str(error)
        assert "forbids what locks need" in told
        redis.execute("ACL", "SETUSER", "ringer", "+publish")
        waiting.result(within=3)  # by itself it would look in ten seconds


def an_evicted_holder_is_outranked(locks: Locks, redis: Redis) -> None:
    set_mark(redis)
    lease = locks.lock("x").acquire()
    past = locks.force_release("x", token=lease.token)
    assert past is not None
    assert past > lease.token
    assert locks.lock("x").acquire().token > past


MARK_LEFT, NONE_LEFT = "math.max(self.mark, now) - now + retention", "if #some < AT_ONCE then"
FEW_OVER, ADDED = "if #over < AT_ONCE then", "redis.call('ZADD', LINE, 'NX', book.seq, holder)"
ADDED_ONCE = f"if not book:entry(holder) then {ADDED} end"
PX = "if token > now + ARGV[2] then px = math.ceil((token - now + ARGV[4]) / 1000) end\n    end", "end"
PX_MOVED = "'PX', math.ceil((math.max(token - now, its_ttl) + ARGV[4]) / 1000)", "'KEEPTTL'"
PX_AGAIN = "if token > now + ARGV[2] then px", "if false then px"


def who_keeps_a_name_is_told_who_joins(locks: Locks, redis: Redis) -> None:
    with locks.lock("x", ttl=60, keep=60):
        pass
    with holdfast.connect(redis.url) as other:
        until(lambda: redis.execute("EXISTS", "hf:{x}:entries"), within=5)  # the keeper listens
        try:
            other.lock("x").acquire(timeout=3).release()
        except holdfast.NotAcquired as error:
            raise AssertionError(error) from error


def who_came_before_the_keeper_listened_is_seen(locks: Locks, _: Redis) -> None:
    grant = ask(locks, claim())
    assert isinstance(grant, Grant)
    assert isinstance(ask(locks, claim()), Place)
    before = time.monotonic()
    assert finish(locks._engine.store.wanted(grant, 2.0))  # type: ignore[attr-defined]
    assert time.monotonic() - before < 1.9


MUTANTS: list[tuple[str, Scenario, Script, str, str]] = [
    ("plain delete", only_the_holder_releases, scripts.RELEASE, "~= ARGV[1] then return 0 end", "== '' then return 0 end"),
    ("not idempotent", a_repeated_claim_gets_its_token_again, scripts.CLAIM, "if me and me.token > 0 then", "if false then"),
    ("only the clock", tokens_rise_though_the_clock_does_not, scripts.CLAIM, "token = mark + step(ARGV[1])", ""),
    ("renewed after loss", what_is_over_is_not_renewed, scripts.RENEW, "struct.unpack('>d', state, 32) > now", "true"),
    (
        "anybody renews",
        a_grant_is_renewed_by_its_own_holder_only,
        scripts.RENEW,
        "sub(state, 40, 31 + #grant) == sub(grant, 9)",
        "true",
    ),
    ("no capacity", the_capacity_is_kept, scripts.CLAIM, "book.used + units <= capacity", "true"),
    ("no line", nobody_overtakes, scripts.CLAIM, "and not (ahead and fair) then", "then"),
    ("waiters never die", a_dead_waiter_expires, scripts.CLAIM, "if e and e.ends > now then", "if e then"),
    ("marks expire", a_token_ahead_of_the_clock_outlives_it, scripts.CLAIM, *PX),
    ("repeated marks expire", a_token_ahead_of_the_clock_outlives_it, scripts.CLAIM, *PX_AGAIN),
    ("marks expire when renewed", also_when_it_is_renewed, scripts.RENEW, "if token > now + ARGV[1] then", "if false then"),
    ("marks of many expire", also_with_many_inside, scripts.CLAIM, "math.max(self.mark, now) + retention)", "now + retention)"),
    ("marks of left expire", also_when_many_have_left, scripts.RELEASE, MARK_LEFT, "retention"),
    ("moved marks expire", also_when_its_slot_has_moved_and_it_leaves, scripts.RELEASE, "if token > now then", "if false then"),
    ("moved marks expire though asked for", also_when_its_slot_has_moved_and_others_ask, scripts.CLAIM, *PX_MOVED),
    ("a hundred dead are enough", a_crowd_that_has_died_holds_up_nobody, scripts.RELEASE, NONE_LEFT, "if true then"),
    ("waits for the dead", a_crowd_that_has_died_holds_up_nobody, scripts.RELEASE, "math.min(e.ends, now + GRACE)", "e.ends"),
    ("cut off is dead", a_waiter_that_was_cut_off_keeps_its_place, scripts.RELEASE, "GRACE = 500000", "GRACE = 0"),
    ("a hundred are out", a_crowd_that_has_died_inside_is_out_at_the_first_asking, scripts.CLAIM, FEW_OVER, "if true then"),
    ("one key for all", an_overwritten_key_costs_no_other_its_renewal, scripts.RENEW, "redis.pcall('GET'", "call('GET'"),
    ("evicted for good", a_line_that_the_server_has_evicted_is_joined_again, scripts.CLAIM, ADDED, ADDED_ONCE),
    ("one key hides all", a_name_that_was_overwritten_is_in_nobodys_list, scripts.KINDS, "#state > 39 and", ""),
    ("no bell", a_release_wakes_the_next, scripts.RELEASE, "book:ring()\nbook:save()", "book:save()"),
    ("not heard is heard", who_may_not_ring_is_told_and_rings_when_it_may, scripts.RELEASE, "if book.mute then", "if false then"),
    ("who keeps it is not told", who_keeps_a_name_is_told_who_joins, scripts.CLAIM, "if book.kept then", "if false then"),
    ("who listens does not look", who_came_before_the_keeper_listened_is_seen, scripts.WANTED, "and not book:head()", ""),
    ("eviction mints nothing", an_evicted_holder_is_outranked, scripts.EVICT, "book.mark = past", ""),
]  # fmt: skip


def mutate(monkeypatch: pytest.MonkeyPatch, script: Script, old: str, new: str) -> None:
    assert old.encode() in script.text, f"the script has changed: {old!r} is no longer in it"
    text = script.text.replace(old.encode(), new.encode(), 1)
    monkeypatch.setattr(script, "text", text)
    monkeypatch.setattr(script, "sha", hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
    monkeypatch.setattr(script, "head", script.with_arguments(script.arguments))
    monkeypatch.setattr(script, "load", pack("SCRIPT", "LOAD", text))
    monkeypatch.setattr(store, "JOIN", scripts.CLAIM.with_arguments(8))


@pytest.mark.parametrize("scenario", dict.fromkeys(one[1] for one in MUTANTS))
def test_without_a_mistake_it_holds(redis: Redis, connect: Callable[[str], Locks], scenario: Scenario) -> None:
    scenario(connect(redis.url), redis)


@pytest.mark.parametrize(
    ("scenario", "script", "old", "new"), [pytest.param(*rest, id=name) for name, *rest in MUTANTS]
)
def test_a_mistake_is_found(
    redis: Redis,
    connect: Callable[[str], Locks],
    monkeypatch: pytest.MonkeyPatch,
    scenario: Scenario,
    script: Script,
    old: str,
    new: str,
) -> None:
    mutate(monkeypatch, script, old, new)
    with pytest.raises(AssertionError):
        scenario(connect(redis.url), redis)
