"""What a format of another library's locks has to do: take, keep and give back one mutex. It knows no tokens and no line."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ...claim import Claim
from ...errors import Misuse, Unavailable

Kept = float | Unavailable  # of a renewal: kept for so many seconds from before it was sent, lost (0), or unknown


class Old(Protocol):
    """Every method is one bounded conversation; it raises Unavailable when that fails. Repeating is harmless."""

    @property
    def whose(self) -> str:
        """As people know it: "redis-py"."""
        ...

    @property
    def mutexes_only(self) -> bool:
        """Are there no semaphores, readers and writers?"""
        ...

    async def take(self, claim: Claim, within: float) -> float:
        """It is ours for so many seconds, counted from before it was sent. 0: somebody else has it."""
        ...

    async def keep(self, claims: Sequence[Claim], within: float) -> Sequence[Kept]: ...

    async def give_back(self, claim: Claim, within: float) -> None: ...

    async def is_taken(self, name: str, within: float) -> bool:
        """By anybody."""
        ...

    def forked(self) -> None: ...

    async def close(self, within: float) -> None:
        """Hang up; in at most `within` seconds."""
        ...


class Names(NamedTuple):
    """How the old code calls what has a name here."""

    pattern: str

    def of(self, name: str) -> str:
        return self.pattern.replace("{name}", name)

    def checked(self) -> Names:
        if "{name}" not in self.pattern:
            raise Misuse(f"also=…?as={self.pattern}: write {{name}} where the name of the lock goes")
        return self


def mark(holder: str) -> str:
    """What stands in the old lock: derived from our secret, since everybody who sees the old lock can read it there."""
    return hashlib.sha256(b"also:" + holder.encode()).hexdigest()[:32]
