"""Why somebody could not come in, as a person on call wants to read it."""

from __future__ import annotations

from .claim import KEPT, Claim, Snapshot, printable


def in_the_way(snapshot: Snapshot, besides: Claim | None = None) -> str:
    """Who holds it, and who is in line; not counting `besides`, who asked."""
    parts = []
    for holding in snapshot.holders[:3]:
        what = f" {holding.units} of {snapshot.capacity} units" if 1 < snapshot.capacity < 2**31 - 1 else ""
        parts.append(
            f"held by {printable(holding.owner)}{what} for {holding.age:.1f} s "
            f"({holding.left:.1f} s of its ttl left, token {holding.token}"
            f"{f'; {printable(holding.note)}' if holding.note.startswith(KEPT) else ''})"
        )
    if len(snapshot.holders) > 3:
        parts.append(f"and {len(snapshot.holders) - 3} more holders")
    waiting = [one for one in snapshot.waiters if besides is None or one.owner != besides.owner]
    if waiting:
        parts.append(f"{len(waiting)} in line, first {printable(waiting[0].owner)} since {waiting[0].age:.1f} s")
    if not parts:
        return "it has become free since"
    return "; ".join(parts)
