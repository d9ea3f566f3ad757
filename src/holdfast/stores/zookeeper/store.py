"""Locks in ZooKeeper. A claim is an ephemeral sequential node; `line.py` says from a listing who is inside.

    /root/locks/<name>/<claim>      the names are container nodes: the server removes them when they are empty
    /root/evictions/<name>          the last forced release, for a day

How a claim comes in is told in `entering.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kazoo.protocol.serialization import CheckVersion, Exists, Transaction

from ...claim import ROUND, Claim, Grant, Place, Snapshot, Traits, Verdict
from ...drivers.base import Driver
from ...errors import HoldfastError, Unavailable
from . import line
from .entering import Entering
from .looking import Looking
from .records import Record
from .sessions import Sessions, lives
from .url import Target

TRAITS = Traits(
    system="zookeeper",
    scope="network",
    fenced="yes: the ensemble's transaction ids, which rise through crashes and elections of leaders",
    fair=True,
    bell=True,
    durable="what a quorum has written to disk; a lock dies with the session of its holder",
    clock="the leader's monotonic clock ends sessions; a holder counts by its own, and a quarter shorter",
    survives="kill -9 of any client, the loss of any minority of the ensemble, elections of leaders",
    min_ttl=0.5,
)
_ATTEMPTS = 50
_BREAKS = 5
_CHECK_BYTES = 400_000  # in one request; ZooKeeper takes less than a megabyte


class _PartlyUnavailable(HoldfastError):
    """Some sessions answered. Asked one by one, their leases are not held up by the others."""


class ZooKeeperStore:
    traits = TRAITS

    def __init__(self, target: Target, driver: Driver) -> None:
        self._driver = driver
        self._target = target
        self._sessions = Sessions(target, driver, self._parent)
        self._looking = Looking(target, driver, self._sessions, self._parent)
        self._entering = Entering(target, self._sessions, self._parent, self._looking.make_root)

    def _parent(self, name: str) -> str:
        return f"{self._target.root}/locks/{line.encode(name)}"

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        now = self._driver.now()
        record = self._sessions.records.get(claim.holder)
        if record is not None:
            over = record.session.dead or now >= record.until
            if over or not self._sessions.extend(record, now + lives(record, claim.ttl)):
                await self._sessions.remove(record)
                record = None
        if record is None:
            session = await self._sessions.of(claim.ttl)
            record = Record(claim, session, self._driver)
            self._sessions.add(record, self._driver.now() + lives(record, claim.ttl))
        breaks = 0
        for _ in range(_ATTEMPTS):
            try:
                answer = await self._entering.ask_for(record, claim)
            except Unavailable:
                # A connection that broke is soon replaced, by one to another member, and what we asked for is found again.
                breaks += 1
                if record.session.dead or breaks > _BREAKS or self._driver.now() > now + self._target.timeout / 2:
                    raise
                await self._driver.sleep(0.05)
                continue
            if answer is not None:
                return answer
        raise Unavailable(f"{claim.name!r} changes too fast: {_ATTEMPTS} attempts to claim it failed")

    async def wait(self, place: Place, timeout: float) -> None:
        record = self._sessions.records.get(place.claim.holder)
        if record is None:
            await self._driver.sleep(min(timeout, 0.05))
        else:
            await record.bell.wait(timeout)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        sent = self._driver.now()
        give_up = sent + min(within, self._target.timeout)  # a server that is silent so long is left for another
        by_session: dict[int, list[int]] = {}
        records: list[Record | None] = []
        for index, (claim, token, _) in enumerate(grants):
            record = self._sessions.records.get(claim.holder)
            if record is not None and (record.token != token or sent >= record.until or record.session.dead):
                record = None
            records.append(record)
            if record is not None:
                by_session.setdefault(id(record.session), []).append(index)
        failure: Unavailable | None = None
        renewed: list[Grant | None] = [None] * len(grants)
        for indices in by_session.values():
            some = [one for index in indices if (one := records[index]) is not None]
            try:
                alive = await self._alive(some, give_up)
            except Unavailable as error:
                failure = error
                continue
            for index, record, there in zip(indices, some, alive, strict=True):
                ttl = lives(record, grants[index].claim.ttl)
                if there and self._sessions.extend(record, sent + ttl):
                    renewed[index] = grants[index] if ttl == grants[index].ttl else grants[index]._replace(ttl=ttl)
                elif not there:
                    self._sessions.forget(record)
        if failure is not None:
            raise failure if len(by_session) == 1 else _PartlyUnavailable(str(failure))
        return renewed

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        record = self._sessions.records.get(claim.holder)
        return record is not None and await self._sessions.remove(record)

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self._looking.watch(name, token, timeout)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        return await self._looking.evict(name, token, by)

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        return await self._looking.inspect(name)

    async def names(self, prefix: str = "") -> Sequence[str]:
        return await self._looking.names(prefix)

    def forked(self) -> None:
        self._sessions.forked()

    async def close(self) -> None:
        await self._sessions.close()

    async def _alive(self, records: list[Record], give_up: float) -> list[bool]:
        """Whose nodes are there, by the word of a quorum: a follower that is cut off may say so for longer than it is true."""
        session = records[0].session
        if session.suspended is not None:
            raise Unavailable(f"the connection to ZooKeeper at {self._target.shown()} is interrupted")
        alive: list[bool] = []
        for some in _batches(records):
            checks = Transaction([CheckVersion(record.path, -1) for record in some])
            left = max(0.001, give_up - self._driver.now())
            (done,) = await session.ask([checks], left)
            if not isinstance(done, Exception) and not any(isinstance(one, Exception) for one in done):
                alive += [True] * len(some)
                continue
            # One that is missing fails the transaction, which went through the quorum all the same: now ask one by one.
            left = max(0.001, give_up - self._driver.now())
            stats = await session.ask([Exists(record.path, None) for record in some], left)
            alive += [stat is not None and not isinstance(stat, Exception) for stat in stats]
        return alive


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        size += len(record.path) + 20
        if size > _CHECK_BYTES and batch:
            yield batch
            batch, size = [], len(record.path) + 20
        batch.append(record)
    yield batch
