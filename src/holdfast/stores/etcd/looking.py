"""Looking at locks, and putting holders out: what operators do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...claim import Eviction, Holding, Snapshot, Waiting
from ...errors import Unavailable
from .channel import MOST_LISTED
from .keys import Keys, everybody, read_json, read_number, read_terms, token_of
from .replies import Garbled, KeyValue, read_lease, read_range, revised
from .requests import (
    ASCEND,
    CREATE,
    EQUAL,
    LEASE_GRANT,
    LEASE_TIME_TO_LIVE,
    RANGE,
    compare,
    lease_grant,
    op_delete,
    op_put,
    op_range,
    range_of,
    time_to_live,
    txn,
)
from .sessions import new_lease_id

if TYPE_CHECKING:
    from .wire import Wire

_REMEMBER_EVICTIONS = 24 * 3600
_PAGE = 1000
_ATTEMPTS = 20  # to evict one whose claim changes at the same time
_LONGEST = 120.0  # seconds for all names: some ten million
_MOST_LEASES = 32  # asked for their time to live; of further processes in line, what is left is not told exactly


async def inspect(wire: Wire, keys: Keys, name: str, wall_us: int, deadline: float) -> Snapshot:
    """Ages are by the clocks of whoever wrote the claims: etcd itself keeps none. What is left is by its leases."""
    start, line = keys.of(name)
    reads = [
        op_range(range_of(*everybody(start), order=ASCEND)),
        op_range(range_of(*everybody(line), order=ASCEND)),
        op_range(range_of(keys.evicted(name))),
    ]
    done = await wire.transact(name, txn([], reads), deadline)
    inside, waiting, evicted = (done.ranged(index) for index in range(3))
    left = await _left(wire, (*inside, *waiting), deadline)
    holders = []
    for found in inside:
        terms = read_terms(found)
        seconds = min(terms.ttl, left.get(found.lease, terms.ttl))
        age = _age(terms.since, wall_us)
        holders.append(Holding(terms.owner, token_of(found, terms), terms.units, age, seconds, terms.note, terms.ttl))
    waiters = []
    for found in waiting:
        terms = read_terms(found)
        seconds = min(terms.ttl, left.get(found.lease, terms.ttl))
        waiters.append(Waiting(terms.owner, terms.units, _age(terms.since, wall_us), seconds, terms.fair))
    everyone = (*inside, *waiting)
    capacity = read_terms(everyone[0]).capacity if everyone else 0
    eviction = _eviction(evicted[0], wall_us) if evicted else None
    return Snapshot(name, capacity, tuple(sorted(holders, key=lambda one: one.token)), tuple(waiters), eviction)


async def _left(wire: Wire, found: Sequence[KeyValue], deadline: float) -> dict[int, float]:
    left = {}
    for lease in list(dict.fromkeys(one.lease for one in found if one.lease))[:_MOST_LEASES]:
        answer = read_lease(await wire.ask(LEASE_TIME_TO_LIVE, time_to_live(lease, keys=False), deadline))
        left[lease] = max(0.0, float(answer.ttl))
    return left


def _age(since: int, wall_us: int) -> float:
    return max(0.0, (wall_us - since) / 1_000_000)


def _eviction(found: KeyValue, wall_us: int) -> Eviction:
    said = read_json(found)
    owner, by = str(said.get("owner", "?")), str(said.get("by", "?"))
    age = _age(read_number(said, "since", wall_us), wall_us)
    return Eviction(owner, read_number(said, "token"), found.modified, by, age)


async def evict(
    wire: Wire, keys: Keys, name: str, token: int, by: str, wall_us: int, soon: Callable[[], float]
) -> int | None:
    """In one transaction: the key goes, if it is still that grant's, and the record comes; its revision outranks the grant."""
    start, _ = keys.of(name)
    for _ in range(_ATTEMPTS):
        done = await wire.transact(name, txn([], [op_range(range_of(*everybody(start)))]), soon())
        target = next((one for one in done.ranged(0) if token_of(one, read_terms(one)) == token), None)
        if target is None:
            return None
        owner = read_terms(target).owner
        record = json.dumps({"owner": owner, "token": token, "by": by, "since": wall_us}).encode()
        granted = read_lease(await wire.ask(LEASE_GRANT, lease_grant(_REMEMBER_EVICTIONS, new_lease_id()), soon()))
        same = compare(target.key, CREATE, EQUAL, target.created)
        operations = [op_delete(target.key), op_put(keys.evicted(name), record, granted.lease)]
        done = await wire.transact(name, txn([same], operations), soon())
        if done.succeeded:
            return revised(done).header.revision  # else it was downgraded, and stands elsewhere; or it has gone
    raise Unavailable(
        f"{name!r} in etcd at {wire.where} changes too fast: {_ATTEMPTS} attempts to evict its holder failed"
    )


async def names(
    wire: Wire, keys: Keys, prefix: str, now: Callable[[], float], soon: Callable[[], float]
) -> Sequence[str]:
    found: set[str] = set()
    give_up, size = now() + _LONGEST, 0
    for start, end in keys.spans(prefix):
        more = True
        while more:
            page = read_range(await wire.ask(RANGE, range_of(start, end, limit=_PAGE, keys_only=True), soon()))
            found.update(name for one in page.found if (name := keys.name_of(one.key)) is not None)
            more = page.more and bool(page.found)
            if more and page.found[-1].key < start:
                raise Garbled("a list of keys goes round in circles")
            size += sum(len(one.key) for one in page.found)
            if now() > give_up or size > MOST_LISTED:
                raise Unavailable(
                    f"etcd at {wire.where} has too many names to look through: for {_LONGEST:g} s, or {MOST_LISTED >> 20} MB"
                )
            start = page.found[-1].key + b"\0" if more else start
    return sorted(found)
