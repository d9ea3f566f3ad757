"""What a run is to do, and what it may do: faults are only those that the user allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..claim import ROUND
from ..engine import CLOSING
from ..errors import Misuse
from ..waiting import FIND_OUT

WORKERS = ("pause", "kill", "clock")  # struck at workers of our own
NETWORK = ("cut", "delay", "drop")  # struck at the way between workers and servers, which is a proxy of ours
# Struck at servers that the run has started itself.
SERVERS = ("restart", "pause-server", "leader", "failover", "partition", "disk-full", "clock-server")
ALL = (*WORKERS, *NETWORK, *SERVERS)

HOLD = 0.02  # seconds somebody thinks between two steps, at most
STEPS = 4
NAMES = 6  # of every kind of lock: with fewer, one holder that is paused soon has everybody waiting for it
SPARE = 5.0  # for a machine that does something else just now
STARVED = 60.0  # and for one that gives nobody a turn: to end a Python, 0.07 s of work, was seen to take 20 s there


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float = 10.0
    seed: int = 0
    workers: int = 4
    lanes: int = 3  # threads or tasks of each worker, who take locks at the same time
    faults: tuple[str, ...] = WORKERS
    ttl: float = 1.0
    fenced: bool = True
    library: str | None = None  # somebody else's locks
    machines: int = 1  # that the workers stand for: those on one machine cannot have been asleep without the others

    @property
    def bound(self) -> float:
        """Once all has healed, whoever waits is served within: those that died expire (on some stores one or two ttls late), then
        everybody ahead has a turn."""
        late = 1.5 * self.ttl + 1 if "clock-server" in self.faults else 0.0  # leases of a clock that was set back
        return late + 4 * self.ttl + self.workers * self.lanes * STEPS * HOLD + SPARE

    @property
    def patience(self) -> float:
        """So long those wait who do not go away soon."""
        return self.bound + 2

    @property
    def ending(self) -> float:
        """A worker that is told to stop has ended within: it may just have begun to wait, for two locks that it gives back then;
        and it closes. Each of these may take its time, if the store does not answer; what takes longer hangs."""
        return self.patience + 2 * FIND_OUT + 2 * ROUND + CLOSING + STARVED

    @property
    def era(self) -> float:
        """So long the same names are used: long enough to be overtaken in, short enough for a history to be checked."""
        return 5 * self.ttl


def possible(proxied: bool, servers: Sequence[str]) -> tuple[str, ...]:
    """What can be done at all to such a store; `servers` is what can be done to those of its own."""
    return tuple(fault for fault in ALL if fault in (*WORKERS, *(NETWORK if proxied else ()), *servers))


def allowed(asked: Sequence[str] | None, can: Sequence[str], why_not: Mapping[str, str]) -> tuple[str, ...]:
    """The faults of a run: those asked for, or all that can be struck. One that cannot is refused, not passed over in silence."""
    if asked is None:
        return tuple(can)
    for fault in asked:
        if fault not in ALL:
            raise Misuse(f"there is no fault {fault!r}; there are {', '.join(ALL)}, or none")
        if fault not in can:
            why = why_not.get(fault) or (
                "only servers that the run starts itself are touched, if they can do that: use --own"
                if fault in SERVERS
                else "no proxy of ours fits between the workers and this URL"
            )
            raise Misuse(f"{fault!r} cannot be struck here ({why}). What can be: {', '.join(can)}")
    return tuple(fault for fault in ALL if fault in asked)
