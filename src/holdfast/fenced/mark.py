"""What every guard shares: who presents which token, and what is said to whoever was overtaken.

Rule 1: a guard knows a resource's name and an integer, never a lock.
Rule 2: a guard records the token at its first touch, reads included, in the same atomic step as the touch.
Rule 3: lower is refused; equal is the same holder again; higher moves the mark.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..claim import valid_name
from ..errors import Misuse, StaleToken
from ..events import REFUSED, Subscriber, refusals

# The highest token that storage takes, whoever gave it out: what a signed 64-bit column keeps whole. Our own stores stop
# at claim.MAX_TOKEN, long before.
MAX_MARK = 2**63 - 1


class Fenced(Protocol):
    """Anything with a name and a token: every lease is."""

    @property
    def name(self) -> str: ...

    @property
    def token(self) -> int: ...


class Mark(NamedTuple):
    """One resource, and the token that somebody presents for it."""

    resource: str
    token: int


Ticket = Fenced | tuple[str, int]  # a lease, or (name, token)


class AnyGuard(Protocol):
    _mark: Mark


G = TypeVar("G", bound=AnyGuard)


class Guarded(Generic[G]):
    """What people hold, where the same guard serves threads and asyncio."""

    _guard: G

    def __repr__(self) -> str:
        return shown(self, self._guard._mark)


def shown(guard: object, mark: Mark, what: str = "") -> str:
    """The repr of what guards something under a mark."""
    kind = type(guard).__name__.removeprefix("Async")
    return f"<{kind}{f' {what!r}' if what else ''} under token {mark.token} of {mark.resource!r}>"


def subscribe(subscriber: Subscriber) -> Callable[[], None]:
    """Call `subscriber` with an Event of kind "refused" for every refusal in this process; returns what ends it."""
    return refusals.subscribe(subscriber, (REFUSED,))


def valid_token(token: object, most: int = MAX_MARK) -> int:
    if type(token) is not int:  # a bool is an int by inheritance only, and never a token
        raise Misuse(f"a token must be an int, not {type(token).__name__}: {token!r:.80}")
    if not 1 <= token <= most:
        shown = token if abs(token) < 10**30 else f"a number of {token.bit_length()} bits"
        raise Misuse(f"a token must be from 1 to {most}, not {shown}")
    return token


def mark_of(ticket: Ticket, most: int = MAX_MARK) -> Mark:
    """The resource and token of a lease or of a pair; `Misuse` if they cannot be one."""
    if isinstance(ticket, tuple):
        if len(ticket) != 2:
            raise Misuse(f"a pair (name, token) is wanted, not {ticket!r:.80}")
        name, token = ticket
    else:
        try:
            name, token = ticket.name, ticket.token
        except AttributeError:
            raise Misuse(
                f"a lease or a pair (name, token) is wanted, not {type(ticket).__name__}: {ticket!r:.80}"
            ) from None
    return Mark(valid_name(name, "resource name"), valid_token(token, most))


def refusal(mark: Mark, seen: int, since: float | None = None) -> StaleToken:
    """The error for a token that was overtaken, counted as it is made. Raise it."""
    when = ""
    if since is not None:
        when = time.strftime(", since %Y-%m-%d %H:%M:%S UTC", time.gmtime(since))
    message = (
        f"{mark.resource!r} has seen token {seen}{when}; the token presented is {mark.token}: somebody else was given the "
        "lock since. Nothing was changed. Stop this work: it must begin anew, with a new lease"
    )
    refusals.emit(REFUSED, mark.resource, token=mark.token, detail=f"seen {seen}")
    return StaleToken(message, mark.resource, seen, mark.token, since)
