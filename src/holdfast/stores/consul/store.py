"""The store in Consul: one book a name, changed by compare-and-set; a session for whoever is in it.

Why no two get in that should not:

1. A book changes only in a transaction that checks its index, so every writer has seen all writes before its own, and
   decides by `rule.admit()` on what is really there.
2. The transaction that lets a claim in checks as well that its session is alive. A session that dies later leaves its
   entry behind; others strike it out only when they have seen that its `alive` key is gone, which is for good. A claim
   that was taken back while it was still on its way finds the `alive` key rewritten, and comes to nothing: no ghost.
3. Consul keeps a session for at least its TTL, and a grant is promised for less: so the holder, whose time runs from
   before it asked, knows that it lost before anybody can be let in. (An admin who destroys the session, or puts the
   holder out, is quicker than that: then the token tells the two apart. `lock_delay` gives it time to notice.)
4. The token is the index, in Consul's log, of the write that let the claim in. That index only rises, for all keys, so
   tokens rise also when a book was deleted in between; one write lets in one claim, so no two have the same.

Nobody waits in vain: whoever makes room puts a bell under the session of the next in line, in the same transaction that
makes the room; the bell stays until its owner has taken it, so it cannot be missed. That bell can be put there only while
that session lives: else the dead one is struck out and the next is rung. One who was rung and then dies is noticed by the
next, who listens to the session of the one before it (or, at the head, of those inside).
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ...claim import Claim, Eviction, Grant, Holding, Place, Snapshot, Traits, Waiting
from ...drivers.base import Driver
from ...errors import Misuse, Unavailable
from . import keys as operations
from .book import Book, Entry
from .desk import Desk
from .ears import Ears
from .keeper import Keeper, Mine
from .keys import Keys, pseudonym, url_of
from .ledger import Failed, Item, Ledger, Step
from .sessions import MOST_TTL, Session, Sessions
from .url import Target
from .wire import Wire

T = TypeVar("T")
RETENTION = 3600.0  # how long a forced release can be looked up
_MOST_LOOKED_AFTER = 60  # sessions or books in one transaction, of which Consul takes 64 operations
_MOST_TRIES = 100
_MOST_OBSTACLES = 4  # listened to at once by one waiter; behind more, it looks again every second


class ConsulStore:
    def __init__(self, target: Target, open_wire: Callable[[], Wire], driver: Driver) -> None:
        self._target = target
        self._open_wire = open_wire
        self._driver = driver
        self._keys = Keys(target.prefix)
        self._start()

    def _start(self) -> None:
        self._wire = self._open_wire()
        self._ledger = Ledger(self._target, self._wire, self._keys)
        self._sessions = Sessions(self._target, self._wire, self._driver, self._keys, self._ledger)
        self._ears = Ears(self._wire, self._driver, len(self._target.addresses))
        self._keeper = Keeper(self._driver, self._ears, self._sessions, self._put_out_overdue, self._target.timeout)
        self._desk = Desk(self._wire)
        self._turn = 0

    @property
    def traits(self) -> Traits:
        delay = f", and after {self._target.lock_delay:g} s of lock-delay" if self._target.lock_delay else ""
        return Traits(
            system="consul",
            scope="network",
            fenced="yes: the index of the write in Consul's log that let the holder in",
            fair=True,
            bell=True,
            durable="all that a majority of the servers has written to disk",
            clock="the holder's own clock while it lives; after its death the leader's, which ends a session between "
            f"9/8 and 9/4 of the ttl after its last renewal{delay}",
            survives="the loss of any minority of the servers; a partition: the side with the majority goes on",
            min_ttl=self._target.min_ttl,
            max_ttl=MOST_TTL * 8 / 9,
        )

    # ---- the protocol

    async def claim(self, claim: Claim) -> Grant | Place:
        return await self._persistently(lambda: self._claim(claim))

    async def wait(self, place: Place, timeout: float) -> None:
        mine = self._keeper.find(place.claim.holder)
        if mine is None:
            await self._driver.sleep(max(min(timeout, place.wake_in), 0.0))
        else:
            await mine.bell.wait(timeout)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Grant | None]:
        now = self._driver.now()
        kept: dict[str, Mine] = {}
        by_session: dict[Session, list[Grant]] = {}
        for grant in grants:
            mine = self._keeper.find(grant.claim.holder)
            if mine is not None and mine.token == grant.token and mine.deadline > now and not mine.session.lost:
                kept[grant.claim.holder] = mine
                by_session.setdefault(mine.session, []).append(grant)
        share = within / (2 * max(len(by_session), 1))
        for session, some in by_session.items():
            for holder in await self._gone(session, some, share):
                self._keeper.forget(kept.pop(holder))
        answers: list[Grant | None] = []
        for grant in grants:
            mine = kept.get(grant.claim.holder)
            if mine is None or self._keeper.find(grant.claim.holder) is not mine or mine.token != grant.token:
                answers.append(None)
            else:
                mine.deadline = mine.look_at = now + grant.claim.ttl
                answers.append(Grant(grant.claim, grant.token, grant.claim.ttl))
        return answers

    async def release(self, claim: Claim) -> bool:
        mine = self._keeper.find(claim.holder)
        over = mine is not None and (mine.session.lost or mine.deadline <= self._driver.now())
        there = await self._leave(claim)
        return there and not over

    async def watch(self, name: str, token: int, timeout: float) -> None:
        bell = self._driver.bell()
        paths = [url_of(self._keys.book(name))]
        self._ears.listen(paths[0], bell, lambda _: _ring(bell))
        try:
            deadline = self._driver.now() + timeout
            # What is on its way already may have been told to others before we listened, so look once more now.
            book = await self._persistently(lambda: self._ledger.read(name))
            dead = await self._ledger.dead_among({entry.session for entry in book.inside.values()})
            book.without(dead, delayed=True)
            newest = max(book.inside.values(), key=lambda entry: entry.token, default=None)
            if (newest.token if newest else 0) != token:
                return
            if newest is not None:
                paths.append(url_of(self._keys.alive(newest.session)))
                self._ears.listen(paths[1], bell, lambda answer: _ring(bell, answer.status == 404), final=True)
            await bell.wait(deadline - self._driver.now())
        finally:
            for path in paths:
                self._ears.forget(path, bell)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        return await self._persistently(lambda: self._evict(name, token, by))

    async def inspect(self, name: str) -> Snapshot:
        async def look() -> Snapshot:
            found = {
                item.key: item for item in await self._ledger.look([self._keys.book(name), self._keys.eviction(name)])
            }
            item = found.get(self._keys.book(name))
            book = self._ledger.open(name, item) if item else Book()
            book.without(await self._ledger.dead_among({entry.session for entry in book.entries()}), delayed=True)
            return _snapshot(name, book, found.get(self._keys.eviction(name)))

        return await self._persistently(look)

    async def names(self, prefix: str = "") -> Sequence[str]:
        async def look() -> list[str]:
            items = await self._ledger.look([self._keys.books(prefix)])
            books = {self._keys.name_of(item.key): self._ledger.open(item.key, item) for item in items}
            sessions = {entry.session for book in books.values() for entry in book.entries()}
            dead = await self._ledger.dead_among(sessions)
            for name, book in books.items():
                if (
                    book.without(dead, delayed=True) and book.empty
                ):  # all of them died: nobody else will come by to tidy up
                    await self._ledger.commit(self._ledger.write(name, book))
            return sorted(name for name, book in books.items() if not book.empty)

        return await self._persistently(look)

    def forked(self) -> None:
        self._start()

    async def close(self) -> None:
        """What stays taken on purpose (`at_least`) stays, with its session, until its TTL ends it."""
        self._ears.close()
        self._keeper.close()
        try:
            await self._sessions.end_idle(self._target.timeout)
        finally:
            self._wire.close()

    # ---- claims

    async def _claim(self, claim: Claim) -> Grant | Place:
        mine = self._keeper.find(claim.holder)
        self._check_ttl(claim, mine)
        sent = self._driver.now()
        if mine is not None and mine.deadline <= sent:
            await self._leave(claim)  # it is over: what comes now is a new claim
            mine = None
        session = await self._sessions.fit_for(claim.ttl, self._target.timeout)
        async with self._desk.at(claim.name):
            return await self._enter(claim, mine, session, sent)

    async def _enter(self, claim: Claim, mine: Mine | None, session: Session, sent: float) -> Grant | Place:
        former = mine.session.id if mine is not None and not mine.session.lost else ""
        who = pseudonym(claim.holder)
        book = self._desk.take(claim.name)
        dead: set[str] = set()
        delayed: set[str] = set()
        doubted: set[str] = set()
        tries = 0
        while True:
            if book is None or (book.known and not book.empty and book.capacity != claim.capacity):
                book = await self._ledger.read(claim.name)
            ours = {session.id, former}
            if doubted or book.blocks(claim, who):
                asked = {entry.session for entry in book.ahead_of(who, _MOST_LOOKED_AFTER)} | doubted
                dead |= await self._ledger.dead_among(asked - ours - dead - delayed)
                doubted = set()
            struck = self._strike(book, dead - delayed, session)
            entry, changed = book.enter(claim, who, session.id, former, _wall_ms(), self._target.lock_delay)
            if entry is None and claim.queue:
                mine = self._expect(claim, who, session, sent)
            if not changed and book.known:  # nothing to write, so nobody would tell us that it is no longer true
                book = None
                continue
            if changed:
                steps = [Step(operations.unchanged(self._keys.alive(session.id), session.stamp), "alive"), *struck]
                steps += self._ledger.write(claim.name, book, dead | delayed)
                if entry is not None and mine is not None:
                    steps.append(Step(operations.delete(self._keys.bell(mine.session.id, who)), "bell"))
                try:
                    done = await self._ledger.commit(steps)
                except BaseException:  # it may still arrive: whoever takes the claim back has to know
                    mine = mine or self._keeper.keep(claim, who, session, sent + claim.ttl, 0)
                    mine.uncertain = True
                    raise
                if isinstance(done, Failed):
                    if done.delayed and done.about != "prune":  # the name was last held by a session that died
                        return Place(claim, self._after_delay())
                    if done.about == "alive":
                        if not await self._sessions.look_after(session, self._target.timeout):
                            self._keeper.lose(session)
                            session, former = await self._sessions.fit_for(claim.ttl, self._target.timeout), ""
                    elif done.about == "prune":
                        delayed |= {done.session} if done.delayed else set()
                        dead.discard(done.session)
                    elif done.about == "theirs":
                        doubted.add(done.session)
                    book = None
                    await self._driver.sleep(self._driver.uniform(0, 0.005 * min(tries, 8)))  # not all at once again
                    tries += 1
                    if tries > _MOST_TRIES:
                        raise Unavailable(
                            f"others were quicker to write {claim.name!r} in Consul {tries} times in a row"
                        )
                    continue
                book.written(done)
            self._desk.put(claim.name, book, session.id)
            if entry is None:
                return Place(claim, self._listen(mine, book, who, delayed) if mine is not None else self._after_delay())
            self._keeper.keep(claim, who, session, sent + claim.ttl, entry.token)
            return Grant(claim, entry.token, claim.ttl)

    def _check_ttl(self, claim: Claim, mine: Mine | None) -> None:
        least, most = self._target.min_ttl, MOST_TTL * 8 / 9
        if mine is None and not least <= claim.ttl <= most:
            raise Misuse(
                f"cannot claim {claim.name!r} for {claim.ttl:g} s: Consul's sessions last from {least:g} s to {most:.0f} s. "
                "Where the agents set a lower session_ttl_min, say so in the URL: ?min_ttl="
            )

    def _expect(self, claim: Claim, who: str, session: Session, sent: float) -> Mine:
        """Be ready to hear the bell before anybody can know where to ring."""
        mine = self._keeper.keep(claim, who, session, sent + claim.ttl, 0)
        self._keeper.expect_bell(mine, url_of(self._keys.session(session.id)) + "?recurse")
        return mine

    def _listen(self, mine: Mine, book: Book, who: str, delayed: set[str]) -> float:
        """To the end of those in the way; returns when to look again without having heard anything."""
        others = {entry.session for entry in book.obstacles(who)} - {mine.session.id}
        paths = {url_of(self._keys.alive(session)) for session in sorted(others)[:_MOST_OBSTACLES]}
        heard = len(others) <= _MOST_OBSTACLES and not others & delayed
        for path in paths - mine.heard:
            heard &= self._ears.listen(path, mine, lambda answer: _ring(mine.bell, answer.status == 404), final=True)
            mine.heard.add(path)
        for path in mine.heard - paths:
            self._ears.forget(path, mine)
            mine.heard.discard(path)
        return mine.claim.ttl if heard else self._after_delay()

    def _after_delay(self) -> float:
        return 1.0

    def _strike(self, book: Book, dead: set[str], session: Session) -> list[Step]:
        """Strike out the dead. Those that asked for a lock-delay, only when Consul says that it is over."""
        delays = {entry.session for entry in book.inside.values() if entry.session in dead and entry.delay}
        book.without(dead, delayed=True)
        steps = []
        for one in sorted(delays):
            key = self._keys.alive(one)
            steps += [
                Step(operations.hold(key, session.id), "prune", one),
                Step(operations.delete(key), "prune", one),
            ]
        return steps

    # ---- leaving

    async def _leave(self, claim: Claim) -> bool:
        mine = self._keeper.find(claim.holder)
        who = pseudonym(claim.holder)
        sent = False

        async def leave() -> bool:
            nonlocal sent
            doubted: set[str] = set()
            book = self._desk.take(claim.name)
            if mine is not None and mine.uncertain and not mine.session.lost:
                await self._sessions.stamp(mine.session, self._target.timeout)  # what has not arrived by now never will
                mine.uncertain, book = False, None
            while True:
                if book is None:
                    book = await self._ledger.read(claim.name)
                if book.leave(who) is None:
                    if not book.known:
                        return sent  # if an earlier answer was lost on its way, that was it
                    book = None
                    continue
                dead = await self._ledger.dead_among(doubted)
                book.without(dead)
                steps = self._ledger.write(claim.name, book, dead)
                if mine is not None and mine.token == 0:
                    steps.append(Step(operations.delete(self._keys.bell(mine.session.id, who)), "bell"))
                sent = True
                done = await self._ledger.commit(steps)
                if not isinstance(done, Failed):
                    book.written(done)
                    self._desk.put(claim.name, book, mine.session.id if mine is not None else "")
                    return True
                sent, book = False, None
                if done.about == "theirs":
                    doubted.add(done.session)

        async with self._desk.at(claim.name):
            there = await self._persistently(leave)
        if mine is not None:
            self._keeper.forget(mine)
        return there

    async def _put_out_overdue(self, mine: Mine) -> None:
        await self._leave(mine.claim)

    async def _evict(self, name: str, token: int, by: str) -> int | None:
        self._desk.take(name)  # what we knew of it is about to be wrong
        dead: set[str] = set()
        while True:
            book = await self._ledger.read(name)
            dead |= await self._ledger.dead_among({entry.session for entry in book.inside.values()} - dead)
            entry = next((one for one in book.inside.values() if one.token == token), None)
            if entry is None or entry.session in dead:
                return None
            del book.inside[entry.who]
            book.without(dead)
            record = json.dumps([entry.owner, token, by, _wall_ms()]).encode()
            steps = self._ledger.write(name, book, dead)
            steps.append(Step(operations.hold(self._keys.out(entry.session, entry.who), entry.session), "theirs"))
            steps.append(Step(operations.put(self._keys.eviction(name), record), "record"))
            done = await self._ledger.commit(steps)
            if not isinstance(done, Failed):
                await self._forget_old_evictions()
                return done
            if done.session:
                dead |= await self._ledger.dead_among({done.session})

    async def _forget_old_evictions(self) -> None:
        now = _wall_ms()
        for item in await self._ledger.look([self._keys.evictions]):
            if now - json.loads(item.value)[3] > RETENTION * 1000:
                await self._ledger.commit(
                    [
                        Step(operations.unchanged(item.key, item.at), "book"),
                        Step(operations.delete(item.key), "book"),
                    ]
                )

    # ---- renewing

    async def _gone(self, session: Session, grants: list[Grant], within: float) -> list[str]:
        """Keep the session alive, and find out who is in the book no longer: two requests, however many grants.

        An eviction leaves word under the session, so it is seen at once. What somebody deleted by hand is seen when the
        turn comes to that book: of up to 60 names at once, of more when their turn comes round.
        """
        holders = [grant.claim.holder for grant in grants]
        if not await self._sessions.renew(session, within):
            self._keeper.lose(session)
            return holders
        first = self._turn % len(grants)
        self._turn += _MOST_LOOKED_AFTER
        some = (grants[first:] + grants[:first])[:_MOST_LOOKED_AFTER]
        mailbox = self._keys.session(session.id)
        trees = [mailbox, *{self._keys.book(grant.claim.name) for grant in some}]
        items = {item.key: item for item in await self._ledger.look(trees, within, apart=True)}
        if self._keys.alive(session.id) not in items:  # deleted by hand: everybody else takes us for dead
            self._keeper.lose(session)
            self._sessions.lose(session)
            return holders
        gone = [
            grant.claim.holder for grant in grants if self._keys.out(session.id, pseudonym(grant.claim.holder)) in items
        ]
        for grant in some:
            item = items.get(self._keys.book(grant.claim.name))
            inside = self._ledger.open(grant.claim.name, item).inside if item else {}
            entry = inside.get(pseudonym(grant.claim.holder))
            if entry is None or entry.token != grant.token:
                gone.append(grant.claim.holder)
        notices = [key for key in items if key.startswith(f"{mailbox}out-")]
        if notices:  # they have been read; were this to fail, the session takes them along
            await self._ledger.commit([Step(operations.delete(key), "notice") for key in notices[:_MOST_LOOKED_AFTER]])
        return list(dict.fromkeys(gone))

    async def _persistently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Ride out the election of a leader: all that is done here may be done again."""
        deadline = self._driver.now() + self._target.timeout
        while True:
            try:
                return await attempt()
            except Unavailable:
                if self._driver.now() >= deadline:
                    raise
                await self._driver.sleep(self._driver.uniform(0.02, 0.1))


def _ring(bell: object, really: bool = True) -> None:
    if really:
        bell.ring()  # type: ignore[attr-defined]


def _wall_ms() -> int:
    return int(time.time() * 1000)


def _snapshot(name: str, book: Book, evicted: Item | None) -> Snapshot:
    now = _wall_ms()

    def age(entry: Entry) -> float:
        return max(now - entry.at, 0) / 1000

    # What is left of a session only its leader knows; its owner keeps it at a whole ttl, more or less.
    holders = tuple(
        Holding(one.owner, one.token, one.units, age(one), one.ttl, one.note) for one in book.inside.values()
    )
    waiters = tuple(Waiting(one.owner, one.units, age(one), one.ttl, one.fair) for one in book.line.values())
    eviction = None
    if evicted is not None:
        owner, token, by, at = json.loads(evicted.value)
        eviction = Eviction(owner, token, evicted.at, by, max(now - at, 0) / 1000)
    return Snapshot(name, 0 if book.empty else book.capacity, holders, waiters, eviction)
