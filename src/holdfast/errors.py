"""What can go wrong, as a tree.

    HoldfastError
    ├── NotAcquired    (also TimeoutError)     waited its time, or tried once, and did not get in
    ├── LeaseLost                              was inside, and no longer is
    ├── StaleToken                             fenced storage has seen a newer token
    ├── Conflict                               others changed it between every read and write; nothing was written
    ├── Missing        (also LookupError)      there is no such row
    ├── InFlight                               the same idempotency key is being worked on at this moment
    ├── NotOwner                               the key belongs to another worker now
    ├── MailboxFull    (also TimeoutError)     the mailbox takes no more messages, or not in time
    ├── GaveUp                                 the actor failed too often, and is not restarted any more
    ├── Unavailable    (also ConnectionError)  the store cannot be reached, or does not answer in time
    ├── Unsupported                            this store cannot give what was asked for
    ├── Unstorable     (also ValueError)       a result that cannot be kept: no JSON, or too large
    └── Misuse         (also ValueError)       the call itself is wrong; nothing was done
        ├── NotInstalled (also ImportError)    a package is missing that this store, or this part of holdfast, needs
        └── KeyReused                          an idempotency key came again with another payload

A message names the lock, who holds it, for how long, and what to do: it is written for the person on call.
Every error can be pickled, so that it crosses process pools whole.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .claim import Snapshot


class HoldfastError(Exception):
    """Whatever holdfast raises on purpose."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(on_one_line(one) if isinstance(one, str) else one for one in args))


def on_one_line(text: str) -> str:
    """A message may cite what a server said, and ends up in logs and on terminals: no forged line, no escape sequence."""
    if text.isprintable():
        return text
    line = " ".join(one.strip() for one in text.splitlines())
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)


class NotAcquired(HoldfastError, TimeoutError):
    """The lock was not to be had in the time given.

    `message`: in words. `name`: of the lock. `snapshot`: who was in the way, where that could be found out.
    """

    def __init__(self, message: str, name: str = "", snapshot: Snapshot | None = None) -> None:
        super().__init__(message)
        self.name = name
        self.snapshot = snapshot


class LeaseLost(HoldfastError):
    """The lease ran out, was taken away, or belongs to another process: stop, and do not write.

    `message`: in words. `name`: of the lock. `token`: of the lease that is lost.
    """

    def __init__(self, message: str, name: str = "", token: int = 0) -> None:
        super().__init__(message)
        self.name = name
        self.token = token


class StaleToken(HoldfastError):
    """Fenced storage has seen a newer token: somebody else was given the lock since.

    `message`: in words. `resource`: what was to be written. `seen`: the newest token there. `presented`: the one that
    came. `since`: when `seen` was first seen, in Unix seconds by the storage's clock; None where it keeps none.
    """

    def __init__(
        self, message: str, resource: str = "", seen: int = 0, presented: int = 0, since: float | None = None
    ) -> None:
        super().__init__(message)
        self.resource = resource
        self.seen = seen
        self.presented = presented
        self.since = since


class Conflict(HoldfastError):
    """Somebody else wrote first. Nothing was changed: read again, decide again.

    `expected` is the version that was counted on and `found` the one that was there; `seen` has those of all attempts.
    """

    def __init__(
        self,
        message: str,
        resource: str = "",
        expected: object = None,
        found: object = None,
        seen: tuple[object, ...] = (),
    ) -> None:
        super().__init__(message)
        self.resource = resource
        self.expected = expected
        self.found = found
        self.seen = seen


class Missing(HoldfastError, LookupError):
    """There is no such row to update: insert it first, with a version."""


class InFlight(HoldfastError):
    """Somebody is at work under this idempotency key; in `left` seconds at the latest it is done, or taken over."""

    def __init__(self, message: str, key: str = "", left: float = 0.0) -> None:
        super().__init__(message)
        self.key = key
        self.left = left


class NotOwner(HoldfastError):
    """This worker does not own the key's partition, or is giving it up: hand the work to `owner`."""

    def __init__(self, message: str, key: str = "", owner: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.owner = owner


class MailboxFull(HoldfastError, TimeoutError):
    """The mailbox was full for as long as the sender would wait. The message was not taken."""


class GaveUp(HoldfastError):
    """The actor failed too often in too short a time. Its messages are refused until it is revived."""


class Unavailable(HoldfastError, ConnectionError):
    """The store did not answer. What became of the request is unknown; nothing is extended on the strength of it."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class Unsupported(HoldfastError):
    """This store cannot give what was asked for; its traits say what it can."""


class Misuse(HoldfastError, ValueError):
    """The call is wrong. Nothing was sent and nothing changed."""


class NotInstalled(Misuse, ImportError):
    """A package is missing. The message says which, and how to install it."""


class KeyReused(Misuse):
    """The idempotency key was used before, with another payload: two different requests must not share a key."""


class Unstorable(HoldfastError, ValueError):
    """A result that cannot be kept. `result` is what the work gave, if it was done and its effect stands."""

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), None)  # whatever could not be written down is not likely to be pickled
