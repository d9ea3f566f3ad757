"""What a backend writes. Everything else (waiting, renewing, recipes, both surfaces) comes with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..claim import LAST_WORDS, ROUND, Claim, Grant, Place, Snapshot, Traits, Verdict


class Store(Protocol):
    """One backend. Every method is one bounded conversation; it raises Unavailable when that fails.

    A store whose locks live with a connection may also have `tell_losses_to(listener)`: it then calls `listener(holder, why)`,
    from any thread, when it learns of a loss before any renewal does.

    A store that repeats a claim by itself, since its connection broke, has `tell_repeats_to(listener)`: it then calls
    `listener(holder)`, from any thread, before it asks again. For the first one may arrive after everything else, and would stay.

    A store that can tell a holder of who waits, which is what `keep=` needs, has `async wanted(grant, timeout) -> bool`: until
    somebody may be waiting for what this grant holds (True), or `timeout` (False). Early is fine, never is not: it listens first,
    then looks whether somebody has come before, then waits. `wake_waiters` ends it. Nobody who does not use it pays for it.

    A store that can tell has `reached`: False, as long as it has never in its life been let in by a server. Then nothing of it
    can be anywhere, so nothing has to be taken back, and whoever ends does not wait for a server that is not there.

    A store that can send a release without waiting for its answer, in less time than it takes to have somebody else wait, has
    `post(claim, answered) -> bool`: see leaving.Posting.
    """

    @property
    def traits(self) -> Traits:
        """What it promises, and what it does not."""
        ...

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        """Enter, or join the line. Takes at most `within` seconds, connecting and trying again included.

        Repeating is harmless: a claim that is inside gets the same token again and a fresh ttl; if it now asks for fewer
        units, it keeps only those. One that is in line keeps its place, and its place lives another ttl.
        """
        ...

    async def wait(self, place: Place, timeout: float) -> None:
        """Until the line may have moved, or `timeout`. Early is fine, never is not."""
        ...

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        """All at once, in at most `within` seconds, over connections that nobody else can block; a verdict for each.

        The grant: kept. None: lost, and the store knows it. Unavailable: unknown, because the node, connection or row that
        this one hangs on did not answer in time; others are not touched by that. Raises only if nobody could be asked.
        """
        ...

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        """Leave, whether inside or in line; and ring for whoever may now enter. False: it was not there.

        Repeating is harmless. Takes at most `within` seconds.
        """
        ...

    async def watch(self, name: str, token: int, timeout: float) -> None:
        """Until the newest token inside `name` may differ from `token` (0: nobody inside), or `timeout`."""
        ...

    async def evict(self, name: str, token: int, by: str) -> int | None:
        """Put out whoever holds `token`, mint a token past it, remember who did it. None: no such grant."""
        ...

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot: ...

    async def names(self, prefix: str = "") -> Sequence[str]:
        """The names that are held or waited for."""
        ...

    def wake_waiters(self) -> None:
        """End every `wait` and `watch` of this process that is under way: the connection is being closed. From any thread."""
        ...

    def forked(self) -> None:
        """In a forked child: let go of what was inherited, without a word to the server, and start afresh on next use."""
        ...

    async def close(self, within: float = LAST_WORDS) -> None:
        """Hang up; before that, in at most `within` seconds, a last word to the servers, if there is one to be said."""
        ...
