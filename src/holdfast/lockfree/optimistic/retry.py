"""Try, and when somebody else was first, try again: a bounded number of times, after a pause with full jitter."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

from ...errors import Conflict, Misuse

T = TypeVar("T")

MAX_VERSION = 2**63 - 1

Absent = Literal["absent"]
ABSENT: Absent = "absent"  # what to expect where there is nothing yet: `Conflict` if there is something


@dataclass(frozen=True)
class Retry:
    """How often, and how long in between: before attempt n + 2, anything from 0 to `min(longest, first * 2**n)` seconds.

    >>> Retry(attempts=6, first=0.01, longest=0.05).ceilings()
    [0.01, 0.02, 0.04, 0.05, 0.05]
    """

    attempts: int = 10
    first: float = 0.005
    longest: float = 0.5

    def __post_init__(self) -> None:
        if type(self.attempts) is not int or self.attempts < 1:
            raise Misuse(f"attempts must be a whole number from 1, not {self.attempts!r:.80}")
        for name in ("first", "longest"):
            seconds = getattr(self, name)
            if type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
                raise Misuse(f"{name} must be a number of seconds from 0, not {seconds!r:.80}")

    def ceilings(self) -> list[float]:
        """The longest that each pause may be; the pause itself is drawn from 0 up to it, so that no two stay in step."""
        return [self.ceiling(pause) for pause in range(self.attempts - 1)]

    def ceiling(self, pause: int) -> float:
        # 2**1000 is more than a float holds; long before that, the longest counts.
        return min(self.longest, self.first * 2.0 ** min(pause, 500))


USUAL = Retry()
ONCE = Retry(attempts=1)


class Attempt(NamedTuple, Generic[T]):
    """What came of one: the version, or versions, that were read; and whether the write found them unchanged."""

    seen: object
    written: bool
    value: T


class Pauses(Protocol):
    """Of a driver, what waiting takes."""

    def uniform(self, low: float, high: float) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


async def persist(
    driver: Pauses, retry: Retry, what: object, attempt: Callable[[], Coroutine[Any, Any, Attempt[T]]]
) -> T:
    """The one loop of all optimistic updates. `Conflict`, with the versions seen, if no attempt was written."""
    done = await attempt()  # nearly always this is all
    if done.written:
        return done.value
    seen = [done.seen]
    for pause in range(retry.attempts - 1):
        await driver.sleep(driver.uniform(0.0, retry.ceiling(pause)))
        done = await attempt()
        if done.written:
            return done.value
        seen.append(done.seen)
    raise Conflict(_told(str(what), seen), str(what), seen=tuple(seen))


def _told(what: str, seen: list[object]) -> str:
    shown = ", ".join(map(str, seen[-5:]))
    if len(seen) == 1:
        return f"{what} was changed by somebody else since its version {shown} was read. Nothing was written: read it again"
    return (
        f"{what} was changed by others during each of {len(seen)} attempts (versions seen: "
        f"{'…, ' if len(seen) > 5 else ''}{shown}). Nothing was written. If this happens often, many write to it at once: "
        "allow more attempts, divide the work, or take a lock"
    )


def valid_version(version: object, what: object) -> int:
    """A version as it was read or given: a whole number from 0. `what` is put into words only if it has to be."""
    if type(version) is not int:
        raise Misuse(
            f"the version of {what} must be an integer from 0, not {version!r:.80}: give the row one, such as 0, "
            "or name the column with version="
        )
    if not 0 <= version < MAX_VERSION:
        raise Misuse(f"the version of {what} must be from 0 to {MAX_VERSION - 1}, not {version}: who writes to it?")
    return version


def valid_expected(expected: object, what: object) -> int | Absent | None:
    if expected == ABSENT:
        return ABSENT
    return None if expected is None else valid_version(expected, what)


def retry_of(retry: Retry | None, expected: object) -> Retry:
    if expected is not None:
        return ONCE  # whoever knows which version he changes has nothing to read anew
    return USUAL if retry is None else retry


def outdated(what: str, expected: object, seen: object) -> Conflict:
    found = "there already" if expected == ABSENT else f"not at {expected} any more"
    return Conflict(f"{what} is at version {seen}, {found}. Nothing was written", what, expected, seen, (seen,))
