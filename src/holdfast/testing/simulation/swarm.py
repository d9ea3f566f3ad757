"""A plan a seed: some faults off, some heavy, so that rare combinations are reached. None is made for a known mistake."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import Any, TypeVar

from ...drivers.simulated_streams import ROUGH_STREAMS, StreamFaults
from ...errors import Misuse
from . import machines
from .chaos import (
    NO_TROUBLE,
    OF_PROCESSES,
    TROUBLE,
    TROUBLE_OF_CONSUL,
    TROUBLE_OF_ETCD,
    TROUBLE_OF_REDIS_CLUSTER,
    TROUBLE_OF_SERVERS,
    Trouble,
)
from .machines import Machinery
from .network import CALM, ROUGH, Faults
from .workload import KEPT, UNCONFIRMED, Plan

T = TypeVar("T", Trouble, Faults, StreamFaults)

WEIGHTS = (0.0, 0.0, 1.0, 1.0, 4.0)
STREAMS, NETWORK = ("slow", "split", "cut_off"), ("lose", "repeat")  # what may be said with --faults, beside troubles
REDIS, REDIS_CLUSTER, ETCD, CONSUL = machines.REDIS, machines.REDIS_CLUSTER, machines.ETCD, machines.CONSUL
REDLOCK, REDLOCK5 = "redlock", "redlock5"
STORES = ("memory", "sqlite", REDIS, REDIS_CLUSTER, REDLOCK, REDLOCK5, ETCD, CONSUL)

_LATER = Trouble._fields.index("close") + 1  # troubles that came after the first plans were drawn
_LATEST = Trouble._fields.index("fork")  # and these after many seeds had been run: every fourth has them
# Of 32 seeds: several tasks of each process want locks, some that are kept, or left unconfirmed. None that tests know by number.
_WITHIN = (9, 24, 25, 30)
_CROWDED = 16  # of so many seeds, one ends with a crowd, after all that it was before
_SLOTS = Trouble._fields.index("move_slot")
_OF_FILES = TROUBLE._replace(partition=0.0, server_pause=0.0)
_TROUBLES = {
    "memory": TROUBLE,
    "sqlite": _OF_FILES,
    REDIS_CLUSTER: TROUBLE_OF_REDIS_CLUSTER,
    ETCD: TROUBLE_OF_ETCD,
    CONSUL: TROUBLE_OF_CONSUL,
}
_SYSTEMS = (ETCD, CONSUL)
_WITHOUT_STREAMS = ("memory", "sqlite")


def _usual(store: str) -> Trouble:
    """A process of a file's does not fork here: SQLite's own connections cannot be inherited in one process."""
    more = {**OF_PROCESSES, **({"fork": 0.0} if store == "sqlite" else {})}
    return _TROUBLES.get(store, TROUBLE_OF_SERVERS)._replace(**more)


def faults_of(store: str) -> list[str]:
    """What can be chosen for it."""
    trouble = _usual(store)
    streams = [] if store in _WITHOUT_STREAMS else list(STREAMS)
    return [name for name, often in zip(Trouble._fields, trouble, strict=True) if often] + list(NETWORK) + streams


def chosen(store: str, faults: Sequence[str] | None) -> frozenset[str] | None:
    known = faults_of(store)
    for fault in faults or ():
        if fault not in known:
            raise Misuse(f"there is no fault {fault!r} for {store}: there are {', '.join(known)}")
    return None if faults is None else frozenset(faults)


def plan_of(store: str, seed: int, only: Collection[str] | None = None) -> Plan:
    """The plan of a seed; of `only` some faults, each as heavy as it would be."""
    random = Random(f"plan {seed}")
    trouble = _drawn(random, _usual(store), to=_LATER)
    own = Random(f"plan of {store} {seed}")  # what came later leaves the plans of older seeds as they are
    trouble = _drawn(own, trouble, _LATER, _LATEST)
    if seed % 4 == 0 or (only is not None and not OF_PROCESSES.keys().isdisjoint(only)):
        trouble = _drawn(Random(f"forks and signals {seed}"), trouble, _LATEST, _SLOTS)
    else:
        trouble = trouble._replace(fork=0.0, signal=0.0)
    trouble = _drawn(Random(f"slots {seed}"), trouble, _SLOTS)
    faults = _drawn(random, ROUGH)
    streams = _drawn(random, ROUGH_STREAMS)
    kinds = Plan().kinds if random.random() < 0.6 else tuple(random.choices(Plan().kinds, k=random.randint(1, 3)))
    processes, at_once = random.randint(2, 5), 1
    if seed % 32 in _WITHIN:
        within = Random(f"within processes {seed}")
        more = [UNCONFIRMED, UNCONFIRMED if store in (REDLOCK, REDLOCK5) else KEPT] * 3  # keep= is not for Redlock
        kinds = tuple(within.choices((*Plan().kinds, *more), k=within.randint(1, 4)))
        processes, at_once = min(processes, 3), within.randint(1, 3)
    nodes = {REDLOCK: 3, REDLOCK5: 5, REDIS_CLUSTER: 3}.get(store, 1)
    if only is not None:
        trouble = Trouble(
            *(often if name in only else 0.0 for name, often in zip(Trouble._fields, trouble, strict=True))
        )
        streams = StreamFaults(
            slow=streams.slow if "slow" in only else 0.0,
            split=streams.split if "split" in only else 0.0,
            cut=streams.cut if "cut_off" in only else 0.0,
        )
        lossy = faults if "lose" in only else CALM
        faults = lossy._replace(duplicate=faults.duplicate if "repeat" in only else 0.0, slow=0.0)
    return Plan(
        processes=processes,
        at_once=at_once,
        waves=6 if seed % _CROWDED == _CROWDED - 1 else 0,
        rounds=random.randint(3, 6),
        faults=faults,
        trouble=trouble if any(trouble) else NO_TROUBLE,
        same_machine=store == "sqlite",
        chaos=random.choice((5.0, 15.0, 15.0, 30.0)),
        ttls=random.choice(((1.0, 2.0, 4.0), (1.0,), (2.0,), (1.0, 4.0))),
        hold=random.choice((0.2, 0.75, 0.75, 2.0)),
        drop=random.choice((0.0, 0.1)),
        kinds=kinds,
        machinery=Machinery(
            system=store if store in (REDIS_CLUSTER, *_SYSTEMS) else REDIS,
            nodes=own.choice((1, 3, 3)) if store in _SYSTEMS else nodes,
            streams=streams,
            retention=random.choice((0.5, 5.0, 30.0, 3600.0)),
            timeout=random.choice((0.3, 1.0, 3.0)),
            replicas=random.choice((0, 0, 0, 1)) if nodes == 1 else 0,
            lag=random.choice((0.05, 0.5, 2.0)),
            login=own.random() < 0.3,
            lock_delay=own.choice((0.0, 0.0, 0.5)),
        ),
    )


def _drawn(random: Random, usual: T, start: int = 0, to: int | None = None) -> T:
    """Each chance off, as usual, or heavy; what is no chance stays. Only those from `start` up to `to` are drawn."""
    drawn: list[Any] = list(usual)
    for at in range(len(drawn))[start:to]:
        often = drawn[at]
        if isinstance(often, float):
            drawn[at] = min(often * random.choice(WEIGHTS), 0.7 if often < 1 else often)
    return type(usual)(*drawn)
