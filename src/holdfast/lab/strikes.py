"""What is done to a run: pause a process, cut a link, set a clock. In the URL, so that a run can be shared: `pause:a:0.6:4`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import Misuse
from .tape import STORAGE

PAUSE, CUT, KILL, CLOCK, FORGET = "pause", "cut", "kill", "clock", "forget"
DOWN, FAILOVER = "down", "failover"  # a node is away, and comes back with what it knew; a replica that lags takes over
DEPOSE = "depose"  # of members that follow a leader, that one is cut off
# No strikes: the messages of this store's bells can be lost; it can be fair; it ends a lease at its ttl, and not some time after.
DEAF, FAIR, PROMPT = "deaf", "fair", "prompt"
NODES = ("node1", "node2", "node3")  # of a store that has several
STORE = "store"
MOST = 40
_LONGEST = 3600.0


class Strike(NamedTuple):
    kind: str
    who: str  # a process; of a cut, `process-store` or `process-storage`; of the rest, the store, or a node of it
    at: float
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}:{self.who}:{self.at:g}:{self.seconds:g}"

    @property
    def told(self) -> str:
        if self.kind == PAUSE:
            return f"{self.who} is paused for {self.seconds:g} s"
        if self.kind == CUT:
            process, _, server = self.who.partition("-")
            return f"{process} cannot reach the {server} for {self.seconds:g} s"
        if self.kind == KILL:
            return f"{self.who} is killed"
        if self.kind == CLOCK:
            return f"the store's clock jumps {'forward' if self.seconds >= 0 else 'back'} by {abs(self.seconds):g} s"
        if self.kind == DOWN:
            return f"{self.who} is down for {self.seconds:g} s"
        if self.kind == FAILOVER:
            return f"the store fails over to a replica that is {self.seconds:g} s behind"
        if self.kind == DEPOSE:
            return f"the store's leader is cut off from the other members for {self.seconds:g} s"
        whose = "the store" if self.who == STORE else self.who
        return f"{whose} restarts, and has forgotten everything"


def parsed(text: str, processes: Sequence[str], can: frozenset[str], length: float) -> list[Strike]:
    """In the order of time, or Misuse: only what this scenario and this store know."""
    words = [word for word in text.split(",") if word]
    if len(words) > MOST:
        raise Misuse(f"at most {MOST} strikes")
    return sorted((_one(word, processes, can, length) for word in words), key=lambda one: one.at)


def _one(word: str, processes: Sequence[str], can: frozenset[str], length: float) -> Strike:
    kind, _, rest = word.partition(":")
    who, _, numbers = rest.partition(":")
    try:
        at, seconds = (float(one) for one in numbers.split(":"))
    except ValueError:
        raise Misuse(f"a strike is kind:who:at:seconds, not {word!r:.80}") from None
    known = {
        PAUSE: [*processes, *([*NODES] if DOWN in can else [STORE])],
        KILL: list(processes),
        CUT: [f"{one}-{server}" for one in processes for server in (STORE, STORAGE) if server == STORAGE or CUT in can],
        CLOCK: [STORE] if CLOCK in can else [],
        FORGET: [STORE] * (FORGET in can) + [*NODES] * (DOWN in can),
        DOWN: [*NODES] * (DOWN in can),
        FAILOVER: [STORE] * (FAILOVER in can),
        DEPOSE: [STORE] * (DEPOSE in can),
    }
    if who not in known.get(kind, []):
        raise Misuse(f"{word!r:.80} cannot be done here")
    if not (
        0 <= at <= length and math.isfinite(seconds) and abs(seconds) <= _LONGEST and (seconds >= 0 or kind == CLOCK)
    ):
        raise Misuse(f"the times of {word!r:.80} are out of bounds")
    return Strike(kind, who, at, seconds)
