"""The alternatives to a lock, against what one would write by hand."""

from __future__ import annotations

from . import lockfree_a, lockfree_b
from .measure import report


def main() -> bool:
    return report("Alternatives to a lock", [*lockfree_a.verdicts(), *lockfree_b.verdicts()])
