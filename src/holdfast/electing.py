"""One leader at a time: who leads, whose terms these are, and how long to wait before one stands again."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from weakref import ref

from . import events, words
from .asking import Ask, GiveUp
from .claim import Snapshot, valid_timeout
from .engine import Engine
from .errors import Unavailable
from .lease import LOST, Lease
from .scope import Other
from .waiting import PATIENCE

_LONGEST_PAUSE = 30.0  # seconds, between two tries to lead
L = TypeVar("L", bound=Lease)


class Leader(NamedTuple):
    """Who leads, as the others see it.

    `address`: what the leader said of itself. `term`: the fencing token of that leadership. `owner`:
    host/pid/thread/label. `age`: seconds since it leads.
    """

    address: str
    term: int
    owner: str
    age: float


class Pause:
    """Between two terms: short after the first trouble, longer after each that follows at once, none after a quiet term."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._troubles = 0

    async def after(self, error: Unavailable, cancel: GiveUp | None) -> None:
        self._engine.hook.emit(events.IN_DANGER, "", self._engine.owner(), detail=f"cannot stand for election: {error}")
        await self._sleep(cancel)

    async def between(self, lease: Lease, cancel: GiveUp | None) -> None:
        if self._engine.driver.now() - lease._since > lease.ttl:
            self._troubles = 0
        if lease._state is LOST:
            await self._sleep(cancel)

    async def _sleep(self, cancel: GiveUp | None) -> None:
        driver = self._engine.driver
        most = min(_LONGEST_PAUSE, 0.25 * 2**self._troubles)
        self._troubles += 1
        until = driver.now() + driver.uniform(most / 2, most)
        while (left := until - driver.now()) > 0 and (cancel is None or not cancel.is_set()):
            await driver.sleep(min(left, 0.5))


class Terms(Generic[L]):
    """The leaderships that one object stood for: known, but not kept alive."""

    def __init__(self) -> None:
        self._leases: deque[ref[L]] = deque(maxlen=16)

    def add(self, lease: L) -> None:
        self._leases.append(ref(lease))

    def held(self) -> list[L]:
        return [lease for one in self._leases if (lease := one()) is not None and lease.held]


class Office(Generic[L]):
    """What there is one leader of, and which terms this object has stood for."""

    def __init__(self, engine: Engine, ask: Ask) -> None:
        self._engine = engine
        self._ask = ask
        self._terms: Terms[L] = Terms()

    @property
    def name(self) -> str:
        """Of what is led."""
        return self._ask.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}{', led from here' if self._terms.held() else ''}>"

    if not TYPE_CHECKING:
        __enter__ = __aenter__ = Other("is no lock: enter `election.lead()`")

        def __getattr__(self, attribute: str) -> Any:
            raise words.missing(self, attribute)


def leader_of(snapshot: Snapshot) -> Leader | None:
    if not snapshot.holders:
        return None
    holding = max(snapshot.holders, key=lambda one: one.token)
    return Leader(holding.note, holding.token, holding.owner, holding.age)


class _Unchanged:
    pass


UNCHANGED = _Unchanged()


async def next_leader(engine: Engine, name: str, seen: int, timeout: float | None) -> Leader | _Unchanged | None:
    """The leader, as soon as it is another than that of term `seen` (0: nobody; -1: tell at once)."""
    give_up = None if (wait := valid_timeout(timeout)) is None else engine.driver.now() + wait
    try:
        while True:
            leader = leader_of(await engine.open_store().inspect(name))
            if (leader.term if leader else 0) != seen:
                return leader
            left = PATIENCE if give_up is None else min(PATIENCE, give_up - engine.driver.now())
            if left <= 0:
                return UNCHANGED
            await engine.watch(name, seen, left)
    except Unavailable:
        engine.open_store()  # if it was closed meanwhile, that is what is to be told
        raise
