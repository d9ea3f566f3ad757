"""The book of one name: who is inside, who waits, first in line first. Pure: no clock, no I/O.

A book is changed only by a transaction that checks its index, so whoever writes has seen all that was written before.

A token is the index of the write that let its holder in. The writer cannot know that number, so it leaves a 0, and
whoever reads the book puts the book's own index there: nobody has written since. One write lets in one claim.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from ... import rule
from ...claim import Claim

_PACKED_FROM = 600  # bytes; a short book stays readable for people


class Entry:
    """Somebody in the book: inside when it is in `inside`, else in line."""

    __slots__ = ("at", "delay", "fair", "note", "owner", "session", "token", "ttl", "units", "who")

    def __init__(
        self,
        who: str,
        session: str,
        owner: str,
        units: int,
        ttl: float,
        at: int,
        fair: bool = True,
        note: str = "",
        token: int = 0,
        delay: float = 0.0,
    ) -> None:
        self.who = who
        self.session = session
        self.owner = owner
        self.units = units
        self.ttl = ttl
        self.at = at  # by the wall clock of whoever wrote it, in ms: for people to read, and for nothing else
        self.fair = fair
        self.note = note
        self.token = token
        self.delay = delay  # the lock-delay that its session asked for

    def packed(self) -> list[Any]:
        return [
            self.who,
            self.session,
            self.owner,
            self.units,
            self.ttl,
            self.at,
            self.fair,
            self.note,
            self.token,
            self.delay,
        ]


class Book:
    __slots__ = ("capacity", "index", "inside", "keeper", "known", "line")

    def __init__(self, index: int = 0, keeper: str = "") -> None:
        self.index = index  # 0: there is none yet
        self.keeper = keeper  # the session that holds the key itself
        self.known = False  # from what we wrote last, not from Consul: somebody may have come since
        self.capacity = 0
        self.inside: dict[str, Entry] = {}
        self.line: dict[str, Entry] = {}  # a dict keeps the order of arrival

    @classmethod
    def read(cls, value: bytes, index: int, keeper: str) -> Book:
        book = cls(index, keeper)
        if value[:1] != b"[":
            value = zlib.decompress(value)
        book.capacity, inside, line = json.loads(value)
        for packed in inside:
            entry = Entry(*packed)
            entry.token = entry.token or index
            book.inside[entry.who] = entry
        for packed in line:
            entry = Entry(*packed)
            book.line[entry.who] = entry
        return book

    def packed(self) -> bytes:
        inside = [entry.packed() for entry in self.inside.values()]
        line = [entry.packed() for entry in self.line.values()]
        value = json.dumps([self.capacity, inside, line], separators=(",", ":")).encode()
        # A long line says the same things again and again: packed, what is written hardly grows with it.
        return value if len(value) < _PACKED_FROM else zlib.compress(value, 1)

    def written(self, index: int) -> None:
        """It is in Consul now as it is here."""
        self.index = 0 if self.empty else index
        self.keeper = self.only_session()
        for entry in self.inside.values():
            entry.token = entry.token or index

    @property
    def empty(self) -> bool:
        return not self.inside and not self.line

    @property
    def used(self) -> int:
        return sum(entry.units for entry in self.inside.values())

    def entries(self) -> Iterator[Entry]:
        yield from self.inside.values()
        yield from self.line.values()

    def only_session(self) -> str:
        """The session of everybody in the book, if that is one: it may keep the key, which then goes with it."""
        sessions = {entry.session for entry in self.entries()}
        return sessions.pop() if len(sessions) == 1 else ""

    # ---- changes

    def without(self, dead: Iterable[str], *, delayed: bool = False) -> bool:
        """Strike out those whose session is over; who asked for a lock-delay stays inside, unless `delayed`.

        Did that change anything?
        """
        gone = set(dead)
        before = len(self.inside) + len(self.line)
        self.inside = {
            who: entry
            for who, entry in self.inside.items()
            if entry.session not in gone or (entry.delay and not delayed)
        }
        self.line = {who: entry for who, entry in self.line.items() if entry.session not in gone}
        return len(self.inside) + len(self.line) != before

    def leave(self, who: str) -> Entry | None:
        return self.inside.pop(who, None) or self.line.pop(who, None)

    def blocks(self, claim: Claim, who: str) -> bool:
        """Will this claim not get in as things stand?"""
        if who in self.inside or self.empty:
            return False
        ahead = next(iter(self.line), who) != who
        fits = rule.admit(claim.units, self.capacity, self.used, ahead=ahead, fair=claim.fair)
        return claim.capacity != self.capacity or not fits

    def ahead_of(self, who: str, most: int) -> list[Entry]:
        """Those inside, and those in line before this one."""
        found = list(self.inside.values())
        for entry in self.line.values():
            if entry.who == who or len(found) >= most:
                break
            found.append(entry)
        return found[:most]

    def enter(
        self, claim: Claim, who: str, session: str, former: str, at: int, delay: float
    ) -> tuple[Entry | None, bool]:
        """Let a claim in, or into the line. Its entry if it is inside now; and whether anything changed."""
        changed = False
        for part in (self.inside, self.line):
            old = part.get(who)
            if old is None or old.session == session:
                continue
            changed = True
            if old.session == former:  # it goes on, with another ttl
                old.session, old.ttl = session, claim.ttl
            else:  # from a session that we have lost: it is over
                del part[who]
        entry = self.inside.get(who)
        if entry is not None:  # repeated: the answer was lost, or fewer units will do
            fewer = claim.units < entry.units
            entry.units = min(entry.units, claim.units)
            return entry, changed or fewer
        if self.inside or self.line:
            rule.same_capacity(claim.name, claim.capacity, self.capacity)
        self.capacity = claim.capacity
        ahead = next(iter(self.line), who) != who
        if rule.admit(claim.units, self.capacity, self.used, ahead=ahead, fair=claim.fair):
            self.line.pop(who, None)
            entry = Entry(who, session, claim.owner, claim.units, claim.ttl, at, claim.fair, claim.note, delay=delay)
            self.inside[who] = entry
            return entry, True
        if claim.queue and who not in self.line:
            self.line[who] = Entry(
                who, session, claim.owner, claim.units, claim.ttl, at, claim.fair, claim.note, delay=delay
            )
            changed = True
        return None, changed

    def heir(self) -> Entry | None:
        """The head of the line, if it may enter now, or else the first who need not wait for it."""
        ahead = False
        used = self.used
        for entry in self.line.values():
            if rule.admit(entry.units, self.capacity, used, ahead=ahead, fair=entry.fair):
                return entry
            ahead = True
        return None

    def obstacles(self, who: str) -> list[Entry]:
        """Whose end would let this one go on: those inside if it is at the head, else the one right before it."""
        before: Entry | None = None
        for entry in self.line.values():
            if entry.who == who:
                break
            before = entry
        mine = self.line.get(who)
        if before is None or (mine is not None and not mine.fair):
            return list(self.inside.values())
        return [before]
