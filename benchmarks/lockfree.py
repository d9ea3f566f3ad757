"""The alternatives to a lock, against what one would write by hand."""

from __future__ import annotations

from . import lockfree_updates_and_keys, lockfree_writers_and_events
from .measure import report


def main() -> bool:
    return report(
        "Alternatives to a lock", [*lockfree_updates_and_keys.verdicts(), *lockfree_writers_and_events.verdicts()]
    )
