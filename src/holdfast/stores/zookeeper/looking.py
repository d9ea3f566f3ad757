"""Looking at names from outside: who is inside, who waits, and a forced release."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.serialization import (
    Create,
    Create2,
    Delete,
    Exists,
    GetChildren,
    GetChildren2,
    GetData,
    SetData,
    Transaction,
)

from ...claim import Eviction, Holding, Snapshot, Waiting
from ...drivers.base import Bell, Driver
from ...errors import Unavailable
from . import line
from .entering import of_the_moment_of_creation
from .records import INSIDE, WAITING, Told, told
from .session import Session, Watcher
from .sessions import Sessions
from .url import Target

_ATTEMPTS = 20
_AT_ONCE = 500
_LONGEST = 120.0  # seconds for all names: some millions
_REMEMBER_EVICTIONS = 24 * 3600.0
_MOST_EVICTIONS = 1000
_CLOCK_IS_GOOD_FOR = 600.0
_SETTLED_AFTER = 0.2  # by then a claim that was not inside when it came has said so
_SETTLING_LOOKS = 4


class Seen(NamedTuple):
    """A claim, its node and what that says."""

    node: line.Node
    told: Told
    stat: Any
    token: int  # 0: it waits
    guessed: bool  # the token: it may have come in since, and be about to say so


class Looking:
    def __init__(self, target: Target, driver: Driver, sessions: Sessions, parent: Callable[[str], str]) -> None:
        self._target = target
        self._driver = driver
        self._sessions = sessions
        self._parent = parent
        self._ahead = 0.0  # by how much the leader's wall clock is ahead of ours, in seconds
        self._ahead_at = float("-inf")
        self._bells: dict[int, Bell] = {}  # of those who watch

    def _note(self, name: str) -> str:
        return f"{self._target.root}/evictions/{line.encode(name)}"

    async def make_root(self, session: Session, give_up: float | None = None) -> None:
        """The nodes that everything is kept under, with their parents."""
        path = ""
        requests = []
        for part in f"{self._target.root}/locks".strip("/").split("/"):
            path = f"{path}/{part}"
            requests.append(Create(path, b"", session.acl, 0))
        requests.append(Create(f"{self._target.root}/evictions", b"", session.acl, 0))
        # Those above may be there and not ours to touch: only what is missing is created.
        missing = await session.ask([Exists(request.path, None) for request in requests], give_up)
        for request, stat in zip(requests, missing, strict=True):
            if stat is None:
                await session.ask([request], give_up)

    # ---- looking

    async def inspect(self, name: str, give_up: float) -> Snapshot:
        session = await self._sessions.any(give_up)
        seen, note = await self._look_twice(session, name, give_up)
        data, stat = (b"", None) if isinstance(note, Exception) or note is None else note
        if not seen and not data:
            return Snapshot(name)
        now = await self._server_time(session, give_up)
        eviction = None
        if data and stat is not None and (age := max(0.0, now - stat.mtime / 1000)) < _REMEMBER_EVICTIONS:
            found = told(data)
            eviction = Eviction(found.owner, found.token, stat.mzxid, found.by, age)
        holders = [
            Holding(
                one.told.owner,
                one.token,
                one.node.units,
                max(0.0, now - (one.stat.mtime if one.told.state == INSIDE else one.stat.ctime) / 1000),
                one.told.ttl,
                one.told.note,
            )
            for one in sorted(seen, key=lambda one: one.token)
            if one.token
        ]
        waiters = [
            Waiting(
                one.told.owner,
                one.node.units,
                max(0.0, now - one.stat.ctime / 1000),
                one.told.ttl,
                one.node.fair,
            )
            for one in seen
            if not one.token
        ]
        capacity = seen[0].node.capacity if seen else 0
        return Snapshot(name, capacity, tuple(holders), tuple(waiters), eviction)

    async def names(self, prefix: str) -> Sequence[str]:
        session = await self._sessions.any(self._soon())
        root = f"{self._target.root}/locks"
        _, children = await session.ask([session.barrier, GetChildren(root, None)])
        if isinstance(children, Exception):
            return []
        names = {part: name for part in children if (name := line.decode(part)) is not None}
        parts = [part for part, name in names.items() if name.startswith(prefix)]
        found = []
        ends = self._driver.now() + _LONGEST
        for at in range(0, len(parts), _AT_ONCE):
            if self._driver.now() > ends:  # each answer comes in time, and there are thousands
                where = self._target.shown()
                raise Unavailable(f"ZooKeeper at {where} has too many names to look through in {_LONGEST:g} s")
            some = parts[at : at + _AT_ONCE]
            stats = await session.ask([Exists(f"{root}/{part}", None) for part in some])
            # A name that nobody uses any more is a container without children, until the server removes it.
            found += [names[part] for part, stat in zip(some, stats, strict=True) if stat and stat.numChildren]
        return sorted(found)

    async def _look_twice(
        self, session: Session, name: str, give_up: float, watcher: Any = None, ring: Callable[[], object] | None = None
    ) -> tuple[list[Seen], Any]:
        """A claim that nobody has written since it was made was inside at once, and has nothing to say; or it had others before
        it, who have left, and is about to write that it waits or is inside, by which it gets a later token than that of its
        making. Nothing at the server tells these two apart, but the second is over after a round trip of a client."""
        for left in range(_SETTLING_LOOKS, -1, -1):
            seen, note = await self._look(session, name, give_up, watcher, ring)
            made = [one.stat.ctime / 1000 for one in seen if one.guessed]
            if not made or not left or await self._server_time(session, give_up) - max(made) > _SETTLED_AFTER:
                break
            await self._driver.sleep(_SETTLED_AFTER / _SETTLING_LOOKS)
        return seen, note

    async def _look(
        self,
        session: Session,
        name: str,
        give_up: float | None = None,
        watcher: Any = None,
        ring: Callable[[], object] | None = None,
    ) -> tuple[list[Seen], Any]:
        """All claims of a name, in order; those with a token are inside. And the note of its last eviction."""
        parent = self._parent(name)
        note = GetData(self._note(name), None)
        _, listing, evicted = await session.ask([session.barrier, GetChildren2(parent, watcher), note], give_up)
        if isinstance(listing, Exception):
            return [], evicted
        nodes = line.read(listing[0])
        entitled = line.entitled(nodes)
        requests: list[Any] = []
        for node in nodes:
            path = f"{parent}/{node.name}"
            # Going in is a change of one's own node, of which the watch of the parent says nothing.
            follow = session.watcher(GetData, path, ring) if ring is not None and node.tag in entitled else None
            requests.append(GetData(path, follow))
            requests.append(Exists(f"{parent}/{node.tag}!", None) if node.past_line else Exists(parent, None))
        answers = await session.ask(requests, give_up) if requests else []
        seen: list[Seen] = []
        for index, node in enumerate(nodes):
            found, mark = answers[2 * index], answers[2 * index + 1]
            if isinstance(found, Exception):
                continue
            data, stat = found
            says = told(data)
            token, guessed = 0, False
            if node.past_line:
                token = mark.czxid if mark is not None and not isinstance(mark, Exception) else 0
            elif says.state == INSIDE:
                token = stat.mzxid
            elif says.state != WAITING and node.tag in entitled:
                token, guessed = stat.czxid, not of_the_moment_of_creation(listing, stat)
            seen.append(Seen(node, says, stat, token, guessed))
        return seen, evicted

    async def _server_time(self, session: Session, give_up: float | None = None) -> float:
        """The leader's wall clock, as the times of its transactions tell it; our own, if we may not ask it."""
        now = self._driver.now()
        ours = self._driver.wall_us() / 1e6
        if now >= self._ahead_at + _CLOCK_IS_GOOD_FOR:
            path = f"{self._target.root}/clock-"
            (made,) = await session.ask([Create2(path, b"", session.acl, 3)], give_up)
            if not isinstance(made, Exception):
                session.tell(Delete(made[0], -1))
                self._ahead = made[1].ctime / 1000 - ours
            self._ahead_at = now
            return made[1].ctime / 1000 if not isinstance(made, Exception) else ours
        return ours + self._ahead

    async def watch(self, name: str, token: int, timeout: float) -> None:
        until = self._driver.now() + timeout
        give_up = min(until, self._soon())
        session = await self._sessions.any(give_up)
        parent = self._parent(name)
        with self._listening(session, until) as (bell, ring, watchers):
            watchers.append(session.watcher(GetChildren2, parent, ring))
            seen, _ = await self._look_twice(session, name, give_up, watchers[0], ring)
            watchers += [session.watcher(GetData, f"{parent}/{one.node.name}", ring) for one in seen]
            if max((one.token for one in seen), default=0) != token:
                return
            if not seen:
                watchers.append(session.watcher(Exists, parent, ring))
                (stat,) = await session.ask([Exists(parent, watchers[-1])], give_up)
                if stat is not None and stat.numChildren:
                    return
            await bell.wait(until - self._driver.now())

    async def wanted(self, name: str, timeout: float) -> bool:
        """Until somebody without a token is among the claims."""
        until = self._driver.now() + timeout
        give_up = min(until, self._soon())
        session = await self._sessions.any(give_up)
        with self._listening(session, until) as (bell, ring, watchers):
            watchers.append(session.watcher(GetChildren2, self._parent(name), ring))
            seen, _ = await self._look(session, name, give_up, watchers[0])
            if seen and all(one.token for one in seen):
                await bell.wait(until - self._driver.now())
        return self._driver.now() < until

    @contextlib.contextmanager
    def _listening(self, session: Session, until: float) -> Iterator[tuple[Bell, Callable[[], object], list[Watcher]]]:
        """A bell, what rings it, and room for the watchers that do: they go with it. Who cannot be asked when it is over
        anyway is no error."""
        bell = self._driver.bell()
        ring = bell.ring  # one object: it is known by that
        watchers: list[Watcher] = []
        try:
            self._bells[id(bell)] = bell
            yield bell, ring, watchers
        except Unavailable:
            if self._driver.now() < until:
                raise
        finally:
            self._bells.pop(id(bell), None)
            for watcher in watchers:
                session.unwatch(watcher, ring)

    def forked(self) -> None:
        self._bells = {}

    def wake_waiters(self) -> None:
        for bell in list(self._bells.values()):
            bell.ring()

    def _soon(self) -> float:
        return self._driver.now() + self._target.timeout

    # ---- a forced release

    async def evict(self, name: str, token: int, by: str) -> int | None:
        session = await self._sessions.any(self._soon())
        parent, note = self._parent(name), self._note(name)
        for _ in range(_ATTEMPTS):
            seen, _ = await self._look(session, name)
            found = next((one for one in seen if one.token == token), None)
            if found is None:
                return None
            (made,) = await session.ask([Create(note, b"", session.acl, 0)])
            if isinstance(made, NoNodeError):
                await self.make_root(session)
                continue
            if isinstance(made, Exception) and not isinstance(made, NodeExistsError):
                raise Unavailable(f"the eviction of {name!r} cannot be noted: {made!r}")
            audit = json.dumps({"owner": found.told.owner, "token": token, "by": by}).encode()
            operations = [Delete(f"{parent}/{found.node.name}", found.stat.version)]
            if found.node.past_line:
                operations.append(Delete(f"{parent}/{found.node.tag}!", -1))
            # All of one transaction, so of one id: the note's own is the token that outranks the evicted.
            operations += [SetData(parent, b"", -1), SetData(note, audit, -1)]
            (done,) = await session.ask([Transaction(operations)])
            if not isinstance(done, Exception) and not any(isinstance(one, Exception) for one in done):
                await self._prune_notes(session)
                return int(done[-1].mzxid)
        raise Unavailable(f"{name!r} changes too fast: {_ATTEMPTS} attempts to evict its holder failed")

    async def _prune_notes(self, session: Session) -> None:
        """No note lives for ever: who writes one takes away those that are a day old, and what is too much."""
        root = f"{self._target.root}/evictions"
        (children,) = await session.ask([GetChildren(root, None)])
        if isinstance(children, Exception):
            return
        now = await self._server_time(session)
        aged: list[tuple[float, str]] = []
        for at in range(0, len(children), _AT_ONCE):
            some = [f"{root}/{child}" for child in children[at : at + _AT_ONCE]]
            stats = await session.ask([Exists(path, None) for path in some])
            aged += [(now - stat.mtime / 1000, path) for path, stat in zip(some, stats, strict=True) if stat]
        aged.sort()
        for number, (age, path) in enumerate(aged):
            if age > _REMEMBER_EVICTIONS or number >= _MOST_EVICTIONS:
                session.tell(Delete(path, -1))
