"""What a key's entry means for whoever comes with it: pure, no clock, no I/O."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Entry(NamedTuple):
    """What a store keeps of a key, as it was when the store answered."""

    token: int  # rises with every run of the key; the result of an older one is refused
    runner: str  # who runs or ran it: a nonce, new for every call
    payload: str | None  # fingerprint
    done: bool
    left: float | None  # seconds until a run may be taken over, or a result is forgotten; None: the store did not say
    result: bytes | None
    flaw: str | None  # why there is no result though it is done


RUNNING, KEPT, FLAWED = 0, 1, 2  # as stores write it down


def entry_of(
    token: int, runner: str, payload: str | None, done: int, left: float | None, kept: bytes | memoryview | None
) -> Entry:
    """From what stores write down: one field has the result, or says why there is none."""
    data = bytes(kept) if kept is not None else b""
    if done == RUNNING:
        return Entry(token, runner, payload, False, left, None, None)
    if done == FLAWED:
        return Entry(token, runner, payload, True, left, None, data.decode())
    return Entry(token, runner, payload, True, left, data, None)


class Verdict(Enum):
    FREE = "nobody runs it, or whoever did is dead: claim it"
    DONE = "there is a result"
    RUNNING = "somebody is at it"
    REUSED = "another payload came with this key"


def judge(entry: Entry | None, payload: str | None) -> Verdict:
    if entry is None:
        return Verdict.FREE
    over = entry.left is not None and entry.left <= 0
    if entry.done and over:
        return Verdict.FREE  # forgotten, and the payload with it
    if entry.payload != payload:
        return Verdict.REUSED  # also of a run that died: what it has half done, another payload must not finish
    if entry.done:
        return Verdict.DONE
    return Verdict.FREE if over or entry.left is None else Verdict.RUNNING
