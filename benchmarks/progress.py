"""How far it is, on a terminal: a bar by the seconds that each part is known to take."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping

_WIDTH = 30


def through(parts: Mapping[str, float]) -> Iterator[str]:
    """The parts, one after the other; what is left is told on stderr before each."""
    whole, done, begun = sum(parts.values()), 0.0, time.monotonic()
    for name, seconds in parts.items():
        full = int(_WIDTH * done / whole)
        passed = time.monotonic() - begun
        left = passed / done * (whole - done) if done else whole
        bar = "█" * full + "░" * (_WIDTH - full)
        print(f"{bar} {passed / 60:4.1f} min, about {left / 60:.1f} left: {name}", file=sys.stderr, flush=True)
        yield name
        done += seconds
