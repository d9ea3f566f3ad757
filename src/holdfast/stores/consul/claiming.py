"""One claim at the book of its name: written in, into the line, or out again, as soon as nobody else is quicker.

Threads and tasks of one process that want the same name would only spoil each other's transactions: they take turns. And
if nobody of another process has come since our last write, the book need not be read again; if somebody has, the
transaction fails, as any that is based on an old book, and it is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from ... import rule
from ...claim import Claim, Grant, Place
from ...drivers.base import Bell, Driver
from ...errors import Unavailable
from ..kit.turns import Turns
from . import keys as operations
from . import looking
from .book import Book, Entry, NotOurs
from .ears import its_end
from .keeper import Record
from .keys import MOST_LOOKED_AFTER, Step, url_of
from .sessions import Session
from .wire import Failed

if TYPE_CHECKING:
    from .store import ConsulStore

T = TypeVar("T")
_MOST_KNOWN = 1024  # names of which we remember how we left them

_MOST_OBSTACLES = 4  # listened to at once by one waiter; behind more, it looks again every second
_LOOK_AGAIN = 1.0  # seconds, where nobody would tell us: while a lock-delay lasts, or behind many


class Books:
    """One writer a name in this process, and the book as it left it."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._turns: dict[str, Turns] = {}
        self._books: dict[str, Book] = {}
        self._shared: dict[str, None] = {}  # names in whose book we saw other sessions: better read than guessed

    async def writing(self, name: str, deadline: float, work: Callable[[], Awaitable[T]]) -> T:
        turns = self._turns.setdefault(name, Turns(self._driver))
        turn = turns.turn()
        try:
            if not await turn.come(deadline):
                raise Unavailable(f"others of this process who ask Consul for {name!r} were before this one")
            return await work()
        finally:
            turn.over()
            # (Who comes between these two gets a turn that nobody else heeds; Consul keeps them apart all the same.)
            if not turns and self._turns.get(name) is turns:
                self._turns.pop(name, None)

    def take(self, name: str) -> Book | None:
        """The book as we left it, to write in; None: read it. A name of which we know nothing is taken to be free."""
        book = self._books.pop(name, None)
        if book is None and name not in self._shared:
            book = Book()
        if book is not None:
            book.known = True
        return book

    def put(self, name: str, book: Book, session: str) -> None:
        book.known = False
        used = bool(book.inside or book.line)
        if used and book.keeper != session:  # a session keeps the key of a book that is all its own
            if len(self._shared) >= _MOST_KNOWN:
                self._shared.clear()
            self._shared[name] = None
            return
        self._shared.pop(name, None)
        if used:
            if len(self._books) >= _MOST_KNOWN:
                self._books.clear()
            self._books[name] = book


def pseudonym(holder: str) -> str:
    """Who a holder is in the book: whoever reads that does not learn the nonce that releases."""
    return hashlib.sha256(holder.encode()).hexdigest()[:20]


class Claiming:
    """In, or into the line."""

    def __init__(self, store: ConsulStore, claim: Claim, session: Session, sent: float, deadline: float) -> None:
        self._store = store
        self._deadline = deadline
        self._claim = claim
        self._session = session
        self._sent = sent  # before anything was asked: from here its time runs
        self._who = pseudonym(claim.holder)
        self._mine: Record | None = None
        self._former: frozenset[str] = frozenset()
        self._bell: Bell | None = None  # if it waits
        self._dead: set[str] = set()
        self._delayed: set[str] = set()  # dead, and their lock-delay is not over
        self._doubted: set[str] = set()  # Consul would not take a bell for them

    async def run(self) -> Grant | Place:
        """In its turn: nobody else of this process writes in this book meanwhile."""
        claim, store, books = self._claim, self._store, self._store.books
        # Not before its turn has come: somebody else who asked for it again (close() and its owner, say) may have moved it
        # to another session meanwhile, and what stands there under that one is still its own.
        mine = store.keeper.records.get(claim.holder)
        if mine is not None and (mine.leaving or mine.deadline <= self._sent):
            # It is over; or a request to put it out was not answered, and may yet arrive. What comes now is a new claim.
            await Leaving(store, mine, self._deadline).in_its_turn()
        elif mine is not None:
            self._mine = mine
            self._former = frozenset(session.id for session in (mine.session, *mine.moving) if not session.lost)
        book = books.take(claim.name)
        at = store.driver.wall_us() // 1000  # for people to read, and for nothing else
        tries = 0
        while True:
            if book is None or (book.known and not book.empty and book.capacity != claim.capacity):
                book = await looking.read(store, claim.name, self._deadline)
            if self._doubted or book.blocks(claim, self._who):
                await self._find_the_dead(book)
            struck = self._strike(book) if self._dead else []
            entry, changed = book.enter(claim, self._who, self._session.id, self._former, at, store.target.lock_delay)
            if entry is None and claim.queue:
                self._expect_bell()
            if changed:
                done = await self._write(book, entry, struck)
                if done is None:
                    await self._on_a_new_session()
                    book = None
                    continue
                if isinstance(done, Failed):
                    if done.delayed and done.about != "prune":  # the name was last held by a session that died
                        return self._no_room(_LOOK_AGAIN)
                    await self._learn(done)
                    book = None
                    await store.try_again(claim.name, tries, self._deadline)
                    tries += 1
                    continue
                book.written(done)
                if entry is not None:
                    rule.given_token(entry.token, store.wire.where)
            elif book.known:  # nothing to write, so nobody would tell us that it is no longer true
                book = None
                continue
            books.put(claim.name, book, self._session.id)
            if entry is not None:
                if self._keep(entry.token) is not None:
                    return Grant(claim, entry.token, claim.ttl)
                await self._on_a_new_session()  # it was let in by one that was ended meanwhile
                book = None
                continue
            wake_in = self._listen(book, self._mine, self._bell) if self._mine and self._bell else _LOOK_AGAIN
            return self._no_room(wake_in)

    def _no_room(self, wake_in: float) -> Place:
        mine = self._mine
        if mine is not None and not (self._claim.queue or mine.token or mine.uncertain):
            self._store.keeper.forget(mine)  # it tried, and is not in line: there is nothing to take back
        return Place(self._claim, wake_in)

    # ---- before

    async def _find_the_dead(self, book: Book) -> None:
        """Whoever is in the way has to be alive."""
        asked = book.ahead_of(self._who, MOST_LOOKED_AFTER) | self._doubted
        known = {self._session.id} | self._former | self._dead | self._delayed
        self._dead |= await looking.dead_among(self._store, asked - known, self._deadline)
        self._doubted = set()

    def _strike(self, book: Book) -> list[Step]:
        """Strike out the dead. Those that asked for a lock-delay, only when Consul says that it is over."""
        dead = self._dead - self._delayed
        delays = {entry.session for entry in book.inside.values() if entry.session in dead and entry.delay}
        book.without(dead, delayed=True)
        steps = []
        for one in sorted(delays):
            key = self._store.keys.alive(one)
            steps += [
                Step(operations.hold(key, self._session.id), "prune", one),
                Step(operations.delete(key), "prune", one),
            ]
        return steps

    async def _on_a_new_session(self) -> None:
        self._session = await self._store.sessions.fit_for(self._claim.ttl, self._deadline)
        self._former = frozenset()

    def _expect_bell(self) -> None:
        """Be ready to hear the bell before anybody can know where to ring."""
        mine = self._mine = self._keep(0)
        if mine is not None:
            mailbox = self._store.keys.session(self._session.id)
            self._bell = self._store.keeper.expect_bell(mine, url_of(mailbox) + "?recurse")

    def _keep(self, token: int) -> Record | None:
        deadline = self._sent + self._claim.ttl
        return self._store.keeper.keep(self._claim, self._who, self._session, deadline, token)

    # ---- the write, and what it teaches

    async def _write(self, book: Book, entry: Entry | None, struck: list[Step]) -> int | Failed | None:
        """None: its session is over."""
        # Known before it is sent: whatever interrupts, whoever takes it back knows that it may still arrive.
        mine = self._mine = self._store.keeper.records.get(self._claim.holder) or self._keep(0)
        if mine is None:
            return None
        keys = self._store.keys
        alive = Step(operations.unchanged(keys.alive(self._session.id), self._session.stamp), "alive")
        steps = [alive, *struck, *keys.write(self._claim.name, book, self._dead | self._delayed)]
        if entry is not None and mine.bell is not None:
            steps.append(Step(operations.delete(keys.bell(mine.session.id, self._who)), "bell"))
        before, mine.uncertain = mine.uncertain, True
        moving = mine.moving
        if self._session is not mine.session and self._session not in moving:
            mine.moving = (*moving, self._session)
        done = await self._store.wire.commit(steps, self._deadline)
        mine.uncertain = before
        mine.moving = moving if isinstance(done, Failed) else ()
        return done

    async def _learn(self, failed: Failed) -> None:
        sessions = self._store.sessions
        if failed.about == "alive":
            if not await sessions.look_after(self._session, self._deadline):
                self._store.keeper.lose(self._session)
                await self._on_a_new_session()
        elif failed.about == "prune":
            self._delayed |= {failed.session} if failed.delayed else set()
            self._dead.discard(failed.session)
        elif failed.about == "theirs":
            self._doubted.add(failed.session)

    # ---- after

    def _listen(self, book: Book, mine: Record, bell: Bell) -> float:
        """To the end of those in the way; returns when to look again without having heard anything."""
        ears = self._store.ears
        others = book.obstacles(self._who) - {mine.session.id}
        paths = {url_of(self._store.keys.alive(session)) for session in sorted(others)[:_MOST_OBSTACLES]}
        heard = len(others) <= _MOST_OBSTACLES and not others & self._delayed
        for path in sorted(paths - mine.heard):
            heard &= ears.listen(path, mine, its_end(bell), final=True)
            mine.heard.add(path)
        for path in sorted(mine.heard - paths):
            ears.forget(path, mine)
            mine.heard.discard(path)
        return mine.claim.ttl if heard else _LOOK_AGAIN


class Leaving:
    """Out again, from inside or from the line. May be run again when it was not answered: what was done is found to be done."""

    def __init__(self, store: ConsulStore, mine: Record, deadline: float, *, overdue: bool = False) -> None:
        """`overdue`: only if its time is still over when its turn comes. Its owner may be claiming or renewing it just now."""
        self._store = store
        self._mine = mine
        self._deadline = deadline
        self._overdue = overdue

    async def __call__(self) -> bool:
        """Was it there?"""
        return await self._store.books.writing(self._mine.claim.name, self._deadline, self.in_its_turn)

    async def in_its_turn(self) -> bool:
        there = await self._run()
        if there is not None:
            self._store.keeper.forget(self._mine)
        return bool(there)

    async def _run(self) -> bool | None:
        """None: it is left alone."""
        store, books, mine = self._store, self._store.books, self._mine
        name = mine.claim.name
        doubted: set[str] = set()
        if self._overdue and store.keeper.in_time(mine):
            return None
        book = books.take(name)
        if mine.uncertain and not mine.session.lost:
            # What has not arrived by now never will.
            await store.sessions.stamp(mine.session, self._deadline)
            mine.uncertain, book = False, None
        tries = 0
        while True:
            if book is None:
                try:
                    book = await looking.read(store, name, self._deadline)
                except NotOurs:
                    return mine.leaving  # an answer was lost, perhaps another call's
            if not book.leave(mine.who):
                if not book.known:
                    return mine.leaving
                book = None
                continue
            dead = await looking.dead_among(store, doubted, self._deadline) if doubted else set()
            if dead:
                book.without(dead)
            steps = store.keys.write(name, book, dead)
            if mine.token == 0:
                steps.append(Step(operations.delete(store.keys.bell(mine.session.id, mine.who)), "bell"))
            before = mine.leaving
            if not store.keeper.put_out(mine, overdue=self._overdue):
                return None
            done = await store.wire.commit(steps, self._deadline)
            if not isinstance(done, Failed):
                book.written(done)
                books.put(name, book, mine.session.id)
                return True
            mine.leaving = before  # what failed may have come too late: after an earlier one, whose answer was lost
            book = None
            if done.about == "theirs":
                doubted.add(done.session)
            await store.try_again(name, tries, self._deadline)
            tries += 1
