"""What this process has in the books, and until when.

A session keeps everything alive that hangs on it. A single claim that nobody renews any more must end all the same: its
own store puts it out when its time is over. Whoever keeps the session alive is also the one who does this: if it is dead,
or stopped, the session ends, and with it all the rest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...claim import Claim
from ...drivers.base import Bell, Driver
from ...errors import HoldfastError
from .ears import Ears, Heard
from .replies import Answer, told
from .sessions import Session, Sessions

_IDLE = 20.0  # with nothing to look after for so long, the keeper ends its sessions and goes home
_NEVER = float("inf")


class Mine:
    """A claim of ours that is in a book, or may be."""

    __slots__ = (
        "bell",
        "claim",
        "deadline",
        "heard",
        "leaving",
        "look_at",
        "mailbox",
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
        self.deadline = self.look_at = _NEVER
        self.token = 0  # in line
        self.leaving = False  # a release was sent, and its fate is not known
        self.heard: set[str] = set()
        self.mailbox = ""  # where it waits for its bell
        self.rung = 0
        self.uncertain = False  # a claim was sent, and its fate is not known: it may still arrive


class Keeper:
    def __init__(
        self,
        driver: Driver,
        ears: Ears,
        sessions: Sessions,
        put_out: Callable[[Mine], Awaitable[None]],
        timeout: float,
        where: str,
    ) -> None:
        self._where = where
        self._driver = driver
        self._ears = ears
        self._sessions = sessions
        self._put_out = put_out
        self._timeout = timeout
        self.mine: dict[str, Mine] = {}  # by holder
        self._waiting: dict[str, dict[str, Mine]] = {}  # by mailbox
        self._mutex = driver.mutex()
        self._bell: Bell | None = None  # there while the keeper runs
        self._wake_at = _NEVER
        self._closed = False

    def keep(self, claim: Claim, who: str, session: Session, deadline: float, token: int) -> Mine | None:
        """None: its session is over, and so is whatever was written under it."""
        with self._mutex:
            if session.lost:
                return None
            mine = self.mine.get(claim.holder)
            if mine is None:
                mine = self.mine[claim.holder] = Mine(claim, who, session)
                session.users += 1
            elif mine.session is not session:
                self._hush(mine)
                mine.session.users -= 1
                session.users += 1
                mine.session = session
            if token:
                self._hush(mine)
            mine.claim, mine.token = claim, token
            mine.deadline = mine.look_at = deadline
            if deadline < self._wake_at:
                self._wake(deadline)
        return mine

    def forget(self, mine: Mine) -> None:
        with self._mutex:
            if self.mine.get(mine.claim.holder) is mine:
                del self.mine[mine.claim.holder]
                mine.session.users -= 1
            self._hush(mine)

    def lose(self, session: Session) -> None:
        """It is over, and all that hangs on it."""
        self._sessions.lose(session)
        for mine in [one for one in list(self.mine.values()) if one.session is session]:
            if mine.bell is not None:
                mine.bell.ring()
            self.forget(mine)

    def expect_bell(self, mine: Mine, path: str) -> Bell:
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

    def _mail(self, waiting: dict[str, Mine]) -> Heard:
        def heard(answer: Answer) -> None:
            over = answer.status != 200  # the session: claim again, and find out
            rung = {} if over else dict(told(answer, self._where, _rung))
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

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            if self._bell is not None:
                self._bell.ring()

    def _hush(self, mine: Mine) -> None:
        for path in mine.heard:
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

    def _wake(self, at: float) -> None:
        self._wake_at = at
        if self._bell is None or not self._bell.ring():  # not started, or its event loop is gone
            self._bell = bell = self._driver.bell()
            try:
                self._driver.spawn(lambda: self._run(bell), "holdfast-consul-keeper", lambda: self._needed(bell))
            except BaseException:
                self._bell, self._wake_at = None, _NEVER
                raise

    def _needed(self, bell: Bell) -> bool:
        return self._bell is bell and not self._closed

    async def _run(self, bell: Bell) -> None:
        idle_since: float | None = None
        try:
            while not self._closed:
                with self._mutex:
                    now = self._driver.now()
                    due = min((mine.look_at for mine in self.mine.values()), default=_NEVER)
                    idle_since = None if due < _NEVER else idle_since or now
                    if idle_since is not None and now >= idle_since + _IDLE:
                        self._bell, self._wake_at = None, _NEVER
                        break
                    self._wake_at = due
                await bell.wait(min(due - now, _IDLE))
                await self._round()
            if not self._closed:
                await self.end_idle(self._driver.now() + self._timeout)
        finally:
            with self._mutex:
                if self._bell is bell:  # somebody cancelled it: it is started again, unless its event loop is gone
                    self._wake_at = _NEVER

    async def _round(self) -> None:
        now = self._driver.now()
        for mine in [one for one in list(self.mine.values()) if one.look_at <= now]:
            if self._closed:
                return
            if mine.session.lost:
                self.forget(mine)
                continue
            try:
                await self._put_out(mine)
            except HoldfastError:  # once more soon; if that never helps, the session ends it
                mine.look_at = self._driver.now() + self._driver.uniform(0.2, 0.5)


def _rung(said: Any) -> list[tuple[str, int]]:
    """Whose bells there are, and when they were rung."""
    return [(str(pair["Key"]).rpartition("/bell-")[2], int(pair["ModifyIndex"])) for pair in said]
