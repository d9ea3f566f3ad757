"""Renewal: two requests for all locks of a session, however many.

An eviction leaves word under the session, so it is seen at once. What somebody deleted by hand is seen when the turn
comes to that book: of up to 60 names at once, of more when their turn comes round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...claim import Grant, Verdict
from ...errors import HoldfastError, Unavailable
from . import keys as operations
from .book import NotOurs
from .claiming import pseudonym
from .keeper import Record
from .keys import MOST_LOOKED_AFTER, Step
from .looking import open_book
from .replies import Item
from .sessions import Session

if TYPE_CHECKING:
    from .store import ConsulStore


class Renewing:
    def __init__(self, store: ConsulStore) -> None:
        self._store = store
        self.turn = 0  # of whose books are looked into next

    async def renew(self, grants: Sequence[Grant], deadline: float) -> Sequence[Verdict]:
        keeper = self._store.keeper
        now = self._store.driver.now()
        kept: dict[str, Record] = {}
        by_session: dict[Session, list[Grant]] = {}
        for grant in grants:
            mine = keeper.records.get(grant.claim.holder)
            if mine is not None and mine.token == grant.token and mine.deadline > now and not mine.session.lost:
                kept[grant.claim.holder] = mine
                by_session.setdefault(mine.session, []).append(grant)
        unknown: dict[str, Unavailable] = {}
        for left, (session, some) in zip(range(len(by_session), 0, -1), by_session.items(), strict=True):
            try:
                share = now + (deadline - now) / left if left > 1 else deadline
                for holder in await self._gone(session, some, share):
                    keeper.forget(kept.pop(holder))
            except HoldfastError as error:
                trouble = error if isinstance(error, Unavailable) else Unavailable(str(error))
                unknown.update((grant.claim.holder, trouble) for grant in some)
        if unknown and len(unknown) == len(kept) == len(grants):
            raise next(iter(unknown.values()))  # nobody could be asked
        answers: list[Verdict] = []
        for grant in grants:
            mine = kept.get(grant.claim.holder)
            if mine is None or keeper.records.get(grant.claim.holder) is not mine or mine.token != grant.token:
                answers.append(None)
            elif grant.claim.holder in unknown:
                answers.append(unknown[grant.claim.holder])
            elif keeper.prolong(mine, now + grant.claim.ttl):
                answers.append(Grant(grant.claim, grant.token, grant.claim.ttl))
            else:
                answers.append(None)
        return answers

    async def _gone(self, session: Session, grants: list[Grant], deadline: float) -> list[str]:
        """Keep the session alive, and find out which holders are in the book no longer."""
        store, keys = self._store, self._store.keys
        holders = [grant.claim.holder for grant in grants]
        if not await store.persistently(deadline, lambda: store.sessions.renew(session, deadline)):
            store.keeper.lose(session)
            return holders
        first = self.turn % len(grants)
        self.turn += MOST_LOOKED_AFTER
        some = (grants[first:] + grants[:first])[:MOST_LOOKED_AFTER]
        mailbox = keys.session(session.id)
        trees = [mailbox, *{keys.book(grant.claim.name) for grant in some}]
        found = await store.persistently(deadline, lambda: store.wire.look(trees, deadline, apart=True))
        items = {item.key: item for item in found}
        if keys.alive(session.id) not in items:  # deleted by hand: everybody else takes us for dead
            store.keeper.lose(session)
            return holders
        gone = [holder for holder in holders if keys.out(session.id, pseudonym(holder)) in items]
        gone += [grant.claim.holder for grant in some if not self._is_inside(grant, items)]
        notices = [key for key in items if key.startswith(f"{mailbox}out-")]
        if notices:  # they have been read; were this to fail, the session takes them along
            with contextlib.suppress(HoldfastError):
                steps = [Step(operations.delete(key), "notice") for key in notices[:MOST_LOOKED_AFTER]]
                await store.wire.commit(steps, deadline)
        return list(dict.fromkeys(gone))

    def _is_inside(self, grant: Grant, items: dict[str, Item]) -> bool:
        item = items.get(self._store.keys.book(grant.claim.name))
        try:
            entry = item and open_book(self._store, item).inside.get(pseudonym(grant.claim.holder))
        except NotOurs:  # overwritten by somebody: that is this one's loss, and nobody else's trouble
            return False
        return entry is not None and entry.token == grant.token
