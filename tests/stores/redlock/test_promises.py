"""What a Redlock must not forget or give away: tokens, whatever the clocks say, and a lock that is held."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Unavailable
from holdfast.claim import Claim, Grant, new_holder
from holdfast.drivers.base import finish
from holdfast.stores.redis.keys import pack
from holdfast.stores.redis.scripts import Script
from holdfast.stores.redlock import scripts
from holdfast.stores.redlock.store import RedlockStore
from holdfast.sync import Locks
from holdfast.testing.servers.redis import Redis

from ..hands import until
from .hands import paused, store_of, url_of

pytestmark = pytest.mark.server
Scenario = Callable[[list[Redis]], None]


# ---- tokens and clocks

HOURS = 2 * 3600 * 1_000_000


class Ahead:
    """A driver whose wall clock is hours off."""

    def __init__(self, driver: object, by: int) -> None:
        self._driver = driver
        self._by = by

    def wall_us(self) -> int:
        return int(self._driver.wall_us()) + self._by  # type: ignore[attr-defined]

    def __getattr__(self, name: str) -> object:
        return getattr(self._driver, name)


def set_clock(locks: Locks, by: int) -> None:
    store = store_of(locks)
    store._driver = Ahead(store._driver, by)  # type: ignore[assignment]


def a_token_of_a_clock_that_was_ahead_is_not_forgotten(nodes: list[Redis]) -> None:
    with holdfast.connect(url_of(nodes, "?retention=0.2")) as ahead, holdfast.connect(url_of(nodes)) as right:
        set_clock(ahead, HOURS)
        lease = ahead.lock("x", ttl=0.5).acquire()
        assert lease.release()
        time.sleep(1)
        assert right.lock("x").acquire(timeout=5).token > lease.token


def nor_when_it_was_renewed(nodes: list[Redis]) -> None:
    with holdfast.connect(url_of(nodes, "?retention=0.2")) as ahead, holdfast.connect(url_of(nodes)) as right:
        set_clock(ahead, HOURS)
        store = store_of(ahead)
        grant = finish(store.claim(Claim("x", new_holder(), "somebody", 1.5)))
        assert isinstance(grant, Grant)
        # A majority is enough, and on a busy machine the last may not have come to it: all, before it is over.
        for _ in nodes:
            assert list(finish(store.renew([grant], 1.0))) == [grant]
        time.sleep(2)
        assert right.lock("x").acquire(timeout=5).token > grant.token


def a_client_whose_clock_lags_gets_no_token_below_one_that_was_forgotten(nodes: list[Redis]) -> None:
    with holdfast.connect(url_of(nodes, "?retention=0.2")) as right:
        lease = right.lock("x", ttl=0.5).acquire()
        assert lease.release()
        until(lambda: all(node.execute("EXISTS", "hf:redlock:{x}") == 0 for node in nodes))
        with holdfast.connect(url_of(nodes, "?retention=0.2")) as lagging:
            set_clock(lagging, -HOURS)
            assert lagging.lock("x").acquire(timeout=5).token > lease.token


KEPT = "math.max(last, mark, now) - now"
MUTANTS: list[tuple[str, Scenario, Script, str, str]] = [
    ("marks expire", a_token_of_a_clock_that_was_ahead_is_not_forgotten, scripts.RELEASE, KEPT, "last - now"),
    ("marks expire when renewed", nor_when_it_was_renewed, scripts.RENEW, KEPT, "last - now"),
    (
        "what was forgotten is nothing",
        a_client_whose_clock_lags_gets_no_token_below_one_that_was_forgotten,
        scripts.CLAIM,
        "return math.max(0, now - retention), {}",
        "return 0, {}",
    ),
]


@pytest.mark.parametrize("scenario", dict.fromkeys(one[1] for one in MUTANTS))
def test_tokens_rise_whatever_the_clocks_say(three: list[Redis], scenario: Scenario) -> None:
    scenario(three)


@pytest.mark.parametrize(
    ("scenario", "script", "old", "new"), [pytest.param(*rest, id=name) for name, *rest in MUTANTS]
)
def test_a_mistake_is_found(
    three: list[Redis], monkeypatch: pytest.MonkeyPatch, scenario: Scenario, script: Script, old: str, new: str
) -> None:
    assert old.encode() in script.text, f"the script has changed: {old!r} is no longer in it"
    text = script.text.replace(old.encode(), new.encode(), 1)
    monkeypatch.setattr(script, "text", text)
    monkeypatch.setattr(script, "sha", hashlib.sha1(text, usedforsecurity=False).hexdigest().encode())
    monkeypatch.setattr(script, "head", script.with_arguments(script.arguments))
    monkeypatch.setattr(script, "load", pack("SCRIPT", "LOAD", text))
    with pytest.raises(AssertionError):
        scenario(three)


# ---- a lock that is held is not given away


def a_downgrade_without_a_majority_gives_nothing_away(nodes: list[Redis]) -> None:
    with holdfast.connect(url_of(nodes)) as locks, holdfast.connect(url_of(nodes)) as others:
        others.lock("warm").acquire().release()
        writer = locks.rwlock("x", ttl=30).write().acquire()
        with paused(nodes[1:]), pytest.raises(Unavailable):
            writer.downgrade()
        until(lambda: len(locks.inspect("x").holders) == 1)
        assert writer.held
        assert others.rwlock("x", ttl=30).write().try_acquire() is None, "two writers"
        writer.downgrade()
        reader = others.rwlock("x").read().acquire(timeout=5)
        assert reader.token > writer.token
        assert writer.release()


def nor_does_a_claim_that_is_repeated_for_another_time(nodes: list[Redis]) -> None:
    """As once(at_least=) does."""
    with holdfast.connect(url_of(nodes)) as locks, holdfast.connect(url_of(nodes)) as others:
        store = store_of(locks)
        claim = Claim("x", new_holder(), "somebody", 30.0)
        grant = finish(store.claim(claim))
        assert isinstance(grant, Grant)
        with paused(nodes[1:]), pytest.raises(Unavailable):
            finish(store.claim(claim._replace(ttl=20.0, queue=False)))
        until(lambda: len(locks.inspect("x").holders) == 1)
        assert others.lock("x").try_acquire() is None, "two holders"
        again = finish(store.claim(claim._replace(ttl=20.0, queue=False)))
        assert isinstance(again, Grant)
        assert again.token == grant.token


HELD: list[Scenario] = [
    a_downgrade_without_a_majority_gives_nothing_away,
    nor_does_a_claim_that_is_repeated_for_another_time,
]


@pytest.mark.parametrize("scenario", HELD)
def test_what_is_held_is_not_given_away(three: list[Redis], scenario: Scenario) -> None:
    scenario(three)


@pytest.mark.parametrize("scenario", HELD)
def test_giving_it_away_is_found(three: list[Redis], monkeypatch: pytest.MonkeyPatch, scenario: Scenario) -> None:
    async def given_away(
        self: RedlockStore, claim: Claim, attempt: object, sent: float, deadline: float
    ) -> Grant | holdfast.claim.Place:
        answers = await self._ask(
            self._claim_request(claim, attempt),  # type: ignore[arg-type]
            lambda _: True,
            self._decided,
            *self._shares(claim.ttl, deadline),
            claim.name,
        )
        if sum(type(answer) is int for answer in answers) >= self._majority:
            return Grant(claim, attempt.token, claim.ttl)  # type: ignore[attr-defined]
        return await self._refused(claim, attempt, answers, (), deadline)  # type: ignore[arg-type]

    monkeypatch.setattr(RedlockStore, "_repeated", given_away)
    with pytest.raises((AssertionError, holdfast.LeaseLost)):
        scenario(three)


def test_a_granted_claim_that_is_gone_is_no_grant_when_repeated(three: list[Redis]) -> None:
    with holdfast.connect(url_of(three)) as locks, holdfast.connect(url_of(three)) as others:
        store = store_of(locks)
        claim = Claim("x", new_holder(), "somebody", 0.3)
        assert isinstance(finish(store.claim(claim)), Grant)
        newer = others.lock("x").acquire(timeout=5)
        assert not isinstance(finish(store.claim(claim._replace(queue=False))), Grant)
        assert newer.release()
        assert isinstance(finish(store.claim(claim)), Grant)
