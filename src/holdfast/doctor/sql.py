"""What is asked of PostgreSQL and of MySQL alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .findings import Finding, Ward, ok, warning
from .network import clocks, compare

MATTERS = "leases end by the server's clock, and after a failover to one that lags, tokens may be refused for that long"
_CROWDED = 0.9


class SqlWard(Ward):
    now: str  # in SQL: seconds since 1970

    @property
    def where(self) -> str:
        raise NotImplementedError

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        raise NotImplementedError

    def clock(self) -> Iterator[Finding]:
        return clocks([(self.where, compare(lambda: float(self.ask(self.now)[0][0])))], MATTERS)


def crowd(used: int, most: int, advice: str) -> Finding:
    said = f"{used} of {most} connections are in use"
    return warning(said, advice) if used > most * _CROWDED else ok(said)
