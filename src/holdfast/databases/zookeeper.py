"""kazoo's transactions."""

from __future__ import annotations

from typing import Any

_ROLLED_BACK = ("RolledBackError", "RuntimeInconsistency")


def cause_of(results: list[Any]) -> Exception | None:
    """Why a transaction of kazoo failed, by the results of its operations; None if it did not."""
    failed = [one for one in results if isinstance(one, Exception)]
    # Those that did not fail themselves say only that they were rolled back.
    return next((one for one in failed if type(one).__name__ not in _ROLLED_BACK), failed[0] if failed else None)
