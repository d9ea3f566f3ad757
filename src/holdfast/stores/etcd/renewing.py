"""Renewal: one keep-alive a session; and every key is read, through the quorum, to see that it is still there.

The reads are what makes the keep-alive count (see sessions.py), and how an admin's `etcdctl del` is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ...claim import Grant, Verdict
from ...drivers.base import Driver
from ...errors import Unavailable
from .claiming import Record
from .replies import Done, Garbled, KeyValue, Leased, Refused, garbled, read_lease, read_txn
from .requests import LEASE_KEEP_ALIVE, TXN, lease_id, op_range, range_of, txn
from .sessions import Session, Sessions
from .sweeping import Sweeper
from .wire import Call, Outcome, Wire, answer_of

T = TypeVar("T")

_READS_A_TRANSACTION = 100  # etcd's own limit is 128 (--max-txn-ops)


class _Question(NamedTuple):
    number: int  # of the grant
    entry: Record
    key: bytes
    created: int


def _read_each(count: int, message: bytes) -> Done:
    """The answer to so many reads."""
    done = read_txn(message)
    for at in range(count):
        done.ranged(at)
    return done


class Renewal:
    def __init__(
        self, wire: Wire, driver: Driver, records: dict[str, Record], sessions: Sessions, sweeper: Sweeper
    ) -> None:
        self._wire = wire
        self._driver = driver
        self._records = records
        self._sessions = sessions
        self._sweeper = sweeper

    async def renew(self, grants: Sequence[Grant], deadline: float) -> Sequence[Verdict]:
        """Of what its owner is claiming again just now (to downgrade it, say), that it was not found says nothing."""
        verdicts = await self._renewed(grants, deadline)
        for at, grant in enumerate(grants):
            entry = self._records.get(grant.claim.holder)
            if verdicts[at] is None and entry is not None and entry.claiming:
                verdicts[at] = Unavailable(f"{grant.claim.name!r} was being claimed again while it was renewed")
        return verdicts

    async def _renewed(self, grants: Sequence[Grant], deadline: float) -> list[Verdict]:
        sent = self._driver.now()
        questions = self._questions(grants)
        verdicts: list[Verdict] = [None] * len(grants)
        if not questions:
            return verdicts
        sessions = list({id(one.entry.session): one.entry.session for one in questions if one.entry.session}.values())
        batches = [questions[at : at + _READS_A_TRANSACTION] for at in range(0, len(questions), _READS_A_TRANSACTION)]
        calls = [(LEASE_KEEP_ALIVE, lease_id(session.lease)) for session in sessions]
        calls += [(TXN, txn([], [op_range(range_of(one.key, keys_only=True)) for one in some])) for some in batches]
        outcomes = await self._ask(calls, deadline)
        reads = [
            self._read(outcome, partial(_read_each, len(some)))
            for outcome, some in zip(outcomes[len(sessions) :], batches, strict=True)
        ]
        kept = [self._read(outcome, read_lease) for outcome in outcomes[: len(sessions)]]
        trouble = self._note(sessions, kept, reads, sent)
        found: dict[_Question, tuple[KeyValue, ...] | Unavailable] = {}
        for batch, done in zip(batches, reads, strict=True):
            for at, one in enumerate(batch):
                found[one] = done if isinstance(done, Unavailable) else done.ranged(at)
        for question, there in found.items():
            grant = grants[question.number]
            if isinstance(verdicts[question.number], Grant):
                continue  # it was moving, and is found where it went
            unknown = there if isinstance(there, Unavailable) else trouble.get(id(question.entry.session))
            if unknown is not None:
                verdicts[question.number] = unknown
            elif not isinstance(there, Unavailable) and self._still(question, there, sent + grant.claim.ttl):
                question.entry.deadline = max(question.entry.deadline, sent + grant.claim.ttl)
                verdicts[question.number] = grant
        for question in found:
            mine = question.entry.token == grants[question.number].token and not question.entry.claiming
            if verdicts[question.number] is None and mine:
                question.entry.deadline = sent  # whatever may be left of it is swept away
                self._sweeper.alarm.expect(sent)
        return verdicts

    async def _ask(self, calls: list[Call], deadline: float) -> list[Outcome]:
        """Of whoever did not answer, another member is asked, while there is time. All of it counts from the first asking."""
        outcomes: list[Outcome] = list(await self._wire.ask_apart(calls, deadline))
        while unanswered := [at for at, one in enumerate(outcomes) if isinstance(one, Unavailable)]:
            left = deadline - self._driver.now()
            if left <= 0:
                break
            await self._driver.sleep(min(left, self._driver.uniform(0.0, 0.03)))
            try:
                again = await self._wire.ask_apart([calls[at] for at in unanswered], deadline)
            except Unavailable:
                break
            for at, outcome in zip(unanswered, again, strict=True):
                outcomes[at] = outcome
        return outcomes

    def _read(self, outcome: Outcome, read: Callable[[bytes], T]) -> T | Unavailable:
        try:
            return read(answer_of(outcome))
        except Unavailable as unavailable:
            return unavailable
        except Refused as refused:
            return Unavailable(f"etcd at {self._wire.where} refused to renew: {refused}")
        except Garbled as error:
            return garbled(error, self._wire.where)

    def _questions(self, grants: Sequence[Grant]) -> list[_Question]:
        questions = []
        for index, grant in enumerate(grants):
            entry = self._records.get(grant.claim.holder)
            if entry is None or entry.token != grant.token or entry.session is None:
                continue  # not, or no longer, what we hold
            questions.append(_Question(index, entry, entry.at.inside, entry.created))
            if entry.moving:  # it was to be downgraded, and the answer was lost: it stands here or there
                questions += [_Question(index, entry, key, 0) for key in entry.elsewhere()]
        return questions

    @staticmethod
    def _still(question: _Question, there: Sequence[KeyValue], until: float) -> bool:
        entry = question.entry
        if entry.session is None or entry.session.live_until < until:
            return False
        if not entry.token:
            return False  # it was swept away while we asked
        if (entry.at.inside, entry.created) != question[2:] and not entry.moving:
            return True  # it was downgraded while we asked: that it could be is the answer
        return bool(there) and there[0].created == (question.created or there[0].created)

    def _note(
        self,
        sessions: Sequence[Session],
        kept: Sequence[Leased | Unavailable],
        reads: Sequence[Done | Unavailable],
        sent: float,
    ) -> dict[int, Unavailable]:
        """What the answers say of the sessions; of which they say nothing certain, and why."""
        terms = {done.header.term for done in reads if not isinstance(done, Unavailable)}
        trouble: dict[int, Unavailable] = {}
        for session, answer in zip(sessions, kept, strict=True):
            if isinstance(answer, Unavailable):
                trouble[id(session)] = answer
            elif answer.ttl <= 0 and terms == {answer.header.term}:
                self._sessions.end(session)
                session.live_until = sent
            elif terms != {answer.header.term}:
                changed = "etcd changed its leader while a renewal was under way: it does not count"
                trouble[id(session)] = Unavailable(changed)
            else:
                session.kept(sent, answer.header.term)
                session.confirm(answer.header.term, sent)
        return trouble
