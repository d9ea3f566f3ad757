"""Locks in ZooKeeper. A claim is an ephemeral sequential node; `line.py` says from a listing who is inside.

    /<root>/locks/<name>/<claim>    the names are container nodes: the server removes them when they are empty
    /<root>/evictions/<name>        the last forced release, for a day

How a claim comes in is told in `entering.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from ...claim import LAST_WORDS, ROUND, Claim, Grant, Place, Snapshot, Verdict
from ...drivers.base import Driver
from ...errors import Unavailable
from .. import promises
from . import line
from .entering import Entering
from .looking import Looking
from .records import Record
from .renewing import ask_who_is_there
from .sessions import REDIAL, Sessions
from .url import Target

_ATTEMPTS = 50
_CHECK_BYTES = 400_000  # in one request; ZooKeeper takes less than a megabyte


class ZooKeeperStore:
    traits = promises.ZOOKEEPER

    def __init__(self, target: Target, driver: Driver) -> None:
        self._driver = driver
        self._target = target
        parent = partial(line.parent, target.root)
        self._sessions = Sessions(target, driver, parent)
        self._looking = Looking(target, driver, self._sessions, parent)
        self._entering = Entering(target, self._sessions, parent, self._looking.make_root)

    @property
    def reached(self) -> bool:
        return self._sessions.reached

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        give_up = self._until(within)
        attempts = 0
        while attempts < _ATTEMPTS:
            record = await self._record(claim, give_up)
            try:
                answer = await self._entering.ask_for(record, claim, give_up)
            except Unavailable:
                # A connection that broke is soon replaced, by one to another member, and what we asked for is found again.
                record.unwatch()  # whether we watch anything is as unknown as the rest
                left = give_up - self._driver.now()
                if record.session.dead or record.leaving or left <= 0:
                    raise
                await self._driver.sleep(min(REDIAL, left))
                continue
            if isinstance(answer, Place) or (answer is not None and not record.leaving):
                return answer
            attempts += 1
        raise Unavailable(f"{claim.name!r} changes too fast: {_ATTEMPTS} attempts to claim it failed")

    async def _record(self, claim: Claim, give_up: float) -> Record:
        """Of this claim. Anew with every attempt: whoever was answered too late was taken away, and starts from the beginning."""
        record = self._sessions.records.get(claim.holder)
        if record is not None:
            now = self._driver.now()
            lasts = not record.session.dead and now < record.until
            if lasts and self._sessions.extend(record, now + record.lives(claim.ttl)):
                return record
            await self._sessions.remove(record, give_up)
        session = await self._sessions.of(claim.ttl, give_up)
        record = Record(claim, session, self._driver)
        self._sessions.add(record, self._driver.now() + record.lives(claim.ttl))
        return record

    def _until(self, within: float) -> float:
        return self._driver.now() + min(within, self._target.timeout)

    async def wait(self, place: Place, timeout: float) -> None:
        record = self._sessions.records.get(place.claim.holder)
        if record is None:
            await self._driver.sleep(min(timeout, 0.05))
        else:
            await record.bell.wait(timeout)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        sent = self._driver.now()
        verdicts: list[Verdict] = [None] * len(grants)
        by_session: dict[int, list[tuple[int, Record]]] = {}
        for index, (claim, token, _) in enumerate(grants):
            record = self._sessions.records.get(claim.holder)
            if record is not None and record.token == token and sent < record.until and not record.session.dead:
                by_session.setdefault(id(record.session), []).append((index, record))
        questions = [some for all_of_one in by_session.values() for some in _batches(all_of_one)]
        heard = await ask_who_is_there([[record for _, record in some] for some in questions], self._driver, within)
        for some, answer in zip(questions, heard, strict=True):
            for place, (index, record) in enumerate(some):
                if isinstance(answer, Unavailable):
                    verdicts[index] = answer
                elif not answer[place]:
                    self._sessions.forget(record)
                else:
                    grant = grants[index]
                    ttl = record.lives(grant.claim.ttl)
                    if self._sessions.extend(record, sent + ttl):
                        verdicts[index] = grant if ttl == grant.ttl else grant._replace(ttl=ttl)
        return verdicts

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        record = self._sessions.records.get(claim.holder)
        return record is not None and await self._sessions.remove(record, self._until(within))

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self._looking.watch(name, token, timeout)

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        return await self._looking.wanted(grant.claim.name, timeout)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        return await self._looking.evict(name, token, by)

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        return await self._looking.inspect(name, self._until(within))

    async def names(self, prefix: str = "") -> Sequence[str]:
        return await self._looking.names(prefix)

    def wake_waiters(self) -> None:
        self._sessions.wake_waiters()
        self._looking.wake_waiters()

    def forked(self) -> None:
        self._sessions.forked()
        self._looking.forked()

    async def close(self, within: float = LAST_WORDS) -> None:
        await self._sessions.close(within)
        self.wake_waiters()  # whoever began to wait meanwhile


def _batches(records: Sequence[tuple[int, Record]]) -> Iterator[list[tuple[int, Record]]]:
    """As many as go into one request."""
    batch: list[tuple[int, Record]] = []
    size = 0
    for numbered in records:
        size += len(numbered[1].path) + 20
        if size > _CHECK_BYTES and batch:
            yield batch
            batch, size = [], len(numbered[1].path) + 20
        batch.append(numbered)
    yield batch
