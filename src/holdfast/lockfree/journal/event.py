"""An event, and what is checked before anything is sent: a bad one changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...claim import valid_name
from ...errors import Conflict, Misuse
from ..coding import Coder

MAX_VERSION = 2**53 - 1
MAX_BATCH = 1000


class Event(NamedTuple):
    """What happened, once and for all."""

    stream: str
    version: int  # 1, 2, 3 …: no gap, nothing twice
    data: Any
    position: str  # where it stands among all streams; give it to `subscribe(after=…)` as it is


class Replayed(NamedTuple):
    """What the events of a stream come to, and the version of the last of them: what to expect when appending."""

    state: Any
    version: int


class EventCoder(Coder):
    """Events to text and back."""

    def texts(self, stream: str, events: Sequence[object]) -> list[str]:
        valid_name(stream, "stream")
        if not events:
            raise Misuse(f"there is nothing to append to {stream!r}")
        if len(events) > MAX_BATCH:
            raise Misuse(f"{len(events)} events at once are too many for {stream!r}: {MAX_BATCH} at most")
        return [self.text(one, f"event {number} for {stream!r}") for number, one in enumerate(events, 1)]


def valid_version(version: object, what: str) -> int:
    if type(version) is not int:
        raise Misuse(f"{what} must be an int, not {type(version).__name__}: {version!r:.80}")
    if not 0 <= version <= MAX_VERSION:
        shown = version if abs(version) < 10**30 else "a huge number"
        raise Misuse(f"{what} must be 0 (nothing yet) or more, not {shown}")
    return version


def conflict(stream: str, expected: int, found: int) -> Conflict:
    if found > expected:
        what = f"{found - expected} event{'s were' if found > expected + 1 else ' was'} appended by others meanwhile"
    else:
        what = "there never was that version"
    return Conflict(
        f"{stream!r} is at version {found}, not at {expected} as expected: {what}. Nothing was appended. Read on from "
        f"version {min(expected, found)}, decide again, and append at what you find",
        stream,
        expected,
        found,
    )
