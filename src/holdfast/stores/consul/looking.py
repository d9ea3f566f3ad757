"""Looking at books: of one name or many, for others who work with them and for people; watching one; and out of one, by an
admin's will."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...claim import ROUND, Eviction, Grant, Holding, Snapshot, Waiting
from ...errors import HoldfastError, Unavailable
from . import keys as operations
from .book import Book, Entry, NotOurs
from .ears import any_change, its_end
from .keys import Step, url_of
from .replies import MOST_LISTED, Item
from .wire import Failed

if TYPE_CHECKING:
    from .store import ConsulStore

RETENTION = 3600.0  # how long a forced release can be looked up


async def read(store: ConsulStore, name: str, deadline: float) -> Book:
    found = await store.wire.look([store.keys.book(name)], deadline)
    return open_book(store, found[0]) if found else Book()


def open_book(store: ConsulStore, item: Item) -> Book:
    try:
        return Book.read(item.value, item.at, item.session)
    except (ValueError, TypeError, zlib.error):
        raise NotOurs(
            f"the key {item.key!r} in Consul at {store.wire.where} is not holdfast's: delete it, or choose another prefix"
        ) from None


async def dead_among(store: ConsulStore, sessions: Iterable[str], deadline: float) -> set[str]:
    asked = set(sessions)
    if not asked:
        return set()
    alive = {store.keys.alive(session): session for session in sorted(asked)}
    found = await store.wire.look(list(alive), deadline)
    return asked - {alive[item.key] for item in found if item.key in alive}


async def inspect(store: ConsulStore, name: str, deadline: float) -> Snapshot:
    keys = store.keys
    found = {item.key: item for item in await store.wire.look([keys.book(name), keys.eviction(name)], deadline)}
    item = found.get(keys.book(name))
    book = open_book(store, item) if item else Book()
    book.without(await dead_among(store, book.sessions(), deadline), delayed=True)
    return _shown(name, book, found.get(keys.eviction(name)), store.wall_ms())


async def names(store: ConsulStore, prefix: str, deadline: float) -> Sequence[str]:
    found = await store.wire.look([store.keys.books(prefix)], deadline)
    books: dict[str, Book] = {}
    size = 0
    for item in found:
        if (name := store.keys.name_of(item.key)) is not None:
            books[name] = open_book(store, item)
            size += books[name].size
            if size > MOST_LISTED:  # unpacked: a book of nothing but one letter is a thousandth of that in an answer
                raise Unavailable(f"Consul at {store.wire.where} has more than {MOST_LISTED >> 20} MB of books")
    dead = await dead_among(store, set().union(*(book.sessions() for book in books.values())), deadline)
    for name, book in books.items():
        if book.without(dead, delayed=True) and book.empty:  # all have died: nobody else will tidy up
            await store.wire.commit(store.keys.write(name, book), deadline)
    return sorted(name for name, book in books.items() if not book.empty)


async def watch(store: ConsulStore, name: str, token: int, deadline: float) -> None:
    woken = store.sleepers.woken
    bell = store.driver.bell()
    paths = [url_of(store.keys.book(name))]
    store.ears.listen(paths[0], bell, any_change(bell))
    try:
        # What is on its way already may have been told to others before we listened, so look once more now.
        soon = min(deadline, store.by(ROUND))
        book = await store.persistently(soon, lambda: read(store, name, soon))
        dead = await dead_among(store, {entry.session for entry in book.inside.values()}, soon)
        book.without(dead, delayed=True)
        newest = max(book.inside.values(), key=lambda entry: entry.token, default=None)
        if (newest.token if newest else 0) != token:
            return
        if newest is not None:
            paths.append(url_of(store.keys.alive(newest.session)))
            store.ears.listen(paths[1], bell, its_end(bell), final=True)
        await store.sleepers.sleep(bell, deadline - store.driver.now(), woken)
    finally:
        for path in paths:
            store.ears.forget(path, bell)


async def wanted(store: ConsulStore, grant: Grant, deadline: float) -> None:
    """Until somebody is in line, or the grant is inside no more."""
    name = grant.claim.name
    woken = store.sleepers.woken
    bell = store.driver.bell()
    path = url_of(store.keys.book(name))
    store.ears.listen(path, bell, any_change(bell))
    try:
        while store.driver.now() < deadline and woken == store.sleepers.woken:
            soon = min(deadline, store.by(ROUND))
            book = await store.persistently(soon, partial(read, store, name, soon))
            if book.line or all(entry.token != grant.token for entry in book.inside.values()):
                return
            await store.sleepers.sleep(bell, deadline - store.driver.now(), woken)
    finally:
        store.ears.forget(path, bell)


async def evict(store: ConsulStore, name: str, token: int, by: str, deadline: float) -> int | None:
    """The index of the write by which it is out, which outranks its token; None: it was not inside."""
    keys = store.keys
    store.books.take(name)  # what we knew of it is about to be wrong
    dead: set[str] = set()
    tries = 0
    while True:
        book = await read(store, name, deadline)
        dead |= await dead_among(store, {entry.session for entry in book.inside.values()} - dead, deadline)
        entry = next((one for one in book.inside.values() if one.token == token), None)
        if entry is None or entry.session in dead:
            return None
        del book.inside[entry.who]
        book.without(dead)
        record = json.dumps([entry.owner, token, by, store.wall_ms()]).encode()
        steps = store.keys.write(name, book, dead)
        steps.append(Step(operations.hold(keys.out(entry.session, entry.who), entry.session), "theirs"))
        steps.append(Step(operations.put(keys.eviction(name), record), "record"))
        done = await store.wire.commit(steps, deadline)
        if not isinstance(done, Failed):
            with contextlib.suppress(HoldfastError):  # it is done; who tidies up is no matter
                await _forget_old_evictions(store, store.by(ROUND))
            return done
        if done.session:
            dead |= await dead_among(store, {done.session}, deadline)
        await store.try_again(name, tries, deadline)
        tries += 1


async def _forget_old_evictions(store: ConsulStore, deadline: float) -> None:
    now = store.wall_ms()
    for item in await store.wire.look([store.keys.evictions], deadline):
        old = eviction(item, now)
        if old is not None and old.age > RETENTION:
            steps = [
                Step(operations.unchanged(item.key, item.at), "book"),
                Step(operations.delete(item.key), "book"),
            ]
            await store.wire.commit(steps, deadline)


def _shown(name: str, book: Book, evicted: Item | None, now: int) -> Snapshot:
    def age(entry: Entry) -> float:
        return max(now - entry.at, 0) / 1000

    # What is left of a session only its leader knows; its owner keeps it at a whole ttl, more or less.
    holders = tuple(
        Holding(one.owner, one.token, one.units, age(one), one.ttl, one.note) for one in book.inside.values()
    )
    waiters = tuple(Waiting(one.owner, one.units, age(one), one.ttl, one.fair) for one in book.waiting())
    return Snapshot(name, 0 if book.empty else book.capacity, holders, waiters, evicted and eviction(evicted, now))


def eviction(item: Item, now: int) -> Eviction | None:
    """None: somebody else wrote that."""
    try:
        owner, token, by, at = json.loads(item.value)
        return Eviction(str(owner), int(token), item.at, str(by), max(now - int(at), 0) / 1000)
    except (ValueError, TypeError, RecursionError):
        return None
