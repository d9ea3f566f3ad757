"""The scripts with one mistake each: the scenario that is meant to find it does, and passes without it."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable

import pytest

from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.redis import scripts, store
from holdfast.stores.redis.keys import pack
from holdfast.stores.redis.scripts import Script
from holdfast.sync import Locks
from holdfast.testing.servers.redis import Redis

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


def set_mark(redis: Redis) -> int:
    """As if the clock had been set back: the last token is far ahead of it."""
    ahead = int(time.time() * 1_000_000) + 10**9
    script = "return redis.call('SET', KEYS[1], 'hf:idle' .. struct.pack('>d', ARGV[1]), 'PX', 60000)"
    redis.execute("EVAL", script, 1, "hf:{x}", ahead)
    return ahead


def tokens_rise_though_the_clock_does_not(locks: Locks, redis: Redis) -> None:
    ahead = set_mark(redis)
    assert locks.lock("x").acquire().token > ahead


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
    lease = locks.lock("x").acquire()
    got: list[float] = []
    thread = threading.Thread(target=lambda: got.append(locks.lock("x", timeout=4).acquire().token))
    thread.start()
    while not locks.inspect("x").waiters:
        time.sleep(0.005)
    started = time.monotonic()
    lease.release()
    thread.join(5)
    assert time.monotonic() - started < 2


def an_evicted_holder_is_outranked(locks: Locks, redis: Redis) -> None:
    set_mark(redis)
    lease = locks.lock("x").acquire()
    past = locks.force_release("x", token=lease.token)
    assert past is not None
    assert past > lease.token
    assert locks.lock("x").acquire().token > past


HEAD_LIVES = "e.ends > now then\n            if e.ends - now > e.ttl then self:put(head, e, e.ttl) end\n"
MUTANTS: list[tuple[str, Scenario, Script, str, str]] = [
    ("plain delete", only_the_holder_releases, scripts.RELEASE, "~= ARGV[1] then return 0 end", "== '' then return 0 end"),
    ("not idempotent", a_repeated_claim_gets_its_token_again, scripts.CLAIM, "if me and me.token > 0 then", "if false then"),
    ("only the clock", tokens_rise_though_the_clock_does_not, scripts.CLAIM, "if mark >= now then token = mark + 1 end", ""),
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
    ("waiters never die", a_dead_waiter_expires, scripts.CLAIM, HEAD_LIVES, "true then\n"),
    ("no bell", a_release_wakes_the_next, scripts.RELEASE, "book:ring()\nbook:save()", "book:save()"),
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
