"""Curves instead of points: `python -m benchmarks curves [--stores redis,etcd]` draws what docs/scale.md shows.

Into a folder (build/curves, or where --into says): a picture per curve, and curves.json with all the points.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ..where import STORES
from . import holding, line, processes, recovery
from .drawing import picture, table
from .found import Curve

FAMILIES = {"processes": processes, "line": line, "leases": holding, "recovery": recovery}
INTO = Path("build", "curves")


def main(stores: Sequence[str] = (), families: Sequence[str] = (), into: Path = INTO) -> bool:
    into.mkdir(parents=True, exist_ok=True)
    kept = into / "curves.json"
    known = json.loads(kept.read_text()) if kept.exists() else {}
    begun = time.monotonic()

    def tell(what: str) -> None:
        print(
            f"\r\x1b[K{time.monotonic() - begun:5.0f} s  {what}",
            end="" if sys.stderr.isatty() else "\n",
            file=sys.stderr,
        )

    for name in families or FAMILIES:
        family = FAMILIES[name]
        for curve in family.curves(tuple(stores) or getattr(family, "STORES", STORES), tell):
            # What was measured of other stores, at other times, stays.
            curve.series = {
                **{
                    name: list(map(tuple, points))
                    for name, points in known.get(curve.key, {}).get("series", {}).items()
                },
                **curve.series,
            }
            known[curve.key] = vars(curve) | {"machine": f"{platform.machine()}, Python {platform.python_version()}"}
            (into / f"{curve.key}.svg").write_text(picture(curve))
            kept.write_text(json.dumps(known, indent=1))
            print(f"\n{curve.title} ({curve.y})\n{table(curve)}", flush=True)
    return True


def shown(key: str, file: Path) -> Curve:
    """A curve that was measured before."""
    found = json.loads(file.read_text())[key]
    return Curve(key, found["title"], found["x"], found["y"], found["series"])
