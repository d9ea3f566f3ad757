"""Renewal: one keep-alive a session; and every key is read, through the quorum, to see that it is still there.

The reads are what makes the keep-alive count (see session.py), and how an admin's `etcdctl del` is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...claim import Grant, Verdict
from ...drivers.base import Driver
from ...errors import Unavailable
from .entering import Entry
from .proto import (
    LEASE_KEEP_ALIVE,
    TXN,
    Done,
    KeyValue,
    Leased,
    lease_id,
    op_range,
    range_of,
    read_lease,
    read_txn,
    txn,
)
from .session import Session, Sessions
from .sweeping import Sweeper

if TYPE_CHECKING:
    from .talk import Wire

_READS_A_TRANSACTION = 100  # etcd's own limit is 128 (--max-txn-ops)


class _Question(NamedTuple):
    number: int  # of the grant
    entry: Entry
    key: bytes
    created: int


class Renewal:
    def __init__(
        self, wire: Wire, driver: Driver, entries: dict[str, Entry], sessions: Sessions, sweeper: Sweeper
    ) -> None:
        self._wire = wire
        self._driver = driver
        self._entries = entries
        self._sessions = sessions
        self._sweeper = sweeper

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        sent = self._driver.now()
        questions = self._questions(grants)
        renewed: list[Grant | None] = [None] * len(grants)
        if not questions:
            return renewed
        sessions = list({id(one.entry.session): one.entry.session for one in questions if one.entry.session}.values())
        batches = [questions[at : at + _READS_A_TRANSACTION] for at in range(0, len(questions), _READS_A_TRANSACTION)]
        calls = [(LEASE_KEEP_ALIVE, lease_id(session.lease)) for session in sessions]
        calls += [(TXN, txn([], [op_range(range_of(one.key, keys_only=True)) for one in some])) for some in batches]
        answers = await self._wire.ask_apart(calls, within)
        reads = [read_txn(answer) for answer in answers[len(sessions) :]]
        self._note(sessions, [read_lease(answer) for answer in answers[: len(sessions)]], reads, sent)
        found = {
            one: done.ranged(at) for batch, done in zip(batches, reads, strict=True) for at, one in enumerate(batch)
        }
        for question, there in found.items():
            grant = grants[question.number]
            if self._still(question, there, sent + grant.claim.ttl):
                question.entry.deadline = max(question.entry.deadline, sent + grant.claim.ttl)
                renewed[question.number] = grant
        for question in found:
            if renewed[question.number] is None and question.entry.token == grants[question.number].token:
                question.entry.deadline = sent  # whatever may be left of it is swept away
                self._sweeper.expect(sent)
        for session in sessions:
            if session.doubtful:
                await self._sessions.delete_ghosts(session)
        return renewed

    def _questions(self, grants: Sequence[Grant]) -> list[_Question]:
        questions = []
        for index, grant in enumerate(grants):
            entry = self._entries.get(grant.claim.holder)
            if entry is None or entry.token != grant.token or entry.session is None:
                continue  # not, or no longer, what we hold
            questions.append(_Question(index, entry, entry.key, entry.created))
            if entry.moving:  # it was to be downgraded, and the answer was lost: it stands here or there
                questions += [_Question(index, entry, key, 0) for key in entry.elsewhere()]
        return questions

    @staticmethod
    def _still(question: _Question, there: Sequence[KeyValue], until: float) -> bool:
        entry = question.entry
        if entry.session is None or entry.session.live_until < until:
            return False
        if (entry.key, entry.created) != question[2:] and not entry.moving:
            return True  # it was downgraded while we asked: that it could be is the answer
        return bool(there) and there[0].created == (question.created or there[0].created)

    def _note(self, sessions: Sequence[Session], kept: Sequence[Leased], reads: Sequence[Done], sent: float) -> None:
        terms = {done.header.term for done in reads}
        for session, answer in zip(sessions, kept, strict=True):
            if answer.ttl <= 0:
                self._sessions.end(session)
                session.live_until = sent
            elif terms != {answer.header.term}:
                raise Unavailable("etcd changed its leader while a renewal was under way: it does not count")
            else:
                session.kept(sent, answer.header.term)
                session.confirm(answer.header.term)
