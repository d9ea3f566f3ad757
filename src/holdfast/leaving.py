"""Claims that are given back in the background: again and again, until the store agrees or their own time is over.

Rule 1: a release is as harmless to repeat as a claim, so one that was not answered is repeated.
Rule 2: nothing is repeated past the moment at which the claim ends by itself; only then it is told as failed.
Rule 3: a claim that was never answered may land after its release. It is looked for a few times more.
Rule 4: a release that nobody waits for (`confirm=False`) is one that was not answered, until somebody has read its answer.
Rule 5: of those there are so many at once, and no more: whoever leaves then waits for the answer. And whoever wants a name
again whose release is on its way from here, waits for that first: nobody stands in line behind himself. If it is refused all the
same, since of a release of ours nobody knows yet whether it has arrived, that is said again, and the name asked for again.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from . import events
from .claim import ROUND, Claim, Grant
from .drivers.base import Bell, Driver
from .errors import HoldfastError, Misuse
from .events import Hook
from .stores.base import Store

_WORKERS = 4  # one node that hangs must not keep the releases on the others waiting
_TRY = 1.0  # seconds for a try in the background
_GONE = 10.0  # a worker that was not heard of for so long is none: no try and no pause takes as long
_UNREAD = 1.0  # seconds after which an answer that nobody has read is asked for
_MOST = 16  # releases that nobody waits for, at once, where a thread is needed for each that is under way
_MOST_LIGHTLY = 256  # and where a task is
_LINGER = 5.0  # so long a thread stays that had one to send: to start another takes longer than most releases
_LATECOMERS = (0.3, 1.0, 3.0)  # after so long, look again whether a claim that was never answered has landed after all


def _nothing() -> None:
    return None


class Posting(Protocol):
    """How a store that can sends a release and does not wait: it calls back, from any thread, with what came of it. None: nobody
    knows, and it is to be repeated. False: it was not sent."""

    def __call__(self, claim: Claim, answered: Callable[[bool | None], None]) -> bool: ...


class Going:
    """A release that is on its way, and who of this process wants the name next."""

    __slots__ = ("bells", "tried")

    def __init__(self) -> None:
        self.bells: list[Bell] = []
        self.tried = False  # and interrupted: it may have arrived


class Owed(NamedTuple):
    """A claim that the store has to be told the end of."""

    claim: Claim
    until: float  # when it ends by itself
    token: int = 0
    keep_until: float = 0.0
    latecomers: tuple[float, ...] = ()
    done: Callable[[], object] = _nothing
    pause: float = 0.05
    left: bool = False  # the store has agreed: what is asked after that is only whether something has landed since
    going: Going | None = None  # nobody waits for it, and it was not yet tried


class Leaving:
    """What one connected store is still to be told."""

    def __init__(self, store: Store, driver: Driver, hook: Hook) -> None:
        self._store = store
        self._driver = driver
        self._hook = hook
        self._mutex = threading.Lock()
        self._owed: list[tuple[float, int, Owed]] = []  # a heap: when to try next; a number, to tell two apart
        self._number = 0
        self._workers: set[Bell] = set()  # each by what it sleeps on
        self._most_workers = _MOST_LIGHTLY if driver.spawns_lightly else _WORKERS
        self._idle: list[Bell] = []  # of workers who have nothing to do just now
        self._seen = 0.0  # when a worker was last heard of
        self._under_way: list[Owed] = []
        self._closing = False
        # Releases that nobody waits for: sent by the store itself, and the answer not read yet, by holder;
        self._posted: dict[str, tuple[float, Claim, int, float]] = {}
        self.going: dict[str, Going] = {}  # and handed to a worker of ours, by name.
        self._most = _MOST_LIGHTLY if driver.spawns_lightly else _MOST
        self._last = -_LINGER  # when the last of them came

    async def leave(self, claim: Claim, keep_until: float, within: float = ROUND) -> bool:
        """Leave, but not before `keep_until`: the claim is repeated with what is left as its ttl, and ends by itself."""
        left = keep_until - self._driver.now() if keep_until else 0.0
        if left <= 0:
            return await self._store.release(claim, within)
        try:
            return type(await self._store.claim(claim._replace(ttl=left, queue=False), within)) is Grant
        except Misuse:
            if left >= self._store.traits.min_ttl:
                raise
            return False  # it is there no more, and nobody comes in anew for so short a time

    def post(self, claim: Claim, token: int, until: float) -> bool:
        """See that it leaves, and leave the answer to whoever reads it. False: the caller has to wait for it."""
        if self._closing:
            return False
        posting: Posting | None = getattr(self._store, "post", None)
        if posting is None or len(self._posted) >= self._most:
            return self._hand_in(claim, token, until)
        self._last = now = self._driver.now()
        holder = claim.holder
        self._posted[holder] = now, claim, token, until
        if not posting(claim, partial(self._answered, holder)):
            self._posted.pop(holder, None)
            return self._hand_in(claim, token, until)
        if not self._workers or now > self._seen + _GONE:  # somebody has to ask for what nobody reads
            self.go_on()
        return True

    def _hand_in(self, claim: Claim, token: int, until: float) -> bool:
        """To the background, at once; where the store is far away, since elsewhere it would take longer than to leave."""
        name = claim.name
        if self._store.traits.scope != "network" or name in self.going or len(self._owed) >= self._most:
            return False
        self.going[name] = going = Going()
        self._last = self._driver.now()
        self.owe(Owed(claim, until, token, going=going))
        self.go_on()
        if not self._workers:  # no thread, or no loop, to be had: it is done twice, which harms nobody
            self.disregard(claim)
        return bool(self._workers)

    async def turn(self, name: str, within: float) -> None:
        """Until the release of this name that is on its way from here has been tried."""
        going = self.going.get(name)
        if going is not None:
            bell = self._driver.bell()
            going.bells.append(bell)
            if self.going.get(name) is going:  # else it was told a moment ago, and nobody rings
                await bell.wait(within)

    async def again(self, name: str, within: float) -> bool:
        """Whoever is refused may stand behind his own release: say all that were not answered again. True: one has arrived."""
        if not (self._posted or self._owed or self._under_way):
            return False
        for holder, (_, claim, *_) in list(self._posted.items()):
            if claim.name == name:
                self._answered(holder, None)
        with self._mutex:
            undone = (*self._under_way, *(one for _, _, one in self._owed))
            owed = tuple(one for one in undone if one.claim.name == name)
        arrived = False
        until = self._driver.now() + within
        for claim, _, _, keep_until, *_, left, going in owed:
            if not left and not keep_until and self._driver.now() < until:
                self._gone(name, going)  # whoever finds nothing there any more, must not take that for a loss
                with suppress(HoldfastError):
                    await self._store.release(claim, until - self._driver.now())
                    arrived = True
        return arrived

    def disregard(self, claim: Claim) -> None:
        """Whoever left was interrupted, and leaves anew: what comes of the first time tells nothing."""
        self._posted.pop(claim.holder, None)
        self._gone(claim.name, self.going.get(claim.name))

    def _gone(self, name: str, going: Going | None) -> bool:
        """False: nobody is interested any more."""
        if going is None or self.going.get(name) is not going:
            return False
        del self.going[name]
        for bell in going.bells:
            bell.ring()
        return True

    def _answered(self, holder: str, there: bool | None) -> None:
        posted = self._posted.pop(holder, None)
        if posted is None or there:
            return
        _, claim, token, until = posted
        if there is None:
            self.owe(Owed(claim, until, token))
            self.go_on()
        else:
            self._lost(Owed(claim, until, token))

    def _lost(self, owed: Owed) -> None:
        self._tell(events.LOST, owed, "the store no longer had it when it was released")

    def _ask_again(self, before: float = float("inf")) -> None:
        """For those whose answers nobody has read. Mostly whoever uses the connection next does."""
        for holder, (at, *_) in list(self._posted.items()):
            if at < before:
                self._answered(holder, None)

    async def withdraw(
        self, claim: Claim, within: float, *, keep_until: float = 0.0, unanswered: bool = False, refused: bool = False
    ) -> None:
        """No ghost: take back a claim that may have arrived, whatever we know of it; after `within` in the background.

        `refused`: such a claim is wrong, said the store. If it says so of the release too (as it does of a login that is wrong),
        nothing is there, and to ask again would only keep close() waiting.
        """
        left = False
        try:
            left = await self.leave_at_once(claim, keep_until, within, sure=not unanswered, refused=refused)
        finally:
            if not left:
                until = self._driver.now() + claim.ttl
                self.later(claim, until, keep_until=keep_until, unanswered=unanswered)

    async def leave_at_once(
        self, claim: Claim, keep_until: float, within: float, sure: bool = True, refused: bool = False
    ) -> bool:
        """One try, whatever interrupts us. True: it has left, and if we are sure that nothing of it is on its way, for good."""
        if within <= 0:
            return False
        try:
            await self._driver.shield(lambda: self.leave(claim, keep_until, within))
        except Exception as error:
            return refused and isinstance(error, Misuse)
        return sure

    def later(
        self,
        claim: Claim,
        until: float,
        *,
        token: int = 0,
        keep_until: float = 0.0,
        unanswered: bool = False,
        left: bool = False,
        done: Callable[[], object] = _nothing,
    ) -> None:
        """In the background. `unanswered`: the claim itself may still be on its way; `done` is called when it has left."""
        self.owe(Owed(claim, until, token, keep_until, _LATECOMERS if unanswered else (), done, left=left))
        self.go_on()

    def go_on(self) -> None:
        """Somebody sees to what is owed, in the background."""
        worker: Bell | None = None
        try:
            with self._mutex:
                now = self._driver.now()
                if now > self._seen + _GONE:
                    self._workers.clear()
                    self._idle.clear()
                for gone in tuple(one for one in self._workers if one.asleep):  # their loop is over, or stands still
                    self._workers.discard(gone)
                if self._closing:
                    return
                while self._owed and self._idle:
                    idle = self._idle.pop()
                    if not idle.asleep and idle.ring():
                        return
                most = min(self._most_workers, max(len(self._owed) + len(self._under_way), bool(self._posted)))
                if len(self._workers) >= most:
                    return
                worker = bell = self._driver.bell()
                self._workers.add(bell)
                self._seen = now
            self._driver.spawn(lambda: self._work(bell), "holdfast-leaving", lambda: self._ended(bell))
        except BaseException as error:
            if worker is not None:
                self._workers.discard(worker)  # interrupted, say: who does not run does not count
            if not isinstance(
                error, RuntimeError
            ):  # no thread, or no loop, to be had: the next one, or close(), goes on
                raise

    def go_on_if_nobody_does(self) -> None:
        """Those who were at it may have ended, or stopped, with their event loop."""
        if all(one.asleep for one in tuple(self._workers)):
            self.go_on()

    def _ended(self, worker: Bell) -> bool:
        """Perhaps before it had begun."""
        self._workers.discard(worker)
        return False

    def owe(self, owed: Owed, at: float = 0.0) -> None:
        """Note it; somebody else sees to it."""
        with self._mutex:
            self._number += 1
            heapq.heappush(self._owed, (at, self._number, owed))

    def owes(self, claim: Claim) -> bool:
        with self._mutex:
            return any(owed.claim is claim for _, _, owed in self._owed)

    def next_due(self) -> float:
        with self._mutex:
            return self._next_due()

    def _next_due(self) -> float:
        unread = [at + _UNREAD for at, *_ in list(self._posted.values())]
        return min([*unread, self._owed[0][0]] if self._owed else unread, default=float("inf"))

    async def _work(self, worker: Bell) -> None:
        try:
            while not worker.gone:
                if not self._closing and await self.step() == 0.0:
                    continue
                with self._mutex:
                    self._seen = now = self._driver.now()
                    pause = self._next_due() - now
                    if not self._closing and pause == float("inf") and not self._driver.spawns_lightly:
                        pause = self._last + _LINGER - now  # there may soon be another
                        if pause <= 0:
                            pause = float("inf")
                    if self._closing or pause == float("inf"):
                        self._workers.discard(worker)  # under the same lock as the decision: nothing is left to nobody
                        if self._closing or not self._posted:  # which is changed without it, and then looked at
                            return
                        self._workers.add(worker)
                        continue
                    self._idle.append(worker)
                if pause > 0:
                    await worker.wait(min(pause, 0.25 if self._owed else _UNREAD))
                with self._mutex:
                    if worker in self._idle:
                        self._idle.remove(worker)
        finally:  # interrupted, or its loop is over: mostly it has been done above
            with self._mutex:
                self._workers.discard(worker)
                if worker in self._idle:
                    self._idle.remove(worker)

    async def step(self, within: float = _TRY) -> float | None:
        """Try the first, if it is its turn. Returns how long there is nothing to do; None: nothing is owed."""
        if self._posted:
            self._ask_again(self._driver.now() - _UNREAD)
        with self._mutex:
            if not self._owed:
                return None
            now = self._driver.now()
            if self._owed[0][0] > now:
                return self._owed[0][0] - now
            owed = heapq.heappop(self._owed)[2]
            self._under_way.append(owed)
        done = False
        try:
            await self._try(owed, min(within, max(owed.until - now, 0.05)))
            done = True
        finally:
            if not done:  # interrupted
                if owed.going is not None:
                    owed.going.tried = True
                self.owe(owed)
            with self._mutex:
                self._under_way.remove(owed)
        return 0.0

    async def _try(self, owed: Owed, within: float) -> None:
        if self._closing and self._driver.now() >= owed.until:  # in what is left of the time, others are asked
            self._tell(events.RELEASE_FAILED, owed, "the store did not answer before it ended by itself")
            return
        try:
            there = await self.leave(owed.claim, owed.keep_until, within)
        except Exception as error:
            self._gone(owed.claim.name, owed.going)
            if events.STORE_FAILED in self._hook.by_kind:
                self._tell(events.STORE_FAILED, owed, f"release: {error}")
            now = self._driver.now()
            if now < owed.until:
                at = now + self._driver.uniform(owed.pause, 2 * owed.pause)
                self.owe(owed._replace(pause=min(0.25, 2 * owed.pause), going=None), min(at, owed.until))
                return
            detail = f"{error}; it ends by itself now"
            self._tell(events.RELEASE_FAILED, owed, detail)
            return
        tried = owed.going is not None and owed.going.tried
        if self._gone(owed.claim.name, owed.going) and not there and not tried:
            self._lost(owed)
        if owed.latecomers and not self._closing:
            wait, *rest = owed.latecomers
            self.owe(owed._replace(latecomers=tuple(rest), left=True), self._driver.now() + wait)
            return
        owed.done()

    async def finish(self, deadline: float) -> None:
        """At close: do what can be done until then, and tell what could not. Latecomers are looked for at once, and not again."""
        self._closing = True
        self._ask_again()
        with self._mutex:
            self._owed = sorted((0.0, number, owed) for _, number, owed in self._owed)  # the numbers differ
            idle, self._idle = self._idle, []
        for bell in idle:  # they go home
            bell.ring()
        interruption: BaseException | None = None
        while (left := deadline - self._driver.now()) > 0:
            try:
                pause = await self.step(min(0.5, left))
            except BaseException as error:  # the first is let through when the work is done, a second one at once
                if interruption is not None:
                    raise
                interruption = error
                continue
            if pause is None and not self._under_way:
                break
            if pause is None or pause > 0:
                await self._driver.sleep(min(0.02 if pause is None else pause, left))
        for owed in self.forget():
            left = max(0.0, owed.until - self._driver.now())
            known = "it is free" if owed.token or not owed.latecomers else "if the claim has arrived at all, it is free"
            detail = f"the connection was closed before the store answered: {known} in {left:.1f} s at the latest"
            self._tell(events.RELEASE_FAILED, owed, detail)
        if interruption is not None:
            try:
                raise interruption
            finally:
                del interruption  # else the frame, and what it knows, would be kept by its own traceback

    def _tell(self, kind: str, owed: Owed, detail: str) -> None:
        if kind == events.RELEASE_FAILED and owed.left:
            return
        claim = owed.claim
        self._hook.emit(kind, claim.name, claim.owner, owed.token, detail=detail, lock=claim.lock)

    def forget(self) -> list[Owed]:
        """All that is owed; whoever asks takes it over."""
        self._ask_again()
        with self._mutex:
            rest, self._owed = self._owed, []
        self.going.clear()
        return [owed for _, _, owed in rest]
