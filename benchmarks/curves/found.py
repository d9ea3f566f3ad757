"""What was measured: a curve is some series of points, and what its axes are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Points = Sequence[tuple[float, float]]


@dataclass
class Curve:
    key: str  # of its files
    title: str
    x: str
    y: str
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def add(self, name: str, x: float, y: float) -> None:
        self.series.setdefault(name, []).append((x, y))
