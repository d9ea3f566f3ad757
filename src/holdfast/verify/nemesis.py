"""Strikes, one fault after the other, only with what the user allows; then heals all of it.

Everything is drawn from one seed. What the machine makes of it is not: a seed repeats the plan, not the run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..testing.history import Note
from .crew import Crew, Worker
from .own import Own
from .plan import SERVERS, Plan
from .register import Register, Unanswered
from .ways import Ways

FAULT = "fault "  # begins what a note says
_AIMING = 1.0  # seconds it looks for somebody who is just about to write
_REST = (0.02, 0.25)  # seconds between two faults, or
_LONG_REST = (
    0.5,
    1.5,
)  # ttls, by turns: what comes right after another fault is one thing, what strikes in full work is another


def lasted(note: Note) -> float:
    """How many seconds a fault lasted, as its note says: "… 1.5 s". The note may be somebody else's, and say anything."""
    try:
        seconds = float(note.detail.split()[1])
    except (IndexError, ValueError):
        return 0.0
    return seconds if 0 <= seconds < 1e9 else 0.0


@dataclass
class Nemesis:
    plan: Plan
    crew: Crew
    ways: Ways
    own: Own | None
    register: Register
    tick: Callable[[], None]  # now and then, while it waits
    notes: list[Note] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.plan.seed)
        self._pauses = 0

    def run(self) -> None:
        """For as long as was asked. Every fault has its turn before any has another."""
        end = time.monotonic() + self.plan.seconds
        deck: list[str] = []
        while (left := end - time.monotonic()) > 0 and self.crew.living:  # workers that all failed are told of later
            if not self.plan.faults:
                self._sleep(left)
                return
            self._sleep(min(left, self._rest()))
            if not deck:
                deck = list(self.plan.faults)
                self._random.shuffle(deck)
            self._strike(deck.pop())

    def _rest(self) -> float:
        if self._random.random() < 0.5:
            return self._random.uniform(*_REST)
        return self._random.uniform(*_LONG_REST) * self.plan.ttl

    def heal(self) -> float:
        """When everything had healed."""
        for worker in self.crew.living:
            worker.resume()
            worker.shift(0.0, 0.0)
        self.ways.heal()
        if self.own is not None:
            self.own.heal()
        return time.monotonic()

    def _strike(self, fault: str) -> None:
        since = time.monotonic()
        if fault in SERVERS:
            assert self.own is not None
            target = self.own.strike(fault, self._random, self._sleep, self.plan.ttl)
        else:
            target = getattr(self, f"_{fault}")()
        if target:
            self.notes.append(
                Note(since, target, f"{FAULT}{fault}", detail=f"for {max(0.0, time.monotonic() - since):.3f} s")
            )

    # ---- workers

    def _pause(self) -> str:
        """Between its last look at the lease and the write, until somebody else has written; or anywhere, for any time."""
        ttl = self.plan.ttl
        self._pauses += 1
        worker, name = (None, "") if self._pauses % 4 == 0 else self._aim()
        if worker is None:
            worker = self._random.choice(self.crew.living)
            worker.pause()
            self._sleep(self._random.uniform(0.1, 1.5) * ttl)
        else:
            before = self._look(name)
            give_up = time.monotonic() + 3 * ttl + 1
            while self._look(name) == before and time.monotonic() < give_up:
                self._sleep(0.01)
        worker.resume()
        return worker.name

    def _look(self, name: str) -> str | None:
        try:
            return self.register.look(name)
        except Unanswered:
            return None

    def _aim(self) -> tuple[Worker | None, str]:
        """Somebody who stands still in that moment, and the name."""
        give_up = time.monotonic() + _AIMING
        while time.monotonic() < give_up:
            for worker in self.crew.living:
                if worker.in_the_gap() is None:
                    continue
                worker.pause()  # which takes a moment, and it may have gone on meanwhile
                name = worker.in_the_gap()
                if name is not None:
                    return worker, name
                worker.resume()
            time.sleep(0.001)
        return None, ""

    def _kill(self) -> str:
        worker = self._random.choice(self.crew.living)
        self.crew.kill(worker)
        self.crew.start()
        return worker.name

    def _clock(self) -> str:
        """Its wall clock is set ahead or back, by seconds or by an hour; or its machine was asleep."""
        worker, ttl = self._random.choice(self.crew.living), self.plan.ttl
        if self.plan.machines > 1 and self._random.random() < 0.5:
            by = self._random.uniform(0.1, 2) * ttl
            worker.shift(0.0, by)
            return f"{worker.name}, asleep for {by:.1f} s"
        by = self._random.choice((1, -1)) * self._random.choice((ttl, 3600.0))
        worker.shift(by, 0.0)
        self._sleep(self._random.uniform(0.2, 1.5) * ttl)
        worker.shift(0.0, 0.0)
        return f"{worker.name} by {by:+g} s"

    # ---- the way

    def _cut(self) -> str:
        number = self._one_way()
        self.ways.networks[number].cut()
        return f"way {number + 1}"

    def _delay(self) -> str:
        number = self._one_way()
        network = self.ways.networks[number]
        for proxy in network.proxies:
            proxy.to_client.delay(self._random.uniform(0.01, 0.5) * self.plan.ttl)
        self._sleep(self._random.uniform(0.2, 1.5) * self.plan.ttl)
        network.heal()
        return f"way {number + 1}"

    def _drop(self) -> str:
        """Answers are lost as TCP loses them: they do not come, and then the connection is gone."""
        number = self._one_way()
        network = self.ways.networks[number]
        for proxy in network.proxies:
            proxy.to_client.hold()
        self._sleep(self._random.uniform(0.02, 1.2) * self.plan.ttl)
        network.cut()
        network.heal()
        return f"way {number + 1}"

    def _one_way(self) -> int:
        return self._random.randrange(len(self.ways.networks))

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.tick()
            time.sleep(min(left, 0.1))
