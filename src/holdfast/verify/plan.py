"""What a run is to do, and what it may do: faults are only those that the user allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import Misuse

WORKERS = ("pause", "kill")  # struck at workers of our own
NETWORK = ("cut", "delay", "drop")  # struck at the way between workers and servers, which is a proxy of ours
SERVERS = ("restart", "pause-server", "leader")  # struck at servers that the run has started itself
ALL = (*WORKERS, *NETWORK, *SERVERS)

HOLD = 0.02  # seconds somebody thinks between two steps, at most
STEPS = 4
NAMES = 6  # of every kind of lock: with fewer, one holder that is paused soon has everybody waiting for it
SPARE = 5.0  # for a machine that does something else just now


@dataclass(frozen=True, slots=True)
class Plan:
    seconds: float = 10.0
    seed: int = 0
    workers: int = 4
    lanes: int = 3  # threads or tasks of each worker, who take locks at the same time
    faults: tuple[str, ...] = WORKERS
    ttl: float = 1.0
    fenced: bool = True

    @property
    def bound(self) -> float:
        """Once all has healed, whoever waits is served within: those that died expire (on some stores one or two ttls late), then
        everybody ahead has a turn."""
        return 4 * self.ttl + self.workers * self.lanes * STEPS * HOLD + SPARE

    @property
    def era(self) -> float:
        """So long the same names are used: long enough to be overtaken in, short enough for a history to be checked."""
        return 5 * self.ttl


def possible(proxied: bool, own: bool, leader: bool) -> tuple[str, ...]:
    """What can be done at all to such a store."""
    servers = tuple(fault for fault in SERVERS if fault != "leader" or leader) if own else ()
    return (*WORKERS, *(NETWORK if proxied else ()), *servers)


def allowed(asked: Sequence[str] | None, can: Sequence[str]) -> tuple[str, ...]:
    """The faults of a run: those asked for, or all that can be struck. One that cannot is refused, not passed over in silence."""
    if asked is None:
        return tuple(can)
    for fault in asked:
        if fault not in ALL:
            raise Misuse(f"there is no fault {fault!r}; there are {', '.join(ALL)}, or none")
        if fault not in can:
            why = (
                "only servers that the run starts itself are touched: use --own"
                if fault in SERVERS
                else "no proxy of ours fits between the workers and this URL"
            )
            raise Misuse(f"{fault!r} cannot be struck here ({why}). What can be: {', '.join(can)}")
    return tuple(fault for fault in ALL if fault in asked)
