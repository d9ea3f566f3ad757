"""A session: one lease of etcd that all claims of (about) one ttl share, and how long it is known to live.

Rule 1: it counts from before the question was sent.
Rule 2: a keep-alive alone proves nothing. etcd's leader answers it from its own memory, and one that was deposed without
        noticing (paused, cut off) answers as well. It counts only together with something that needs the quorum (a
        transaction, a linearizable read) and was answered in the same term of office: then no other leader can have been
        elected before it, and a later one gives every lease its full time anew.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple


class Asked(NamedTuple):
    """A keep-alive that was answered, but not yet confirmed."""

    at: float
    term: int


class Session:
    __slots__ = ("asked", "doubtful", "lease", "length", "live_until")

    def __init__(self, lease: int, length: float, sent: float) -> None:
        self.lease = lease
        self.length = length
        self.live_until = sent + length
        self.asked: Asked | None = None
        self.doubtful = False  # a claim of ours may have arrived that we do not know of

    def covers(self, until: float) -> bool:
        """Will it live so long, if what was answered is confirmed?"""
        asked = self.asked
        return self.live_until >= until or (asked is not None and asked.at + self.length >= until)

    def kept(self, sent: float, term: int) -> None:
        self.asked = Asked(sent, term)

    def confirm(self, term: int) -> None:
        """The quorum has spoken, in this term."""
        asked, self.asked = self.asked, None
        if asked is not None and asked.term == term:
            self.live_until = max(self.live_until, asked.at + self.length)


def length_for(ttl: float) -> int:
    """Whole seconds, as etcd counts, and one more: for so long after a keep-alive, new claims need none of their own."""
    return math.ceil(ttl) + 1


def new_lease_id() -> int:
    """Our own, and unguessable: whoever knows it may keep the lease alive, or, if it may write our keys, end it."""
    return int.from_bytes(os.urandom(8), "big") >> 2 | 1
