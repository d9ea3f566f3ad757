"""memory://: there is nothing to examine, and one thing to say."""

from __future__ import annotations

from collections.abc import Iterable

from .findings import Finding, Ward, warning


class MemoryWard(Ward):
    order = ("scope",)

    def scope(self) -> Iterable[Finding]:
        return [
            warning(
                "these locks are those of one process: no other one sees them, and they end with it",
                "for tests and threads; name another store for anything else",
            )
        ]


def admit(url: str) -> Ward:
    return MemoryWard()
