"""What processes tell of themselves (observe=["dashboard"]): checked as what strangers say, bounded, and made into history."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import Any

from .. import events
from ..claim import MAX_NAME_BYTES, MAX_TOKEN, printable
from ..errors import Misuse
from ..observe.changes import Change

MOST_BODY = 512 * 1024
MOST_A_SECOND = 1000
_OVER = {events.RELEASED: "", events.LOST: "lost", events.DROPPED: "dropped"}
_SEEN_BY_LOOKING = ("acquired", "over")
_REMEMBERED = 20_000
_LONGEST = 1e10  # seconds


class News:
    """Says of each event whether it is news: looking at the store may have seen it already, or will see it yet."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str, str, int], None] = OrderedDict()

    def fresh(self, store: str, some: list[Change]) -> list[Change]:
        """Those that were not told before; what has no token cannot be compared, and always is news."""
        found = []
        for one in some:
            key = (store, one.event, one.name, one.token)
            if one.event in _SEEN_BY_LOOKING and one.token:
                if key in self._known:
                    continue
                self._known[key] = None
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            found.append(one)
        return found


class Bound:
    """So many in a second, and no more."""

    def __init__(self) -> None:
        self._second = self._taken = 0

    def take(self, number: int) -> int:
        """How many of these may still be taken in this second."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._taken = second, 0
        may = max(0, min(number, MOST_A_SECOND - self._taken))
        self._taken += may
        return may


def changes(said: object) -> list[tuple[str, Change]]:
    """(system, change) of what was sent, or Misuse."""
    if not isinstance(said, list):
        raise Misuse("events are a list")
    return [found for one in said for found in _one(one)]


def _one(said: Any) -> list[tuple[str, Change]]:
    if not isinstance(said, dict):
        raise Misuse("an event is an object")
    kind, name, owner, detail, system = (_text(said, key) for key in ("kind", "name", "owner", "detail", "system"))
    token: Any = said.get("token")
    seconds: Any = said.get("seconds")
    if kind not in events.KINDS or len(name.encode()) > MAX_NAME_BYTES:
        raise Misuse("an event has a kind that is known, and the name of a lock")
    if type(token) is not int or not 0 <= token <= MAX_TOKEN:
        raise Misuse("an event has a token")
    if type(seconds) not in (int, float) or not 0 <= seconds <= _LONGEST:
        raise Misuse("an event has seconds")
    where, who, why = printable(system, 40), printable(owner), printable(detail)
    if kind == events.ACQUIRED:
        return [(where, Change("acquired", name, who, token, 0.0, why))]
    told = [(where, Change(kind, name, who, token, seconds, why))] if kind != events.RELEASED else []
    if kind in _OVER and seconds > 0:  # else it is not known how long it was held
        told.append((where, Change("over", name, who, token, seconds, _OVER[kind])))
    return told


def _text(said: dict[str, Any], key: str) -> str:
    text = said.get(key)
    if not isinstance(text, str) or any(
        "\ud800" <= letter <= "\udfff" for letter in text
    ):  # half a character fits no file
        raise Misuse(f"an event has a text for {key}")
    return text
