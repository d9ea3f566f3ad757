"""The book of one name: who is inside, who waits, first in line first. Pure: no clock, no I/O.

A book is changed only by a transaction that checks its index, so whoever writes has seen all that was written before.

A token is the index of the write that let its holder in. The writer cannot know that number, so it leaves a 0, and
whoever reads the book puts the book's own index there: nobody has written since. One write lets in one claim.

It is JSON, one entry a line. Those in line are left as they were read until somebody asks for more than whose they are:
so a long line costs little more than a short one. Packed, an entry begins with who it is, its session and whether it waits
its turn, always in the same places: these can be told without reading the rest.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Container, Iterator, Set
from typing import Any

from ... import rule
from ...claim import Claim
from ...errors import Misuse
from .replies import SESSION_ID

_PACKED_FROM = 600  # bytes; a short book stays readable for people
# Before the capacity, those inside, those in line, and at the end. (A line break within an entry is written as \\n, so these are
# ours.) No regular expression: to look again from each of them, in a book that has nothing else, takes days.
_LAYOUT = ("[", ",[\n", "\n],[\n", "\n]]")
_NEXT = ",\n"
WHO = slice(2, 22)  # ["<who: 20>","<session: 36>",1,
SESSION = slice(25, 61)
_FAIR = 63
_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("who", "session", "owner", "note"), str),
    **dict.fromkeys(("units", "at", "token"), int),
    **dict.fromkeys(("ttl", "delay"), (int, float)),
}
_IN_LINE = re.compile(rf'\["[0-9a-f]{{20}}","{SESSION_ID}",[01],')
_IDS = re.compile(f"[0-9a-f]{{20}} {SESSION_ID}")
_MOST = 1 << 24  # bytes of a book, unpacked


class NotOurs(Misuse):
    """Somebody else wrote that: so nobody of ours is in it."""


class Entry:
    """Somebody inside, or in line."""

    __slots__ = ("at", "delay", "fair", "note", "owner", "session", "token", "ttl", "units", "who")

    def __init__(
        self,
        who: str,
        session: str,
        fair: bool,
        units: int,
        ttl: float,
        at: int,
        owner: str,
        note: str = "",
        token: int = 0,
        delay: float = 0.0,
    ) -> None:
        self.who = who
        self.session = session
        self.fair = fair
        self.units = units
        self.ttl = ttl
        self.at = at  # by the wall clock of whoever wrote it, in ms: for people to read, and for nothing else
        self.owner = owner
        self.note = note
        self.token = token
        self.delay = delay  # the lock-delay that its session asked for

    @classmethod
    def read(cls, packed: str) -> Entry:
        try:
            who, session, fair, *rest = json.loads(packed)
            entry = cls(who, session, bool(fair), *rest)
        except (ValueError, TypeError, RecursionError):
            entry = None
        if (
            entry is None
            or not all(isinstance(getattr(entry, field), kind) for field, kind in _KINDS.items())
            or not _IDS.fullmatch(f"{entry.who} {entry.session}")
        ):
            raise NotOurs("what stands in the book of this name in Consul was not written by holdfast")
        return entry

    def packed(self) -> str:
        fields: list[Any] = [self.who, self.session, int(self.fair), self.units, self.ttl, self.at, self.owner]
        rest: list[Any] = [self.note, self.token, self.delay]
        while rest and not rest[-1]:  # as most are, so the lines stay short
            rest.pop()
        text = json.dumps(fields + rest, separators=(",", ":"))
        if text[WHO] != self.who or text[SESSION] != self.session:
            raise ValueError(f"{self.session!r} is no id of a session")
        return text


def is_fair(packed: str) -> bool:
    return packed[_FAIR] == "1"


class Book:
    __slots__ = ("capacity", "index", "inside", "keeper", "known", "line", "next_keeper", "size")

    def __init__(self, index: int = 0, keeper: str = "") -> None:
        self.index = index  # 0: there is none yet
        self.keeper = keeper  # the session that holds the key itself
        self.next_keeper = ""  # that will hold it, once what was made of the book is written
        self.known = False  # from what we wrote last, not from Consul: somebody may have come since
        self.size = 0  # in letters, as it was read
        self.capacity = 0
        self.inside: dict[str, Entry] = {}
        self.line: dict[str, str] = {}  # packed entries; a dict keeps the order of arrival

    @classmethod
    def read(cls, value: bytes, index: int, keeper: str) -> Book:
        """ValueError, TypeError, zlib.error: that is no book."""
        book = cls(index, keeper)
        text = (value if value[:1] == b"[" else zlib.decompressobj().decompress(value, _MOST)).decode()
        book.size = len(text)
        begin, after_capacity, between, end = _LAYOUT
        capacity, _, rest = text.removeprefix(begin).partition(after_capacity)
        inside, found, line = rest.partition(between)
        if not (text.startswith(begin) and found and line.endswith(end) and capacity.isascii() and capacity.isdigit()):
            raise ValueError("no book")
        book.capacity = int(capacity)
        for packed in inside.split(_NEXT) if inside else ():
            entry = Entry.read(packed)
            entry.token = entry.token or index
            book.inside[entry.who] = entry
        if line := line.removesuffix(end):
            book.line = {packed[WHO]: packed for packed in line.split(_NEXT)}
            if not all(map(_IN_LINE.match, book.line.values())):
                raise ValueError("no book")
        return book

    def packed(self) -> bytes:
        inside = _NEXT.join([entry.packed() for entry in self.inside.values()])
        line = _NEXT.join(self.line.values())
        value = f"[{self.capacity},[\n{inside}\n],[\n{line}\n]]".encode()
        # A long line says the same things again and again: packed, what is written hardly grows with it.
        return value if len(value) < _PACKED_FROM else zlib.compress(value, 1)

    def written(self, index: int) -> None:
        """It is in Consul now as it is here."""
        self.index = 0 if self.empty else index
        self.keeper = "" if self.empty else self.next_keeper
        for entry in self.inside.values():
            entry.token = entry.token or index

    @property
    def empty(self) -> bool:
        return not self.inside and not self.line

    @property
    def used(self) -> int:
        return sum(entry.units for entry in self.inside.values())

    def waiting(self) -> Iterator[Entry]:
        return map(Entry.read, self.line.values())

    def sessions(self) -> set[str]:
        """Of everybody in the book."""
        return {entry.session for entry in self.inside.values()} | {packed[SESSION] for packed in self.line.values()}

    def only_session(self) -> str:
        """The session of everybody in the book, if that is one: it may keep the key, which then goes with it."""
        sessions = self.sessions()
        return sessions.pop() if len(sessions) == 1 else ""

    # ---- changes

    def without(self, dead: Set[str], *, delayed: bool = False) -> bool:
        """Strike out those whose session is over; who asked for a lock-delay stays inside, unless `delayed`.

        Did that change anything?
        """
        if not dead:
            return False
        before = len(self.inside) + len(self.line)
        self.inside = {
            who: entry
            for who, entry in self.inside.items()
            if entry.session not in dead or (entry.delay and not delayed)
        }
        self.line = {who: packed for who, packed in self.line.items() if packed[SESSION] not in dead}
        return len(self.inside) + len(self.line) != before

    def leave(self, who: str) -> bool:
        """Was it there?"""
        return self.inside.pop(who, None) is not None or self.line.pop(who, None) is not None

    def enter(
        self, claim: Claim, who: str, session: str, former: Container[str], at: int, delay: float
    ) -> tuple[Entry | None, bool]:
        """Let a claim in, or into the line. Its entry if it is inside now; and whether anything changed."""
        changed = self._move(claim, who, session, former)
        entry = self.inside.get(who)
        if entry is not None:  # repeated: the answer was lost, or fewer units will do
            fewer = claim.units < entry.units
            entry.units = min(entry.units, claim.units)
            return entry, changed or fewer
        if not self.empty:
            rule.same_capacity(claim.name, claim.capacity, self.capacity)
        self.capacity = claim.capacity
        entry = Entry(who, session, claim.fair, claim.units, claim.ttl, at, claim.owner, claim.note, 0, delay)
        if rule.admit(claim.units, self.capacity, self.used, ahead=self._somebody_before(who), fair=claim.fair):
            self.line.pop(who, None)
            self.inside[who] = entry
            return entry, True
        if claim.queue and who not in self.line:
            self.line[who] = entry.packed()
            changed = True
        return None, changed

    def _move(self, claim: Claim, who: str, session: str, former: Container[str]) -> bool:
        """What this claim has in the book from another session of ours goes on, with another ttl; or is over with it."""
        inside = self.inside.get(who)
        if inside is not None and inside.session != session:
            if inside.session in former:
                inside.session, inside.ttl = session, claim.ttl
            else:
                del self.inside[who]
            return True
        packed = self.line.get(who)
        if packed is not None and packed[SESSION] != session:
            if packed[SESSION] in former:
                waiting = Entry.read(packed)
                waiting.session, waiting.ttl = session, claim.ttl
                self.line[who] = waiting.packed()
            else:
                del self.line[who]
            return True
        return False

    # ---- who is next, and who is in the way

    def _somebody_before(self, who: str) -> bool:
        return next(iter(self.line), who) != who

    def blocks(self, claim: Claim, who: str) -> bool:
        """Will this claim not get in as things stand?"""
        if who in self.inside or self.empty:
            return False
        fits = rule.admit(claim.units, self.capacity, self.used, ahead=self._somebody_before(who), fair=claim.fair)
        return claim.capacity != self.capacity or not fits

    def ahead_of(self, who: str, most: int) -> set[str]:
        """The sessions of those inside, and of those in line before this one: of the first `most` of them."""
        found = [entry.session for entry in self.inside.values()]
        for one, packed in self.line.items():
            if one == who or len(found) >= most:
                break
            found.append(packed[SESSION])
        return set(found[:most])

    def heir(self) -> Entry | None:
        """The head of the line, if it may enter now, or else the first who need not wait for it."""
        used = self.used
        if used >= self.capacity:
            return None
        ahead = False
        for packed in self.line.values():
            if not (ahead and is_fair(packed)):
                entry = Entry.read(packed)
                if rule.admit(entry.units, self.capacity, used, ahead=ahead, fair=entry.fair):
                    return entry
            ahead = True
        return None

    def obstacles(self, who: str) -> set[str]:
        """The sessions whose end would let this one go on: of those inside if it is at the head, else of the one before it."""
        mine = self.line.get(who)
        if mine is None or is_fair(mine):
            before = ""
            for one, packed in self.line.items():
                if one == who:
                    break
                before = packed
            if before:
                return {before[SESSION]}
        return {entry.session for entry in self.inside.values()}
