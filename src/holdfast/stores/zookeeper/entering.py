"""How a claim comes in: by a node of its own, a look at the line, and, if it had to wait, a write of that node.

A token is the id of the transaction by which its claim came in:

    created     the claim was inside the moment its node was created: its czxid. Only a listing of that very moment proves it.
    written     it was seen to be inside, and then wrote its own node: that write's mzxid
    past line   the transaction that made its mark: the mark's czxid

Why tokens rise in the order of entering, whatever is lost and whoever comes and goes:

1. Ids order all writes of an ensemble. Whoever is inside stays inside until its node goes (see `line.py`); so one that was
   inside at the moment of a write, by a listing of that moment or of one before, with no deletion of its node in between, has
   been inside from that write on.
2. Every token is such a write. *created*: the parent's pzxid, the last change of its children, equals our czxid, so the
   listing is what there was right after our node was made. A listing from later proves less: others may have been ahead of us
   then, have entered by higher ids and left. Who is inside by a later listing writes its node, as everybody does who waited.
   *written*: the listing came first, and the write fails if the node has gone since. *past line*: the transaction itself
   checks that all who are counted on are there.
3. Let A leave before B comes in, because there was no room for both. A's token is the id of a write while A's node was there,
   so below that of its deletion. B's write came when A's node was gone, so above. An eviction is a deletion too, and the id of
   its transaction is the seal, so the same holds for it.
4. A lost answer changes none of this: a claim that asks again looks again, and what it concludes (1 to 3) is true of what it
   sees then. A write that is repeated gives a higher token to a claim that has been inside all along and was never
   told another one. A node is only ever taken for ours in the session that made it.

Whoever is let in by a write has also heard from a quorum just now that its session lives; and the write wakes the next in line,
where more than one may be inside.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kazoo.exceptions import NoNodeError
from kazoo.protocol.serialization import (
    CheckVersion,
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

from ...claim import MAX_TOKEN, Claim, Grant, Place
from ...errors import Misuse, Unavailable
from . import line
from .records import FRESH, INSIDE, WAITING, Record, told
from .session import Session
from .sessions import Sessions
from .url import Target
from .wire import CreateContainer

_MOST_KNOWN = 4096
_EPHEMERAL, _SEQUENTIAL = 1, 2


class Entering:
    def __init__(
        self,
        target: Target,
        sessions: Sessions,
        parent: Callable[[str], str],
        make_root: Callable[[Session, float], Awaitable[None]],
    ) -> None:
        self._target = target
        self._sessions = sessions
        self._parent = parent
        self._make_root = make_root
        self._known: dict[str, None] = {}  # names whose parent was there when last used

    async def ask_for(self, record: Record, claim: Claim, give_up: float) -> Grant | Place | None:
        """None: it changed under our hands, ask again."""
        if not record.path:
            if record.asked:
                return await self._find_again(record, give_up)
            return await self._join(record, give_up)
        if record.token:
            return await self._still_inside(record, claim, give_up)
        watcher = None if record.watching is not None or claim.capacity == 1 else self._watch_line(record)
        (listing,) = await record.session.ask([GetChildren2(self._parent(claim.name), watcher)], give_up)
        return await self._stand(record, listing, give_up)

    async def _join(self, record: Record, give_up: float) -> Grant | Place | None:
        """Create the node and look where it stands, in one round trip."""
        claim, session = record.claim, record.session
        parent = self._parent(claim.name)
        new = [] if claim.name in self._known else [CreateContainer(parent, b"", session.acl, CreateContainer.FLAGS)]
        path = f"{parent}/{line.stem(claim, record.tag)}"
        data = record.data(FRESH, record.lives(claim.ttl))
        create = Create2(path, data, session.acl, _EPHEMERAL | _SEQUENTIAL)
        sent = self._sessions.send(record, [*new, create, GetChildren2(parent, None)])
        if sent is None:
            return None
        *_, created, listing = await session.answered(sent, give_up)
        if isinstance(created, NoNodeError):
            record.asked = False
            self._known.pop(claim.name, None)
            if new:
                await self._make_root(session, give_up)
            return None
        if isinstance(created, Exception):
            raise Misuse(f"ZooKeeper at {self._target.shown()} refuses the node of {claim.name!r}: {created!r}")
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[claim.name] = None
        found, stat = created
        return await self._found(record, found, stat, listing, give_up)

    async def _found(self, record: Record, path: str, stat: Any, listing: Any, give_up: float) -> Grant | Place | None:
        """Our node, as it was created."""
        claim = record.claim
        if stat.ephemeralOwner != record.session.id:
            # It belongs to a session that is dying, or to one that kazoo opened in its place: in neither case to this one.
            record.session.dead = record.session.dead or "its session has ended"
            raise Unavailable(
                f"ZooKeeper at {self._target.shown()}: the session ended while {claim.name!r} was claimed"
            )
        record.path = path
        if isinstance(listing, Exception):
            await self._sessions.remove(record, give_up)
            raise Unavailable(f"the node of {claim.name!r} was removed while it was claimed")
        nodes = line.read(line.deciding(listing[0], record.tag, claim.capacity))
        stands = line.standing(nodes, record.tag)
        if stands is not None:
            try:
                line.check_capacity(claim.name, nodes, record.tag)
            except Misuse:
                await self._sessions.remove(record, give_up)
                raise
            # Inside by a listing of a later moment says nothing of this one: others may have come and gone in between.
            if stands.inside and of_the_moment_of_creation(listing, stat):
                return await self._granted(record, stat.czxid, give_up)
        return await self._stand(record, listing, give_up)

    async def _find_again(self, record: Record, give_up: float) -> Grant | Place | None:
        """The answer to our creation was lost: it is there, with our tag in its name, or it is not."""
        parent = self._parent(record.claim.name)
        record.session.tell(record.session.barrier)  # the server that we have moved to may not know of it yet
        (listing,) = await record.session.ask([GetChildren2(parent, None)], give_up)
        nodes = [] if isinstance(listing, Exception) else line.read(listing[0])
        mine = [node for node in nodes if node.tag == record.tag]
        if not mine:
            record.asked = False
            return None
        path = f"{parent}/{mine[0].name}"
        (found,) = await record.session.ask([GetData(path, None)], give_up)
        if isinstance(found, Exception):
            return None
        data, stat = found
        state = told(data).state
        if state == INSIDE and stat.ephemeralOwner == record.session.id:
            record.path = path
            return await self._granted(record, stat.mzxid, give_up)
        record.waiting = state == WAITING
        if record.waiting:
            record.path = path
            return None
        return await self._found(record, path, stat, listing, give_up)

    async def _stand(self, record: Record, listing: Any, give_up: float) -> Grant | Place | None:
        claim = record.claim
        children = [] if isinstance(listing, Exception) else listing[0]
        nodes = line.read(line.deciding(children, record.tag, claim.capacity))
        stands = line.standing(nodes, record.tag)
        if stands is None:  # taken away: by an admin, or because it was overdue
            await self._start_afresh(record)
            return None
        if stands.inside:
            return await self._enter(record, nodes, give_up)
        if stands.room and not claim.fair and claim.capacity > 1:
            return await self._enter_past_line(record, stands, listing[1].version, give_up)
        if not claim.queue:
            await self._sessions.remove(record, give_up)
            return Place(claim, claim.ttl)
        if record.watching is not None:
            return Place(claim, claim.ttl)
        return await self._wait_behind(record, stands, give_up)

    async def _wait_behind(self, record: Record, stands: line.Standing, give_up: float) -> Place | None:
        """Watch what has to happen before we can go in, and say that we wait."""
        claim, session = record.claim, record.session
        parent = self._parent(claim.name)
        ahead = f"{parent}/{stands.ahead.name}" if stands.ahead is not None else ""
        request: Any
        if claim.capacity == 1 and ahead:
            # A watch of its children, which it never has, fires when the node goes and for nothing else.
            record.watching = session.watcher(GetChildren, ahead, record.ring)
            request = GetChildren(ahead, record.watching)
        elif stands.head or not claim.fair:
            # Anybody who leaves may make room; and the first in line may have nobody before it but those who went past.
            request = GetChildren2(parent, self._watch_line(record))
        else:
            record.watching = session.watcher(Exists, ahead, record.ring)
            request = Exists(ahead, record.watching)
        if not record.waiting:
            session.tell(SetData(record.path, record.data(WAITING, record.lives(claim.ttl)), -1))
            record.waiting = True
        (answer,) = await session.ask([request], give_up)
        if answer is None or isinstance(answer, Exception):  # gone between listing and watching
            record.unwatch()
            return None
        if isinstance(request, GetChildren2):
            again = line.standing(line.read(answer[0]), record.tag)
            if again is None or again.inside or (again.room and not claim.fair):
                return None
        return Place(claim, claim.ttl)

    def _watch_line(self, record: Record) -> Any:
        record.watching = record.session.watcher(GetChildren2, self._parent(record.claim.name), record.ring)
        return record.watching

    async def _enter(self, record: Record, nodes: Sequence[line.Node], give_up: float) -> Grant | None:
        """Our turn has come. Whoever waits behind watches this node, and looks again."""
        mine = next(node for node in nodes if node.tag == record.tag)
        if mine.past_line:  # the answer to that was lost
            mark = f"{self._parent(record.claim.name)}/{record.tag}!"
            (stat,) = await record.session.ask([Exists(mark, None)], give_up)
            record.extras = [mark]
            return await self._granted(record, stat.czxid, give_up) if stat is not None else None
        data = record.data(INSIDE, record.lives(record.claim.ttl))
        (stat,) = await record.session.ask([SetData(record.path, data, -1)], give_up)
        if isinstance(stat, Exception):
            await self._start_afresh(record)
            return None
        return await self._granted(record, stat.mzxid, give_up)

    async def _enter_past_line(
        self, record: Record, stands: line.Standing, version: int, give_up: float
    ) -> Grant | None:
        """There is room, though others wait. In one transaction with what the room depends on.

        While those inside and the first who waits are all still there, nobody behind that one can have come in; and
        the version of the parent lets only one at a time go past the line.
        """
        session = record.session
        parent = self._parent(record.claim.name)
        mark = f"{parent}/{record.tag}!"
        record.extras = [mark]
        checks = [CheckVersion(f"{parent}/{node.name}", -1) for node in stands.guards]
        create = Create(mark, b"", session.acl, _EPHEMERAL)
        own = SetData(
            record.path, record.data(INSIDE, record.lives(record.claim.ttl)), -1
        )  # whoever is behind looks again
        (done,) = await session.ask([Transaction([*checks, own, create, SetData(parent, b"", version)])], give_up)
        if isinstance(done, Exception) or any(isinstance(one, Exception) for one in done):
            return None
        return await self._granted(record, done[-1].mzxid, give_up)

    async def _granted(self, record: Record, token: int, give_up: float) -> Grant:
        if token > MAX_TOKEN:
            await self._sessions.remove(record, give_up)
            raise Unavailable(
                f"the transaction ids of ZooKeeper at {self._target.shown()} have passed 2**53 ({token}): tokens beyond "
                "would not stay whole everywhere. Move to a fresh ensemble whose tokens your storage has not seen"
            )
        record.token = token
        record.unwatch()
        return Grant(record.claim, token, record.lives(record.claim.ttl))

    async def _still_inside(self, record: Record, claim: Claim, give_up: float) -> Grant | None:
        """Repeated by one that is inside: a fresh ttl, and perhaps fewer units."""
        session, path, token = record.session, record.path, record.token
        operations: list[Any] = [CheckVersion(path, -1)]
        if claim.units < record.units:
            fewer = f"{self._parent(claim.name)}/{record.tag}~{claim.units}"
            if fewer not in record.extras:
                record.extras.append(fewer)
            operations.append(Create(fewer, b"", session.acl, _EPHEMERAL))
            # Others may fit in now: whoever is about to go past the line has to look again.
            operations.append(SetData(self._parent(claim.name), b"", -1))
        (done,) = await session.ask([Transaction(operations)], give_up)
        if isinstance(done, Exception) or any(isinstance(one, Exception) for one in done):
            (stat,) = await session.ask([Exists(path, None)], give_up)
            if stat is None:
                if record.path == path:
                    await self._start_afresh(record)
                return None
            # So the fewer units were there already: an answer was lost.
        if record.path != path:
            return None  # somebody else who asked for it again (close() and its owner, say) has found it gone meanwhile
        record.units = min(record.units, claim.units)
        record.lingers = record.lingers or (not claim.queue and claim.ttl != record.claim.ttl)
        return Grant(claim, token, record.lives(claim.ttl))

    async def _start_afresh(self, record: Record) -> None:
        """Its node is gone; so is all that we knew of it."""
        for extra in record.extras:
            record.session.tell(Delete(extra, -1))
        record.unwatch()
        record.path, record.token, record.asked, record.waiting, record.extras = "", 0, False, False, []
        record.units = record.claim.units


def of_the_moment_of_creation(listing: Any, stat: Any) -> bool:
    """Of the parent's children nothing has changed since this one was made: so what the listing shows was so then."""
    return bool(listing[1].pzxid == stat.czxid)
