"""A lost answer, and others come and go before it is asked for again.

To repeat a claim finds it again; but what is concluded then must be true of that moment, not of the one when the answer was
lost. Each request of claiming, waiting, leaving and renewing is struck in turn: the answer is dropped, late, or the
connection is reset, before or after the request arrived. In two forms: on the wire, between a client and its servers, and at
the store's own methods, for stores that have no wire. Here it broke: tokens went backwards, and a name that was given up
stayed taken for the rest of its ttl.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ... import events
from ...claim import Grant
from ...errors import Unavailable
from ..network import Network
from .kinds import MUTEXES
from .tampering import Tampered, tamper
from .world import Actor, Pending, World, claim, inside, on_every_loop, settled

FAULTS = ("answer dropped", "answer late", "reset after sending", "request lost")
LATE = 1.0
SOON = 1.0  # within so much (and the suite's slack) everything goes on, once the network does
MANY = 12  # no operation has as many answers
NEVER = 1_000_000  # pieces
LATECOMER = 4.0  # for so long, and a little more, a claim that was not answered is looked for


class Others:
    """Who take their turn at a name; the tokens are kept in the order of being inside."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self.tokens: list[int] = []

    async def turn(self, locks: Any) -> None:
        lease = await settled(locks.lock(self._name).acquire(timeout=20))
        self.tokens.append(lease.token)
        await settled(lease.release())

    def join(self, actor: Actor) -> Pending:
        """Begin to wait, and be in line when this returns."""
        pending = actor.start(self.turn)
        self._world.until(lambda: pending.done or actor.name in self._world.waiters(self._name))
        return pending


def leave(actor: Actor, lease: Any, others: Others, next_one: Pending, within: float) -> None:
    """It was inside, and goes; the next one comes in."""
    others.tokens.append(lease.token)
    actor.do(lambda _: lease.release(), within=within)
    next_one.result(within)


class Strike:
    """One fault at one piece of the traffic of one client."""

    def __init__(self, network: Network, fault: str, at: int) -> None:
        self._network = network
        self._fault = fault
        self._catch = network.hold_requests(at) if fault == "request lost" else network.hold_answers(at)
        self._until = 0.0

    def struck(self, over: Callable[..., bool]) -> bool:
        struck = self._catch.caught_before(over)
        self._until = time.monotonic() + LATE * struck
        if self._fault in ("reset after sending", "request lost"):
            self._end(cut=True)
        return struck

    def heal(self) -> None:
        if self._fault == "answer late":
            time.sleep(max(0.0, self._until - time.monotonic()))
        self._end(cut=self._fault == "answer dropped")

    def _end(self, cut: bool) -> None:
        if cut:
            self._network.cut()
        self._network.heal()


class Piece:
    """One piece of the traffic of an operation, at a name of its own."""

    def __init__(self, world: World, network: Network, fault: str, number: int) -> None:
        self.number = number
        self.name = f"x{number}"
        self.others = Others(world, self.name)
        self.was_struck = False
        self._aim: Callable[[], Strike] = lambda: Strike(network, fault, number)

    def aim(self) -> None:
        """From here on the traffic is counted."""
        self._strike = self._aim()

    def struck(self, over: Callable[..., bool]) -> None:
        """What was begun is struck; or is `over`, and had no such piece."""
        self.was_struck = self._strike.struck(over)

    def heal(self) -> None:
        self._strike.heal()


def pieces(world: World, network: Network, fault: str, *, asks_again: bool) -> Iterator[Piece]:
    """One after the other, for as long as the operation has one more. Tokens rise every time, and nothing is left in the end.

    `asks_again`: without a bell it does so again and again, and has any number of them.
    """
    for number in range(MANY):
        piece = Piece(world, network, fault, number)
        yield piece
        tokens = piece.others.tokens
        assert tokens == sorted(set(tokens)), f"struck at its piece {number}, tokens went back"
        if not piece.was_struck:
            break
    assert 0 < number < MANY - 1 or (asks_again and not world.traits.bell)
    world.until_nothing_is_left(SOON + world.slack)


class LostAnswers:
    # ---- on the wire

    @pytest.mark.parametrize("fault", FAULTS)
    @pytest.mark.parametrize("free", [True, False], ids=["free", "taken"])
    def test_a_claim_struck_at_any_request_enters_once_and_in_its_turn(
        self, world: World, network: Network, fault: str, free: bool
    ) -> None:
        if not network:
            return
        z, a, c = world.actors("z", "a", "c")
        b = warm(world, network)
        soon = SOON + world.slack
        for piece in pieces(world, network, fault, asks_again=True):
            name, others = piece.name, piece.others
            if not free:
                held = z.do(lambda locks, name=name: locks.lock(name).acquire(timeout=5))
                first = others.join(a)
            piece.aim()
            claiming = b.start(lambda locks, name=name: locks.lock(name).acquire(timeout=20))
            piece.struck(lambda name=name, mine=claiming: mine.done or "b" in world.waiters(name))
            if not free:
                z.do(lambda _, held=held: held.release())
                world.until(lambda name=name, first=first: first.done or "b" in world.holders(name), within=soon)
            second = others.join(c)
            piece.heal()
            lease = claiming.result(soon)
            if world.traits.fair:
                assert world.holders(name) == ["b"]
                assert "b" not in world.waiters(name)
            leave(b, lease, others, second, soon)
            if not free:
                first.result(soon)

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_waiter_struck_at_any_request_is_let_in_in_its_turn(
        self, world: World, network: Network, fault: str
    ) -> None:
        if not network:
            return
        z, c = world.actors("z", "c")
        b = warm(world, network)
        soon = SOON + world.slack
        for piece in pieces(world, network, fault, asks_again=True):
            name, others = piece.name, piece.others
            held = z.do(lambda locks, name=name: locks.lock(name).acquire(timeout=5))
            waiting = b.start(lambda locks, name=name: locks.lock(name).acquire(timeout=20))
            world.until_waiting(name, "b")
            piece.aim()
            z.do(lambda _, held=held: held.release())
            piece.struck(lambda waiting=waiting: waiting.done)
            second = others.join(c)
            piece.heal()
            lease = waiting.result(soon)
            leave(b, lease, others, second, soon)
            if world.traits.fair:
                assert others.tokens[0] == lease.token, "it lost its place in line"

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_release_struck_at_any_request_lets_the_next_in_at_once(
        self, world: World, network: Network, fault: str
    ) -> None:
        if not network:
            return
        a, c = world.actors("a", "c")
        b = warm(world, network)
        soon = SOON + world.slack
        for piece in pieces(world, network, fault, asks_again=False):
            name, others = piece.name, piece.others
            lease = b.do(lambda locks, name=name: locks.lock(name).acquire(timeout=5))
            others.tokens.append(lease.token)
            line = [others.join(a), others.join(c)]
            piece.aim()
            leaving = b.start(lambda _, lease=lease: lease.release())
            piece.struck(lambda leaving=leaving: leaving.done)
            piece.heal()
            for each in line:
                each.result(soon)
            left = leaving.result(soon)
            # Also if the one that is repeated finds nothing, since the first one arrived: that is no loss, and no alarm.
            # (What lives with a connection may truly be lost with it.)
            told = f"struck at its piece {piece.number}, it is told as lost"
            assert left or world.traits.clock.startswith("none"), told

    @on_every_loop
    def test_a_release_that_arrives_in_the_middle_of_its_own_repetition_is_no_loss(
        self, world: World, network: Network
    ) -> None:
        """Its connection broke, so it was asked again: but it was only slow. It may land between any two steps of the other."""
        if not network or world.traits.clock.startswith("none"):  # what lives with a connection is lost with it
            return
        b = warm(world, network)
        soon = SOON + world.slack
        for number in range(MANY):
            for before in range(MANY):
                lease = b.do(lambda locks: locks.lock("x").acquire(timeout=5), within=soon)
                stranded = network.strand(number, before)
                leaving = b.start(lambda _, lease=lease: lease.release())
                caught = stranded.caught_before(lambda leaving=leaving: leaving.done)
                came = stranded.arrives_before(lambda leaving=leaving: leaving.done)
                assert leaving.result(soon), (
                    f"piece {number} arrived before piece {before} of the repetition: it is told as lost"
                )
                world.until(lambda: world.holders("x") == [], within=soon)
                if not caught or not came:
                    break
            if not caught:
                break
        assert 0 < number < MANY - 1
        world.until_nothing_is_left(soon)

    @on_every_loop
    @pytest.mark.parametrize("free", [True, False], ids=["free", "taken"])
    def test_a_claim_that_arrives_when_its_repetition_has_come_and_gone_does_not_stay(
        self, world: World, network: Network, free: bool
    ) -> None:
        """Its connection broke, so it was asked again, entered and left: but the first one was only slow."""
        if not network:
            return
        z = world.actor("z")
        b = warm(world, network)
        soon = SOON + world.slack
        for number in range(MANY):
            held = None if free else z.do(lambda locks: locks.lock("x").acquire(timeout=5))
            stranded = network.strand(number, before=NEVER)
            claiming = b.start(lambda locks: locks.lock("x").acquire(timeout=20))
            caught = stranded.caught_before(lambda mine=claiming: mine.done or "b" in world.waiters("x"))
            if not caught:
                stranded.arrives()  # it had no such piece
            if held is not None:
                z.do(lambda _, held=held: held.release())
            lease = claiming.result(soon)
            b.do(lambda _, lease=lease: lease.release(), within=soon)
            stranded.arrives()
            world.until(lambda: not world.names(), within=LATECOMER + world.slack)
            if not caught:
                break
        assert 0 < number < MANY - 1 or not (free or world.traits.bell)

    @on_every_loop
    def test_a_downgrade_that_arrives_when_its_lease_was_given_back_does_not_stay(
        self, world: World, network: Network
    ) -> None:
        if not network or world.traits.clock.startswith("none"):  # what lives with a connection is lost with it
            return
        b = warm(world, network)
        soon = SOON + world.slack
        for number in range(MANY):
            lease = b.do(lambda locks: locks.rwlock("x").write().acquire(timeout=5), within=soon)
            stranded = network.strand(number, before=NEVER)
            changing = b.start(lambda _, lease=lease: lease.downgrade())
            caught = stranded.caught_before(lambda mine=changing: mine.done)
            if not caught:
                stranded.arrives()
            changing.result(soon)
            b.do(lambda _, lease=lease: lease.release(), within=soon)
            stranded.arrives()
            world.until(lambda: not world.names(), within=LATECOMER + world.slack)
            if not caught:
                break
        assert 0 < number < MANY - 1

    @pytest.mark.parametrize("times", [1, 3])
    def test_a_waiter_who_is_rung_and_not_answered_asks_again_and_does_not_wait_for_another_bell(
        self, world: World, times: int
    ) -> None:
        """Whoever left rang once. There is no second bell, and the name is free."""
        z, b = world.actors("z", "b")
        hand = tamper(b.locks)
        soon = SOON + world.slack
        for make in MUTEXES.values():
            held = z.do(lambda locks, make=make: make(locks, "x").acquire(timeout=5))
            waiting = b.start(lambda locks, make=make: make(locks, "x").acquire(timeout=20))
            world.until_waiting("x", "b")
            hand.fail("claim", times=times)
            z.do(lambda _, held=held: held.release())
            lease = waiting.result(soon)
            hand.heal()
            b.do(lambda _, lease=lease: lease.release())
        world.until_nothing_is_left(soon)

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_renewal_struck_at_any_request_loses_nothing(self, world: World, network: Network, fault: str) -> None:
        if not network:
            return
        a = world.actor("a")
        b = warm(world, network)
        soon = SOON + world.slack
        mine = [claim(f"x{number}", owner="h/1/b") for number in range(2)]
        grants = [b.store(lambda store, each=each: store.claim(each)) for each in mine]
        for number in range(MANY):
            strike = Strike(network, fault, number)
            renewing = b.start(lambda locks: locks._engine.store.renew(grants, 2 * LATE))
            struck = strike.struck(lambda renewing=renewing: renewing.done)
            strike.heal()
            try:
                verdicts = renewing.result(2 * LATE + soon)
            except Unavailable:
                verdicts = []
            assert None not in verdicts, f"struck at its piece {number}, a lease that lives was told to be lost"
            world.until(lambda: self._kept(b, grants), within=soon + 2 * LATE)
            if not struck:
                break
        assert 0 < number < MANY - 1
        others = Others(world, "x0")
        waiting = others.join(a)
        for each in mine:
            assert b.store(lambda store, each=each: store.release(each)) is True
        waiting.result(soon)
        assert others.tokens[0] > grants[0].token
        world.until_nothing_is_left(soon)

    @pytest.mark.parametrize("held_up", ["requests", "answers"])
    def test_who_was_answered_after_its_ttl_enters_soon_and_is_inside_when_it_says_so(
        self, world: World, network: Network, held_up: str
    ) -> None:
        """The way to the servers stood still: one was about to enter, one was in line. Nobody had given up either."""
        if not network:
            return
        a = world.actor("a")
        b = warm(world, network)
        ttl, soon = world.ttl_short, SOON + world.slack
        other = b.do(lambda locks: locks.lock("other", ttl=ttl).acquire(timeout=5))
        before_b = a.do(lambda locks: locks.lock("taken").acquire(timeout=5))
        waiting = b.start(lambda locks: locks.lock("taken", ttl=ttl).acquire(timeout=30))
        world.until_waiting("taken", "b")
        network.hold_requests(0) if held_up == "requests" else network.hold_answers(0)
        entering = b.start(lambda locks: locks.lock("free", ttl=ttl).acquire(timeout=30))
        time.sleep(1.5 * ttl)
        network.heal()
        a.do(lambda _: before_b.release())
        for name, pending in (("free", entering), ("taken", waiting)):
            lease = pending.result(soon)
            for _ in range(3):
                inside = [one.token for one in world.inspect(name).holders]
                assert lease.token in inside or not lease.held, "it believes that it holds what it does not"
            b.do(lambda _, lease=lease: lease.release())
        b.do(lambda _: other.release())  # it may have been lost; no matter
        world.until_nothing_is_left(2 * soon)

    @staticmethod
    def _kept(b: Actor, grants: list[Grant]) -> bool:
        try:
            verdicts = b.store(lambda store: store.renew(grants, 2.0))
        except Unavailable:
            return False
        assert None not in verdicts
        return all(isinstance(verdict, Grant) for verdict in verdicts)

    # ---- at the store's own methods

    @pytest.mark.parametrize("times", [1, 3])
    def test_a_body_whose_release_was_not_answered_did_not_lose_its_lock(self, world: World, times: int) -> None:
        """The release that is repeated finds nothing, since the first one arrived: that is no loss, and no alarm."""
        a = world.actor("a")
        hand = tamper(a.locks)
        told: list[str] = []
        a.do(lambda locks: locks.subscribe(lambda event: told.append(event.kind), [events.LOST]))
        for number, make in enumerate(MUTEXES.values()):
            hand.fail("release", times=times, reply_only=True)
            a.do(lambda locks, make=make, number=number: inside(make(locks, f"x{number}"), lambda _: None))
            hand.heal()
        assert told == []
        world.until_nothing_is_left(SOON + world.slack)

    @pytest.mark.parametrize("what", ["request lost", "answer lost", "answer late"])
    @pytest.mark.parametrize("method", ["claim", "claim again", "wait", "release"])
    def test_others_come_and_go_before_a_lost_answer_is_asked_for_again(
        self, world: World, method: str, what: str
    ) -> None:
        z, a, b, c = world.actors("z", "a", "b", "c")
        others = Others(world, "x")
        hand = tamper(b.locks)
        soon = SOON + world.slack
        busy: list[Pending] = []

        def meanwhile() -> None:
            """Whoever can take a turn takes it."""
            if not busy:
                return
            if method.startswith("claim"):
                z.do(lambda _: held.release())
            end = time.monotonic() + 0.2
            while time.monotonic() < end and not all(each.done for each in busy):
                time.sleep(0.002)

        if method == "release":
            lease = b.do(lambda locks: locks.lock("x").acquire(timeout=5))
            others.tokens.append(lease.token)
            busy = [others.join(a), others.join(c)]
            at_call(hand, "release", what, world, meanwhile)
            b.do(lambda _: lease.release(), within=soon)
        else:
            held = z.do(lambda locks: locks.lock("x").acquire(timeout=5))
            others.tokens.append(held.token)
            if method == "claim":
                busy = [others.join(a)]
            if method != "claim again":
                at_call(hand, method, what, world, meanwhile)
            ttl = max(
                2.0, 4 * world.ttl_short
            )  # trouble is ridden out for a ttl, and one looks again after a third of it
            claiming = b.start(lambda locks: locks.lock("x", ttl=ttl).acquire(timeout=20))
            if method != "claim":
                world.until_waiting("x", "b")
                busy = [others.join(c)]
                if method == "wait":
                    z.do(lambda _: held.release())
                else:
                    at_call(hand, "claim", what, world, meanwhile)
            lease = claiming.result(ttl + soon)
            assert world.holders("x") == ["b"]
            others.tokens.append(lease.token)
            b.do(lambda _: lease.release())
        for each in busy:
            each.result(soon)
        assert others.tokens == sorted(set(others.tokens))
        world.until_nothing_is_left(soon)


def at_call(hand: Tampered, method: str, what: str, world: World, meanwhile: Callable[[], None]) -> None:
    """The next call of a method: `meanwhile` happens before its answer, if there is one, comes back."""
    left = [method]

    def hook(called: str) -> Any:
        if called not in left:
            return None
        left.clear()
        return asyncio.to_thread(happen) if world.asynchronous else happen()

    def happen() -> None:
        meanwhile()
        if what != "answer late":
            raise Unavailable(f"{method}: as the test wants it")

    if what == "request lost":
        hand.before = hook
    else:
        hand.after = hook


def warm(world: World, network: Network) -> Actor:
    """Somebody behind the proxies, who has a connection already."""
    b = world.actor("b", url=network.url)
    b.do(lambda locks: locks.lock("warm").acquire(timeout=5).release() if not world.asynchronous else _warm(locks))
    return b


async def _warm(locks: Any) -> None:
    await (await locks.lock("warm").acquire(timeout=5)).release()
