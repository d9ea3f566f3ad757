"""The one rule, which is every lock there is. Pure: no clock, no I/O.

A claim asks for `units` of a name's `capacity`. It enters when nobody waits ahead of it and `used + units <= capacity`.

    lock            capacity   units
    mutex           1          1
    semaphore(n)    n          1..n
    read lock       N          1           N is EVERYBODY
    write lock      N          N
    election        1          1
"""

from __future__ import annotations

from .claim import MAX_CAPACITY, MAX_TOKEN
from .errors import Misuse, Unavailable

EVERYBODY = MAX_CAPACITY


def admit(units: int, capacity: int, used: int, *, ahead: bool, fair: bool = True) -> bool:
    """May a claim for `units` enter while `used` are taken and, if `ahead`, somebody waits before it?"""
    return used + units <= capacity and not (ahead and fair)


def same_capacity(name: str, asked: int, known: int) -> None:
    """A name remembers its capacity while it is in use: two opinions of it would be two different locks."""
    if asked != known:
        raise Misuse(
            f"{name!r} is in use with {_kind(known)}, and was now asked for with {_kind(asked)}: "
            "use one kind of lock for a name, or another name"
        )


def next_token(last: int, wall_us: int, name: str) -> int:
    """Higher than any token before, also when `last` was forgotten: then the clock is ahead of every token ever minted."""
    token = max(last + 1, wall_us)
    if token > MAX_TOKEN:
        raise Unavailable(
            f"the tokens of {name!r} are used up (the last was {last}): was the clock, or the counter, set far ahead? "
            "Tokens never wrap; move to a fresh store whose tokens your storage has not seen"
        )
    return token


def given_token(token: int, where: str) -> int:
    """A token as a server told it. None of ours gives another: 0 is nobody's, and one past the end, once it has been seen by
    fenced storage, would shut everybody else out of it."""
    if not 0 < token <= MAX_TOKEN:
        raise Unavailable(f"what answers at {where} gave the token {token}, which no store gives")
    return token


def _kind(capacity: int) -> str:
    if capacity == EVERYBODY:
        return "readers and writers"
    return f"a capacity of {capacity}"
