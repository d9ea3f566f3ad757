"""Locks between the threads and tasks of one process. Nothing to run, nothing kept.

Connections to the same `memory://name` share one space, from threads and from asyncio alike; it lives as long as any of them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from weakref import WeakValueDictionary

from .. import rule
from ..claim import LAST_WORDS, ROUND, Claim, Eviction, Grant, Holding, Place, Snapshot, Verdict, Waiting
from ..drivers.base import Bell, Driver
from . import promises

_KEPT_EVICTIONS = 1000
_SWEEP = 64  # so few books are not worth looking through


class _Entry:
    """A claim in the book: inside when it has a token, else in line."""

    __slots__ = ("bell", "claim", "expires", "since", "token", "units")

    def __init__(self, claim: Claim, now: float) -> None:
        self.claim = claim
        self.units = claim.units
        self.since = now
        self.expires = now + claim.ttl
        self.token = 0
        self.bell: Bell | None = None


class _Book:
    """One name in use."""

    __slots__ = ("capacity", "inside", "line", "used")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.inside: dict[str, _Entry] = {}
        self.line: dict[str, _Entry] = {}  # a dict keeps the order of arrival


class _Space:
    """What all connections to one name share. One lock; never held while a bell is rung or waited for."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = threading.Lock()
        self.books: dict[str, _Book] = {}
        self.watchers: dict[str, set[Bell]] = {}
        self.keepers: dict[str, Bell] = {}  # of grants that are held: rung when somebody joins the line
        self.evictions: dict[str, tuple[Eviction, float]] = {}
        self.last_token = 0
        self.sweep_at = _SWEEP


_spaces: WeakValueDictionary[str, _Space] = WeakValueDictionary()
_opening = threading.Lock()


class MemoryStore:
    traits = promises.MEMORY

    def __init__(self, driver: Driver, name: str = "") -> None:
        self._driver = driver
        with _opening:  # setdefault of a weak dictionary is not one step: two threads would each found a space
            self._space = _spaces.setdefault(name, _Space())
        self._listening: set[Bell] = set()  # what waits and watches through this connection

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        space = self._space
        name = claim.name
        with space.lock:
            now = self._driver.now()
            book = space.books.get(name)
            if book is None:
                book = _Book(claim.capacity)
                if len(space.books) >= space.sweep_at:
                    self._sweep(now)
            else:
                self._expire(book, now)
            answer = self._decide(book, claim, now)
            if book.inside or book.line:
                space.books[name] = book
            if space.keepers and book.line and type(answer) is Place:
                self._tell_keepers(book)
            heir = self._heir(book) if book.line else None
            watchers = tuple(space.watchers.get(name, ())) if space.watchers and type(answer) is Grant else ()
        if heir is not None or watchers:
            self._ring(name, heir, watchers)
        return answer

    async def wait(self, place: Place, timeout: float) -> None:
        with self._space.lock:
            book = self._space.books.get(place.claim.name)
            entry = book.line.get(place.claim.holder) if book else None
        if entry is not None and entry.bell is not None:
            await self._hear(entry.bell, timeout)

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        space, claim = self._space, grant.claim
        bell = self._driver.bell()
        until = self._driver.now() + timeout
        try:
            with space.lock:
                space.keepers[claim.holder] = bell
                book = space.books.get(claim.name)
                if book is None or claim.holder not in book.inside:
                    return True
                if any(one.expires > self._driver.now() for one in book.line.values()):
                    return True
            await self._hear(bell, timeout)
        finally:
            with space.lock:
                space.keepers.pop(claim.holder, None)
        return self._driver.now() < until

    def _tell_keepers(self, book: _Book) -> None:
        for holder in book.inside:
            if (bell := self._space.keepers.get(holder)) is not None:
                bell.ring()

    async def _hear(self, bell: Bell, timeout: float) -> None:
        self._listening.add(bell)
        try:
            await bell.wait(timeout)
        finally:
            self._listening.discard(bell)

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        answers: list[Grant | None] = []
        with self._space.lock:
            now = self._driver.now()
            for grant in grants:
                book = self._space.books.get(grant.claim.name)
                entry = book.inside.get(grant.claim.holder) if book else None
                if entry is None or entry.expires <= now or entry.token != grant.token:
                    answers.append(None)
                else:
                    entry.expires = now + grant.claim.ttl
                    answers.append(grant)
        return answers

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        space = self._space
        name = claim.name
        with space.lock:
            book = space.books.get(name)
            if book is None:
                return False
            entry = book.inside.pop(claim.holder, None)
            if entry is not None:
                book.used -= entry.units
                there = entry.expires > self._driver.now()
            else:
                there = book.line.pop(claim.holder, None) is not None
            heir, watchers = self._left(name, book)
        if heir is not None or watchers:
            self._ring(name, heir, watchers)
        return there

    async def watch(self, name: str, token: int, timeout: float) -> None:
        space = self._space
        bell = self._driver.bell()
        with space.lock:
            book = space.books.get(name)
            now = self._driver.now()
            alive = tuple(one for one in book.inside.values() if one.expires > now) if book else ()
            if max((one.token for one in alive), default=0) != token:
                return
            soonest = min((one.expires for one in alive), default=now + timeout)
            space.watchers.setdefault(name, set()).add(bell)
        try:
            await self._hear(bell, min(timeout, soonest - now))
        finally:
            with space.lock:
                watchers = space.watchers.get(name, set())
                watchers.discard(bell)
                if not watchers:
                    space.watchers.pop(name, None)

    async def evict(self, name: str, token: int, by: str) -> int | None:
        space = self._space
        with space.lock:
            book = space.books.get(name)
            if book is not None:
                self._expire(book, self._driver.now())
            found = next((one for one in book.inside.values() if one.token == token), None) if book else None
            if book is None or found is None:
                return None
            self._tell_keepers(book)
            del book.inside[found.claim.holder]
            book.used -= found.units
            past = self._mint(name)
            space.evictions.pop(name, None)
            now = self._driver.now()
            space.evictions[name] = Eviction(found.claim.owner, token, past, by, 0.0), now
            while len(space.evictions) > _KEPT_EVICTIONS:
                del space.evictions[next(iter(space.evictions))]
            heir, watchers = self._left(name, book)
        if heir is not None or watchers:
            self._ring(name, heir, watchers)
        return past

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        with self._space.lock:
            now = self._driver.now()
            book = self._space.books.get(name)
            eviction, at = self._space.evictions.get(name, (None, 0.0))
            if eviction is not None:
                eviction = eviction._replace(age=now - at)
            if book is None:
                return Snapshot(name, eviction=eviction)
            inside = tuple(
                Holding(e.claim.owner, e.token, e.units, now - e.since, e.expires - now, e.claim.note, e.claim.ttl)
                for e in book.inside.values()
                if e.expires > now
            )
            line = tuple(
                Waiting(e.claim.owner, e.units, now - e.since, e.expires - now, e.claim.fair)
                for e in book.line.values()
                if e.expires > now
            )
        return Snapshot(name, book.capacity if inside or line else 0, inside, line, eviction)

    async def names(self, prefix: str = "") -> Sequence[str]:
        with self._space.lock:
            now = self._driver.now()
            return sorted(
                name
                for name, book in self._space.books.items()
                if name.startswith(prefix)
                and any(e.expires > now for part in (book.inside, book.line) for e in part.values())
            )

    def wake_waiters(self) -> None:
        for bell in list(self._listening):
            bell.ring()

    def forked(self) -> None:
        global _opening
        _opening = threading.Lock()
        self._space.reset()  # the threads that held something here stayed in the parent

    async def close(self, within: float = LAST_WORDS) -> None:
        pass

    # ---- under the space's lock

    def _decide(self, book: _Book, claim: Claim, now: float) -> Grant | Place:
        entry = book.inside.get(claim.holder)
        if entry is not None:  # repeated: the answer was lost, or fewer units will do
            book.used -= max(0, entry.units - claim.units)
            entry.units = min(entry.units, claim.units)
            entry.expires = now + claim.ttl
            return Grant(claim, entry.token, claim.ttl)
        if book.inside or book.line:
            rule.same_capacity(claim.name, claim.capacity, book.capacity)
        else:
            book.capacity = claim.capacity
        entry = book.line.get(claim.holder)
        first = next(iter(book.line), None)
        ahead = first is not None and first != claim.holder
        if rule.admit(claim.units, book.capacity, book.used, ahead=ahead, fair=claim.fair):
            token = self._mint(claim.name)
            if entry is None:
                entry = _Entry(claim, now)
            else:
                del book.line[claim.holder]
            entry.since, entry.expires, entry.token = now, now + claim.ttl, token
            book.inside[claim.holder] = entry
            book.used += claim.units
            return Grant(claim, token, claim.ttl)
        if claim.queue:
            if entry is None:
                entry = book.line[claim.holder] = _Entry(claim, now)
                entry.bell = self._driver.bell()
            entry.expires = now + claim.ttl
        # Only an expiry can move the line without a bell: of somebody inside, or of a dead waiter at its head.
        soonest = min((one.expires for one in book.inside.values()), default=now + claim.ttl)
        if ahead and first is not None:
            soonest = min(soonest, book.line[first].expires)
        return Place(claim, max(soonest - now, 0.001))

    def _mint(self, name: str) -> int:
        space = self._space
        token = space.last_token = rule.next_token(space.last_token, self._driver.wall_us(), name)
        return token

    def _expire(self, book: _Book, now: float) -> None:
        for holder in [h for h, entry in book.inside.items() if entry.expires <= now]:
            book.used -= book.inside.pop(holder).units
        while book.line:  # those behind a living head are not in anybody's way yet
            head = next(iter(book.line))
            if book.line[head].expires > now:
                break
            del book.line[head]

    def _sweep(self, now: float) -> None:
        """Drop the names whose holders never came back. Done when there are twice as many as last time: cheap on average."""
        space = self._space
        for name, book in list(space.books.items()):
            if all(one.expires <= now for part in (book.inside, book.line) for one in part.values()):
                del space.books[name]
        space.sweep_at = max(_SWEEP, 2 * len(space.books))

    def _heir(self, book: _Book) -> _Entry | None:
        """The head of the line, if it may enter now, or else the first who need not wait for it. It rings for the next."""
        ahead = False
        for entry in book.line.values():
            if rule.admit(entry.units, book.capacity, book.used, ahead=ahead, fair=entry.claim.fair):
                return entry
            ahead = True
        return None

    def _left(self, name: str, book: _Book) -> tuple[_Entry | None, Sequence[Bell]]:
        """Somebody left: whom to ring."""
        if not book.inside and not book.line:
            self._space.books.pop(name, None)
        watchers = tuple(self._space.watchers.get(name, ())) if self._space.watchers else ()
        return (self._heir(book) if book.line else None), watchers

    def _ring(self, name: str, entry: _Entry | None, watchers: Sequence[Bell]) -> None:
        """Outside the lock. A waiter that can no longer hear (its loop is closed) leaves the line, and the next is rung."""
        for bell in watchers:
            bell.ring()
        while entry is not None and entry.bell is not None and not entry.bell.ring():
            with self._space.lock:
                book = self._space.books.get(name)
                if book is None:
                    return
                book.line.pop(entry.claim.holder, None)
                entry, _ = self._left(name, book)


def open_store(url: str, driver: Driver) -> MemoryStore:
    """`memory://` or `memory://name`."""
    return MemoryStore(driver, url.partition("://")[2].strip("/"))
