"""The one transaction that enters, or joins the line, or finds out where one stands.

Why nobody enters who should not. All of it is decided by etcd, in one transaction, over ranges of keys:

1. *Room.* A claim of the whole capacity (a mutex, a writer) requires that the range of those inside is empty; a reader, that no
   writer is in it. A part of a semaphore cannot be summed up by etcd: the client sums up what it has read, at revision R,
   and requires that no key inside was put after R. Then those inside are at most those that it counted.
2. *Nobody ahead.* Either the line is empty; or our key in line is still the one of which we have once seen that none was created
   before it. That stays true: whoever joins later is created later, so who is first once is first until it leaves.
3. *Alive.* To enter is to put a key on our lease, in the same transaction: if the lease is gone, etcd refuses all of it. There is
   no moment between looking and holding (which is how Jepsen found locks granted on dead leases).
4. *Tokens.* The key inside is created by entering, and the revision of that is the token: whoever enters later has a higher one,
   however it came to enter, by the order of etcd's log.
5. *Once.* Entering requires that our key is not inside yet. If it is (a reply was lost), the same token is read again.
6. *Not after leaving.* A request that was never answered may arrive late, even after the release that took it back. So such a
   release leaves a key behind, and nobody enters or joins the line past that.

Nor is anybody forgotten: who does not enter has read what it waits for at revision R, and watches that from R + 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ... import rule
from ...claim import Claim, new_holder
from ...drivers.base import Bell
from .ear import Watch
from .keys import PART, WHOLE, Keys, Places, Span, read_terms
from .replies import Done, KeyValue
from .requests import CREATE, DESCEND, EQUAL, LESS, MOD, compare, op_delete, op_put, op_range, op_txn, range_of, txn
from .sessions import Session


class Record:
    """A claim of this process, as far as we know: inside when it has a token, else perhaps in line."""

    __slots__ = (
        "_keys",
        "_places",
        "bell",
        "claim",
        "claiming",
        "created",
        "deadline",
        "doubtful",
        "first",
        "leaving",
        "moving",
        "queued",
        "revision",
        "session",
        "sweeping",
        "swept",
        "token",
        "until",
        "watch",
    )

    def __init__(self, claim: Claim, keys: Keys, now: float) -> None:
        self.claiming = self.sweeping = False  # just now, by its owner, and by the sweeper: never both
        self.doubtful = False  # a request of it was not answered, and may yet arrive
        self.leaving = False  # a release was sent
        self.swept = 0.0  # when, the first time since it was last claimed
        self.revision = 0  # of the last answer about it
        self.session: Session | None = None
        self.bell: Bell | None = None
        self._keys = keys
        self._places: Places | None = None
        self.begin(claim, now)

    @property
    def at(self) -> Places:
        """Made when somebody asks: a claim that enters at once and leaves needs none of it."""
        if self._places is None:
            self._places = self._keys.places(self.claim)
        return self._places

    def becomes(self, claim: Claim) -> None:
        """Its key inside is that of this claim now."""
        self.claim = claim
        self._places = None

    def begin(self, claim: Claim, now: float) -> None:
        """Neither inside nor in line, as far as we know."""
        self.becomes(claim)
        self.token = 0
        self.created = 0  # the revision of our key inside
        self.moving = False  # to a key of another kind, or to another lease, and the answer is not here yet
        self.queued = 0  # the revision of our key in line
        self.first = False  # in line
        self.deadline = now + claim.ttl
        self.until: tuple[Span, int] | None = None  # what we wait for, and from which revision
        self.watch: Watch | None = None

    def elsewhere(self) -> list[bytes]:
        """Its key, if it was of another kind."""
        return [key for key in self._keys.anywhere(self.claim) if key != self.at.inside]


class Templates:
    """What a claim asks first, which is nearly always all it asks: packed once for all but its holder and its time.

    They have the same length in every claim, so that lengths inside the message stay right.
    """

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._holder = new_holder()  # what stands in for them, and can stand nowhere else by chance
        self._since = new_holder()[:16].encode()
        self._entering = lru_cache(2048)(self._enter)
        self._leaving = lru_cache(2048)(self._leave)

    def enter(self, entry: Record, wall_us: int, lease: int, counted_at: int) -> bytes:
        claim, since = entry.claim, b"%d" % wall_us
        if entry.queued or counted_at or len(claim.holder) != len(self._holder) or len(since) != len(self._since):
            return enter(entry, self._keys.value(claim, wall_us), lease, counted_at)
        packed = self._entering(claim._replace(holder=""), lease)
        return packed.replace(self._holder.encode(), claim.holder.encode()).replace(self._since, since)

    def leave(self, claim: Claim) -> bytes:
        """Of one that is inside, and nowhere else."""
        if len(claim.holder) != len(self._holder):
            return txn([], [op_delete(self._keys.inside(claim))])
        packed = self._leaving(claim.name, claim.units, claim.capacity)
        return packed.replace(self._holder.encode(), claim.holder.encode())

    def _enter(self, claim: Claim, lease: int) -> bytes:
        stand_in = claim._replace(holder=self._holder)
        value = self._keys.value(stand_in, 1).replace(b'"since":1}', b'"since":%b}' % self._since)
        return enter(Record(stand_in, self._keys, 0.0), value, lease)

    def _leave(self, name: str, units: int, capacity: int) -> bytes:
        return txn([], [op_delete(self._keys.inside(Claim(name, self._holder, "", 0.0, units, capacity)))])


def enter(entry: Record, value: bytes, lease: int, counted_at: int = 0) -> bytes:
    """Enter if there is room; else join the line, if the claim is willing; and read what is in the way.

    If it is in line, it must be the first. `counted_at`: the revision at which room was found for a part.
    """
    claim = entry.claim
    if counted_at:
        compares = [compare(entry.at.ways[0], MOD, LESS, counted_at + 1, entry.at.ways[1])]
    else:
        compares = [compare(entry.at.ways[0], CREATE, EQUAL, 0, entry.at.ways[1])]
    compares.append(compare(entry.at.left, CREATE, EQUAL, 0))
    if counted_at or entry.at.kind != WHOLE:
        compares.append(compare(entry.at.inside, CREATE, EQUAL, 0))
    if claim.fair and entry.queued:
        compares.append(compare(entry.at.in_line, CREATE, EQUAL, entry.queued))
    elif claim.fair:
        compares.append(compare(entry.at.line[0], CREATE, EQUAL, 0, entry.at.line[1]))
    success = [op_put(entry.at.inside, value, lease)]
    if claim.queue and (entry.queued or not claim.fair):
        success.append(op_delete(entry.at.in_line))
    return txn(compares, success, _look(entry, value, lease, join=claim.queue and not entry.queued))


def look(entry: Record) -> bytes:
    """For one in line that is not known to be the first. It only reads: neither a vote nor a disk is needed for that."""
    return txn([], _look(entry, b"", 0, join=False))


def _look(entry: Record, value: bytes, lease: int, *, join: bool) -> list[bytes]:
    before = DESCEND
    if entry.queued:
        ahead = range_of(*entry.at.line, order=before, limit=1, created_before=entry.queued)
    else:
        ahead = range_of(*entry.at.line, order=before, limit=2)
    ways = range_of(*entry.at.ways) if entry.at.kind == PART else range_of(*entry.at.ways, order=before, limit=1)
    operations = [
        op_range(range_of(entry.at.inside)),
        op_range(ways),
        op_range(ahead),
        op_range(range_of(entry.at.in_line, keys_only=True)),
    ]
    if join:
        absent = [compare(key, CREATE, EQUAL, 0) for key in (entry.at.inside, entry.at.in_line, entry.at.left)]
        operations.insert(0, op_txn(txn(absent, [op_put(entry.at.in_line, value, lease)])))
    return operations


class Seen(NamedTuple):
    """What was in the way, at `revision`."""

    inside: KeyValue | None  # ourselves: a reply was lost
    ways: tuple[KeyValue, ...]
    ahead: KeyValue | None
    queued: int
    revision: int


def seen(entry: Record, done: Done) -> Seen:
    first = len(done.answers) - 4
    inside = done.ranged(first)
    mine = done.ranged(first + 3)
    ahead = [one for one in done.ranged(first + 2) if one.key != entry.at.in_line]
    return Seen(
        inside[0] if inside else None,
        done.ranged(first + 1),
        ahead[0] if ahead else None,
        mine[0].created if mine else 0,
        done.header.revision,
    )


def may_enter(entry: Record, sight: Seen) -> bool:
    claim = entry.claim
    for other in (*sight.ways[:1], *([sight.ahead] if sight.ahead else [])):
        rule.same_capacity(claim.name, claim.capacity, read_terms(other).capacity)
    used = claim.capacity if sight.ways else 0
    if entry.at.kind == PART:
        used = sum(read_terms(one).units for one in sight.ways)
    return rule.admit(claim.units, claim.capacity, used, ahead=sight.ahead is not None, fair=claim.fair)


def what_to_wait_for(entry: Record, sight: Seen) -> tuple[Span, int]:
    """Only the one before us, if there is one: a release wakes the head of the line and nobody else."""
    if sight.ahead is not None and entry.claim.fair:
        span = (sight.ahead.key, b"")
    elif entry.at.kind == PART or not sight.ways:
        span = entry.at.ways
    else:
        span = (sight.ways[0].key, b"")
    return span, sight.revision + 1
