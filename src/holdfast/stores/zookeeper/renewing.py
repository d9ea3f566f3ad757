"""Whose nodes are there, by the word of a quorum: a follower that is cut off may say so for longer than it is true.

All sessions are asked at once, and each is heard on its own: one that is silent holds up no other.
"""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.protocol.serialization import CheckVersion, Exists, Transaction

from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Unavailable
from .records import Record

Answer = list[bool] | Unavailable  # Unavailable: nobody knows


async def ask_who_is_there(groups: Sequence[list[Record]], driver: Driver, within: float) -> list[Answer]:
    """An answer a group of records; those of a group are of one session."""
    if not groups:
        return []
    # A server that is silent for longer than one conversation may take is left for another, while there is time.
    give_up = driver.now() + min(within, groups[0][0].session.target.timeout)
    bell = driver.bell()
    questions = [_Question(group, bell) for group in groups]
    while any(question.answer is None for question in questions):
        for question in questions:
            question.listen()
        if all(question.answer is not None for question in questions):
            break
        left = give_up - driver.now()
        if left <= 0:
            break
        await bell.wait(left)
    return [question.answer if question.answer is not None else question.unheard() for question in questions]


class _Question:
    """Are these there? Asked of all of them in one; and if that is denied, of each."""

    def __init__(self, records: list[Record], bell: Bell) -> None:
        self.answer: Answer | None = None
        self._records = records
        self._session = records[0].session
        self._bell = bell
        self._each = False
        if self._session.suspended is not None:
            where = self._session.target.shown()
            self.answer = Unavailable(f"the connection to ZooKeeper at {where} is interrupted")
            return
        self._batch = self._session.send(
            [Transaction([CheckVersion(record.path, -1) for record in records])], self._bell
        )

    def listen(self) -> None:
        if self.answer is not None or not self._batch.complete:
            return
        try:
            answers = self._session.answers(self._batch)
        except HoldfastError as trouble:
            self.answer = self._lost() or Unavailable(str(trouble))
            return
        if self._each:
            self.answer = [stat is not None and not isinstance(stat, Exception) for stat in answers]
        elif not isinstance(answers[0], Exception) and not any(isinstance(one, Exception) for one in answers[0]):
            self.answer = [True] * len(self._records)
        else:
            # One that is missing fails the transaction, which went through the quorum all the same: now a read will do.
            self._each = True
            self._batch = self._session.send([Exists(record.path, None) for record in self._records], self._bell)

    def unheard(self) -> Answer:
        return self._lost() or self._session.silent(self._batch)

    def _lost(self) -> Answer | None:
        """With a session that has ended, its nodes have."""
        return [False] * len(self._records) if self._session.dead else None
