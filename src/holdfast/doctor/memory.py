"""memory://: there is nothing to examine, and one thing to say."""

from __future__ import annotations

from collections.abc import Iterable

from .findings import Check, Ward, warning


class MemoryWard:
    def checks(self) -> Iterable[tuple[str, Check]]:
        alone = warning(
            "these locks are those of one process: no other one sees them, and they end with it",
            "for tests and threads; name another store for anything else",
        )
        return (("scope", lambda: [alone]),)

    def close(self) -> None:
        return


def admit(url: str) -> Ward:
    return MemoryWard()
