"""Two locks as one, without servers: what is given back, and when, if one side is lost, or does not answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast.claim import Claim, Grant, Place
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.errors import Unavailable
from holdfast.stores.also.both import Both
from holdfast.stores.also.old import Kept
from holdfast.stores.memory import MemoryStore

ROUND = 3.0


class Scripted:
    """An old lock that does as it is told."""

    whose = "old code"
    mutexes_only = True

    def __init__(self) -> None:
        self.held: set[str] = set()
        self.taken = False  # by somebody else
        self.silent = False

    def _ask(self) -> None:
        if self.silent:
            raise Unavailable("the old lock does not answer")

    async def take(self, claim: Claim, within: float) -> float:
        self._ask()
        self.held.add(claim.holder)  # in line, at least
        return 0.0 if self.taken else claim.ttl

    async def keep(self, claims: Sequence[Claim], within: float) -> Sequence[Kept]:
        self._ask()
        return [claim.ttl if claim.holder in self.held else 0.0 for claim in claims]

    async def give_back(self, claim: Claim, within: float) -> None:
        self._ask()
        self.held.discard(claim.holder)

    async def is_taken(self, name: str, within: float) -> bool:
        return self.taken

    def forked(self) -> None: ...

    async def close(self, within: float) -> None: ...


@pytest.fixture
def old() -> Scripted:
    return Scripted()


@pytest.fixture
def new(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(Threads(), request.node.nodeid)


@pytest.fixture
def both(new: MemoryStore, old: Scripted) -> Both:
    return Both(new, old, Threads())


def claim(name: str) -> Claim:
    return Claim(name, f"holder of {name}", "host/1/thread", 30.0, queue=True)


def granted(both: Both, name: str) -> Grant:
    answer = finish(both.claim(claim(name)))
    assert isinstance(answer, Grant)
    return answer


def inside(new: MemoryStore, name: str) -> bool:
    return bool(finish(new.inspect(name)).holders)


def test_what_the_old_side_has_lost_is_free_on_the_new_one_at_once(both: Both, new: MemoryStore, old: Scripted) -> None:
    grant = granted(both, "x")
    old.held.clear()
    assert list(finish(both.renew([grant], ROUND))) == [None]
    assert not inside(new, "x")


def test_what_the_new_side_has_lost_is_free_on_the_old_one_at_once(both: Both, new: MemoryStore, old: Scripted) -> None:
    grant = granted(both, "x")
    finish(new.evict("x", grant.token, "somebody"))
    assert list(finish(both.renew([grant], ROUND))) == [None]
    assert not old.held


def test_an_old_side_that_is_silent_makes_nothing_lost_but_what_the_new_one_has_lost(
    both: Both, new: MemoryStore, old: Scripted
) -> None:
    kept, lost = granted(both, "kept"), granted(both, "lost")
    finish(new.evict("lost", lost.token, "somebody"))
    old.silent = True
    unknown, gone = finish(both.renew([kept, lost], ROUND))
    assert isinstance(unknown, Unavailable)
    assert gone is None


def test_who_is_put_out_while_it_waits_for_the_old_lock_stands_in_its_line_no_more(
    both: Both, new: MemoryStore, old: Scripted
) -> None:
    old.taken = True
    assert isinstance(finish(both.claim(claim("x"))), Place)
    assert old.held
    (waiting,) = finish(new.inspect("x")).holders
    finish(new.evict("x", waiting.token, "somebody"))
    assert isinstance(finish(new.claim(claim("x")._replace(holder="another"))), Grant)
    assert isinstance(finish(both.claim(claim("x"))), Place)
    assert not old.held


def test_a_release_goes_on_though_the_old_side_is_silent_and_is_told_as_unanswered(
    both: Both, new: MemoryStore, old: Scripted
) -> None:
    granted(both, "x")
    old.silent = True
    with pytest.raises(Unavailable):
        finish(both.release(claim("x")))
    assert not inside(new, "x")
    old.silent = False
    finish(both.release(claim("x")))  # again, as the engine does
    assert not old.held
