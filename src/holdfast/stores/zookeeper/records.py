"""What this process has in line or inside: what a node says about its claim, and what only we know of it."""

from __future__ import annotations

import json
from typing import NamedTuple

from ...claim import Claim
from ...drivers.base import Driver
from .line import tag_of
from .session import MARGIN, Session, Watcher

FRESH, WAITING, INSIDE = "", "w", "i"


class Record:
    """One claim of ours, from before it was sent until it is known to be gone."""

    def __init__(self, claim: Claim, session: Session, driver: Driver) -> None:
        self.claim = claim
        self.tag = tag_of(claim.holder, session.id)
        self.session = session
        self.path = ""  # "": not known, or not there
        self.token = 0  # 0: not inside
        self.units = claim.units
        self.until = 0.0  # unless it is claimed or renewed again, it is taken away then
        self.retry_at = 0.0
        self.leaving = False  # it is being taken away: nothing brings it back
        self.asked = False  # something was sent that may have made a node
        self.waiting = False
        self.lingers = False  # kept for a while after it was done with: it shall outlive the connection
        self.extras: list[str] = []  # other nodes that belong to it
        self.bell = driver.bell()
        self.watching: Watcher | None = None
        self.ring = self._rung  # one and the same object, to be found again

    def _rung(self) -> None:
        self.watching = None  # a watch fires once
        self.bell.ring()

    def unwatch(self) -> None:
        if self.watching is not None:
            self.session.unwatch(self.watching, self.ring)
            self.watching = None

    def lives(self, ttl: float) -> float:
        """How long without a renewal: what was asked for, if the server agreed to a session that long."""
        return min(ttl, self.session.seconds / MARGIN)

    def data(self, state: str, ttl: float) -> bytes:
        told = {"owner": self.claim.owner, "note": self.claim.note, "ttl": float(ttl), "state": state}
        return json.dumps(told, ensure_ascii=False).encode("utf-8", "replace")


class Told(NamedTuple):
    """What a node says of its claim, or of an eviction."""

    owner: str = "?"
    note: str = ""
    ttl: float = 0.0
    state: str = ""
    token: int = 0
    by: str = "?"


def told(data: bytes | None) -> Told:
    """Whoever may write there may have written anything: what is not as we write it, it does not say."""
    try:
        found = json.loads(data or b"")
    except (ValueError, RecursionError):
        return Told()
    said = found if isinstance(found, dict) else {}
    return Told(**{key: said[key] for key, usual in Told._field_defaults.items() if type(said.get(key)) is type(usual)})
