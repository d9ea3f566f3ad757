"""A plan a seed: some faults off, some heavy, so that rare combinations are reached. None is made for a known mistake."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from random import Random
from typing import Any, TypeVar

from ...drivers.simulated_streams import ROUGH_STREAMS, StreamFaults
from ...errors import Misuse
from . import machines
from .chaos import NO_TROUBLE, TROUBLE, TROUBLE_OF_CONSUL, TROUBLE_OF_ETCD, TROUBLE_OF_SERVERS, Trouble
from .machines import Machinery
from .network import CALM, ROUGH, Faults
from .workload import Plan

T = TypeVar("T", Trouble, Faults, StreamFaults)

WEIGHTS = (0.0, 0.0, 1.0, 1.0, 4.0)
STREAMS, NETWORK = ("slow", "split", "cut_off"), ("lose", "repeat")  # what may be said with --faults, beside troubles
REDIS, ETCD, CONSUL = machines.REDIS, machines.ETCD, machines.CONSUL
REDLOCK, REDLOCK5 = "redlock", "redlock5"
STORES = ("memory", "sqlite", REDIS, REDLOCK, REDLOCK5, ETCD, CONSUL)

_LATER = Trouble._fields.index("close") + 1  # troubles that came after the first plans were drawn
_OF_FILES = TROUBLE._replace(partition=0.0, server_pause=0.0)
_TROUBLES = {"memory": TROUBLE, "sqlite": _OF_FILES, ETCD: TROUBLE_OF_ETCD, CONSUL: TROUBLE_OF_CONSUL}
_SYSTEMS = (ETCD, CONSUL)
_WITHOUT_STREAMS = ("memory", "sqlite")


def faults_of(store: str) -> list[str]:
    """What can be chosen for it."""
    trouble = _TROUBLES.get(store, TROUBLE_OF_SERVERS)
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
    trouble = _drawn(random, _TROUBLES.get(store, TROUBLE_OF_SERVERS), to=_LATER)
    own = Random(f"plan of {store} {seed}")  # what came later leaves the plans of older seeds as they are
    trouble = _drawn(own, trouble, _LATER)
    faults = _drawn(random, ROUGH)
    streams = _drawn(random, ROUGH_STREAMS)
    kinds = Plan().kinds if random.random() < 0.6 else tuple(random.choices(Plan().kinds, k=random.randint(1, 3)))
    nodes = {REDLOCK: 3, REDLOCK5: 5}.get(store, 1)
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
        processes=random.randint(2, 5),
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
            system=store if store in _SYSTEMS else REDIS,
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
