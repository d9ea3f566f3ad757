"""What a service answers when a lock is not to be had: a status, a sentence and Retry-After. Strangers need know no more."""

from __future__ import annotations

import math
from typing import NamedTuple

from ..decorating import Unnameable
from ..errors import LeaseLost, Misuse, NotAcquired, Unavailable

BAD = 400
CONFLICT = 409
LOCKED = 423
AWAY = 503
Answered = NotAcquired | Unavailable | LeaseLost | Unnameable
ANSWERED = (NotAcquired, Unavailable, LeaseLost, Unnameable)


class Answer(NamedTuple):
    """Of an HTTP service. Who holds the lock is not said: that is for the log."""

    status: int
    detail: str
    headers: dict[str, str]


def answer(error: Answered, status: int = CONFLICT) -> Answer:
    """`status` is for a lock that somebody else has: 409 or 423."""
    if isinstance(error, NotAcquired):
        return Answer(status, f"{error.name} is in use", {"Retry-After": str(_left(error))})
    if isinstance(error, LeaseLost):
        return Answer(AWAY, f"{error.name} was lost in the middle of the request", {"Retry-After": "1"})
    if isinstance(error, Unnameable):
        return Answer(BAD, f"what was sent makes no name: {error}", {})
    return Answer(AWAY, "the lock service does not answer", {"Retry-After": "1"})


def valid_status(status: int) -> int:
    if status not in (CONFLICT, LOCKED):
        raise Misuse(f"a lock that is in use is answered with 409 (Conflict) or 423 (Locked), not with {status!r:.80}")
    return status


def _left(error: NotAcquired) -> int:
    """Whole seconds after which the lock may be free even if its holder died: what is left of the shortest grant."""
    holders = error.snapshot.holders if error.snapshot else ()
    return max(1, math.ceil(min((one.left for one in holders), default=1.0)))
