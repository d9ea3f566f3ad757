"""What this process has in the books, and until when.

A session keeps everything alive that hangs on it. A single claim that nobody renews any more must end all the same: its
own store puts it out when its time is over. Whoever keeps the session alive is also the one who does this: if it is dead,
or stopped, the session ends, and with it all the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...claim import ROUND, Claim
from ...drivers.base import Bell
from ...errors import HoldfastError
from ..kit.alarm import NEVER, Alarm
from .ears import Heard
from .replies import Answer, told
from .sessions import Session

if TYPE_CHECKING:
    from .store import ConsulStore

_IDLE = 20.0  # with nothing to look after for so long, the keeper ends its sessions and goes home


class Record:
    """A claim of ours that is in a book, or may be."""

    __slots__ = (
        "bell",
        "claim",
        "deadline",
        "heard",
        "leaving",
        "look_at",
        "mailbox",
        "moving",
        "rung",
        "session",
        "token",
        "uncertain",
        "who",
    )

    def __init__(self, claim: Claim, who: str, session: Session) -> None:
        self.claim = claim
        self.who = who
        self.session = session
        self.bell: Bell | None = None  # of one that waits
        self.deadline = self.look_at = NEVER
        self.token = 0  # in line
        self.leaving = False  # a release was sent, and its fate is not known
        self.heard: set[str] = set()
        self.mailbox = ""  # where it waits for its bell
        self.rung = 0
        self.uncertain = False  # a claim was sent, and its fate is not known: it may still arrive
        self.moving: tuple[Session, ...] = ()  # under these; and the book may have it there by now


class Keeper:
    def __init__(self, store: ConsulStore) -> None:
        self._store = store
        self._driver = store.driver
        self._ears = store.ears
        self._sessions = store.sessions
        self.records: dict[str, Record] = {}  # by holder
        self._waiting: dict[str, dict[str, Record]] = {}  # by mailbox
        self._mutex = store.driver.mutex()
        self.alarm = Alarm(store.driver, "holdfast-consul-keeper", _IDLE, self._due, self._work)
        self.alarm.at_home = self._go_home

    def keep(self, claim: Claim, who: str, session: Session, deadline: float, token: int) -> Record | None:
        """None: its session is over, and so is whatever was written under it."""
        with self._mutex:
            if session.lost:
                return None
            mine = self.records.get(claim.holder)
            if mine is None:
                mine = self.records[claim.holder] = Record(claim, who, session)
                session.users += 1
            elif mine.session is not session:
                self._hush(mine)
                mine.session.users -= 1
                session.users += 1
                mine.session = session
            if token:
                self._hush(mine)
            mine.claim, mine.token = claim, token
            moved = mine.look_at != deadline
            mine.deadline = mine.look_at = deadline
        if moved:
            self.alarm.expect(deadline)
        return mine

    def prolong(self, mine: Record, deadline: float) -> bool:
        """It was renewed. False: its time was over before that was known, and it is being put out."""
        with self._mutex:
            if not mine.leaving:
                mine.deadline = mine.look_at = deadline
            return not mine.leaving

    def put_out(self, mine: Record, *, overdue: bool) -> bool:
        """From now on no renewal helps it. False: it was `overdue`, and is no longer."""
        with self._mutex:
            if overdue and self.in_time(mine):
                return False
            mine.leaving = True
            return True

    def in_time(self, mine: Record) -> bool:
        """Has its owner come back: with a renewal, or with a new claim of which there is another record?"""
        known = self.records.get(mine.claim.holder)
        return known is not mine or (mine.deadline > self._driver.now() and not mine.session.lost)

    def forget(self, mine: Record) -> None:
        with self._mutex:
            if self.records.get(mine.claim.holder) is mine:
                del self.records[mine.claim.holder]
                mine.session.users -= 1
            self._hush(mine)

    def lose(self, session: Session) -> None:
        """It is over, and all that hangs on it."""
        self._sessions.lose(session)
        for mine in [one for one in list(self.records.values()) if one.session is session]:
            if mine.bell is not None:
                mine.bell.ring()
            self.forget(mine)

    def expect_bell(self, mine: Record, path: str) -> Bell:
        """From now on, what is put under its session wakes this waiter: one ear for all of a session."""
        with self._mutex:
            bell = mine.bell = mine.bell or self._driver.bell()
            if mine.mailbox == path:
                return bell
            mine.mailbox = path
            waiting = self._waiting.setdefault(path, {})
            waiting[mine.who] = mine
        self._ears.listen(path, path, self._mail(waiting), final=True, always=True)
        return bell

    def _mail(self, waiting: dict[str, Record]) -> Heard:
        def heard(answer: Answer) -> None:
            over = answer.status != 200  # the session: claim again, and find out
            rung = {} if over else dict(told(answer, self._store.wire.where, _rung))
            for who, mine in list(waiting.items()):
                if (over or rung.get(who, 0) > mine.rung) and mine.bell is not None:
                    mine.rung = rung.get(who, mine.rung)
                    mine.bell.ring()

        return heard

    async def end_idle(self, deadline: float) -> None:
        """The sessions that nobody uses any more. Under one lock with `keep`: who comes too late to use one knows it."""
        with self._mutex:
            idle = self._sessions.lose_idle()
        for session in idle:
            await self._sessions.end(session, deadline)

    def _hush(self, mine: Record) -> None:
        for path in sorted(mine.heard):
            self._ears.forget(path, mine)
        mine.heard = set()
        waiting = self._waiting.get(mine.mailbox)
        if waiting is not None:
            waiting.pop(mine.who, None)
            if not waiting:
                del self._waiting[mine.mailbox]
                self._ears.forget(mine.mailbox, mine.mailbox)
        mine.mailbox = ""

    # ---- the keeper itself

    def _due(self) -> float:
        return min((mine.look_at for mine in list(self.records.values())), default=NEVER)

    async def _work(self) -> None:
        now = self._driver.now()
        for mine in [one for one in list(self.records.values()) if one.look_at <= now]:
            if self.alarm.closed:
                return
            if mine.session.lost:
                self.forget(mine)
                continue
            try:
                await self._store.leave(mine, self._store.by(ROUND), overdue=True)
            except HoldfastError:  # once more soon; if that never helps, the session ends it
                mine.look_at = self._driver.now() + self._driver.uniform(0.2, 0.5)

    async def _go_home(self) -> None:
        await self.end_idle(self._driver.now() + self._store.target.timeout)


def _rung(said: Any) -> list[tuple[str, int]]:
    """Whose bells there are, and when they were rung."""
    return [(str(pair["Key"]).rpartition("/bell-")[2], int(pair["ModifyIndex"])) for pair in said]
