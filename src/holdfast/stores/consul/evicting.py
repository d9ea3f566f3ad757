"""Out of the book, by an admin's will."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from ...claim import ROUND
from ...errors import HoldfastError
from . import keys as operations
from . import looking
from .keys import Step
from .wire import Failed

if TYPE_CHECKING:
    from .store import ConsulStore

RETENTION = 3600.0  # how long a forced release can be looked up


async def evict(store: ConsulStore, name: str, token: int, by: str, deadline: float) -> int | None:
    """The index of the write by which it is out, which outranks its token; None: it was not inside."""
    keys = store.keys
    store.books.take(name)  # what we knew of it is about to be wrong
    dead: set[str] = set()
    tries = 0
    while True:
        book = await looking.read(store, name, deadline)
        dead |= await looking.dead_among(store, {entry.session for entry in book.inside.values()} - dead, deadline)
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
            dead |= await looking.dead_among(store, {done.session}, deadline)
        await store.try_again(name, tries, deadline)
        tries += 1


async def _forget_old_evictions(store: ConsulStore, deadline: float) -> None:
    now = store.wall_ms()
    for item in await store.wire.look([store.keys.evictions], deadline):
        old = looking.eviction(item, now)
        if old is not None and old.age > RETENTION:
            steps = [
                Step(operations.unchanged(item.key, item.at), "book"),
                Step(operations.delete(item.key), "book"),
            ]
            await store.wire.commit(steps, deadline)
