"""One line of a book: somebody inside, or in line.

Packed, it begins with who it is, its session and whether it waits its turn, always in the same places: these can be
told without reading the rest.
"""

from __future__ import annotations

import json
from typing import Any

WHO = slice(2, 22)  # ["<who: 20>","<session: 36>",1,
SESSION = slice(25, 61)
_FAIR = 63


class Entry:
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
        who, session, fair, *rest = json.loads(packed)
        return cls(who, session, bool(fair), *rest)

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
