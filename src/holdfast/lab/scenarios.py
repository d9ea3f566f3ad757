"""What can be tried, as data: who does what, what strikes, and what would have helped."""

from __future__ import annotations

from typing import NamedTuple

from ..testing.simulation.register import Fence
from .stores import STORES
from .strikes import CLOCK, CUT, DEAF, DOWN, FAILOVER, FAIR, FORGET, PAUSE, PROMPT, STORE, Strike

FENCES = {"none": Fence.NONE, "writes": Fence.WRITES, "all": Fence.READS_AND_WRITES}


class Part(NamedTuple):
    """What a process does: so often, take the lock, read the balance, work, look whether the lock is still held (if it is so
    careful), prepare, and write the balance plus 10."""

    name: str
    start: float = 0.0
    work: float = 0.5
    prepare: float = 0.3  # between the look and the write: no check can be closer to it than this
    rounds: int = 1
    updates: int = 1  # under one lock
    rest: float = 0.0  # between two rounds


class Settings(NamedTuple):
    fence: str = "none"
    checks: bool = False
    fair: bool = True
    bells: bool = True


class Scenario(NamedTuple):
    title: str
    what: str
    parts: tuple[Part, ...]
    strikes: tuple[Strike, ...]
    helps: Settings
    why: str  # it would have helped
    start: Settings = Settings()
    asks: tuple[str, ...] = ("fence", "checks")  # the settings that make a difference here
    needs: frozenset[str] = frozenset()
    ttl: float = 2.0
    length: float = 6.0
    election: bool = False

    @property
    def stores(self) -> list[str]:
        return [key for key, kind in STORES.items() if self.needs <= kind.can]


_REFUSES = (
    "Both believed that they held the lock, and no lock can prevent that. The token can: the storage remembers the highest "
    "that it has seen, and refuses a lower one."
)
_CROWD = tuple(Part(name, start=0.01 * number, work=0.1, prepare=0.05) for number, name in enumerate("abcdefgh"))

SCENARIOS = {
    "pause": Scenario(
        "A holder is paused past its ttl",
        "a takes the lock, looks that it still holds it, and is paused (a garbage collection, a suspended machine) just before "
        "it writes. Its lease runs out, b has its turn, and then a wakes up and writes what it computed before.",
        (Part("a"), Part("b", start=0.1)),
        (Strike(PAUSE, "a", 0.65, 3.5),),
        Settings(fence="writes"),
        f"{_REFUSES} To look at the lease before the write is not enough: the pause came after the look.",
        start=Settings(checks=True),
    ),
    "fence": Scenario(
        "Fenced on writes only, and still lost",
        "a is paused before it writes, and wakes up when b has read the balance and not yet written. A storage that checks "
        "tokens on writes only has not seen b's token by then: it lets a write, and b overwrites that.",
        (Part("a"), Part("b", start=0.1)),
        (Strike(PAUSE, "a", 0.65, 1.75),),
        Settings(fence="all"),
        "The token must be recorded at the first touch, which is the read. Then a is refused, although b has not written yet.",
        start=Settings(fence="writes"),
        needs=frozenset({PROMPT}),
    ),
    "clock": Scenario(
        "The store's clock jumps",
        "a holds the lock and renews it. The store's clock jumps forward by half a minute: for the store a's ttl is over, and it "
        "gives the lock to b. a is told at its next renewal, and has written by then.",
        (Part("a", work=1.5), Part("b", start=0.1)),
        (Strike(CLOCK, STORE, 1.4, 30.0),),
        Settings(fence="all"),
        _REFUSES,
        needs=frozenset({CLOCK}),
    ),
    "forget": Scenario(
        "The store forgets",
        "The store restarts without what it knew, as a failover to an empty replica would have it. It gives the lock to b while "
        "a holds it. Its tokens rise all the same.",
        (Part("a", work=1.5), Part("b", start=0.1)),
        (Strike(FORGET, STORE, 1.4),),
        Settings(fence="all"),
        _REFUSES,
        needs=frozenset({FORGET}),
    ),
    "failover": Scenario(
        "Failover to a stale replica",
        "a holds the lock, and the replica has not heard of it yet when it takes over. The new master gives the lock to b. Its "
        "tokens rise all the same, since they are the clock's.",
        (Part("a", work=1.0), Part("b", start=0.1, work=0.3)),
        (Strike(FAILOVER, STORE, 0.3, 0.5),),
        Settings(fence="all"),
        _REFUSES,
        needs=frozenset({FAILOVER}),
    ),
    "redlock": Scenario(
        "Redlock, and a node that forgets",
        "a gets the lock from two nodes of three, while the third is down. Then one of the two restarts without its memory: it "
        "and the third are a majority, and give the lock to b.",
        (Part("a", work=1.6), Part("b", start=0.6, work=0.3)),
        (Strike(DOWN, "node3", 0.0, 0.3), Strike(FORGET, "node2", 0.9)),
        Settings(fence="all"),
        f"{_REFUSES} On Redlock, too: a node accepts only tokens that rise, and two majorities share a node.",
        needs=frozenset({DOWN}),
        length=5.0,
    ),
    "leader": Scenario(
        "A leader is cut off",
        "a was elected and writes again and again. Then it cannot reach the store any more, and still reaches the storage. When "
        "its ttl is over, b leads. A leader that does not look at its lease writes on.",
        (Part("a", work=0.15, prepare=0.1, updates=20), Part("b", start=0.2, work=0.4, prepare=0.3, updates=3)),
        (Strike(CUT, "a-store", 0.8, 8.0),),
        Settings(fence="all", checks=True),
        "A lease is over for its holder no later than for the store: a leader that looks before each step stops in time, but for "
        "the step that it is at. That one the storage refuses, by its token. (Looking alone, without a fence: try it.)",
        needs=frozenset({CUT}),
        election=True,
        length=7.0,
    ),
    "fair": Scenario(
        "Fair against unfair",
        "Four processes want the lock again and again. With fair=False, whoever comes at the right moment passes those in line.",
        tuple(Part(name, start=0.02 * number, work=0.1, prepare=0.05, rounds=6) for number, name in enumerate("abcd")),
        (),
        Settings(fair=True, fence="all"),
        "First come, first served: the longest wait is as long as those ahead take together.",
        start=Settings(fair=False),
        asks=("fair",),
        needs=frozenset({FAIR}),
    ),
    "herd": Scenario(
        "A herd without bells",
        "Eight want the lock at once. The messages that wake the next in line are lost, so everybody asks again after a third of "
        "the ttl: the lock lies free meanwhile, and the store is asked in vain.",
        _CROWD,
        (),
        Settings(bells=True, fence="all"),
        "A release rings one bell, that of the next in line: one question for each, and no time in between.",
        start=Settings(bells=False),
        asks=("bells",),
        length=9.0,
        needs=frozenset({DEAF}),
    ),
}

SCENARIOS = {key: one for key, one in SCENARIOS.items() if one.stores}  # those that the simulator can run here
