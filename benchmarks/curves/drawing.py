"""A curve as SVG: both axes by powers of ten (or of two), a line per series, its name at its end. Light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from .found import Curve, Points

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 400, 70, 170, 44, 48
# Told apart without red against green; the dashes tell them apart in print.
_COLOURS = ("#3b6fb6", "#c7502e", "#2f8f83", "#9a7b1f", "#7a5ab5", "#b5567a", "#4d7f2a", "#777777", "#1f9bc4")
_DASHES = ("", "6 3", "2 3", "9 3 2 3")
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.title{font-weight:600;font-size:14px}.grid{stroke:#8883}.axis{stroke:#888}"
    ".tick{font-size:11px}.end{font-size:11px}polyline{fill:none;stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}}"
)


def picture(curve: Curve) -> str:
    shown = {name: [(x, y) for x, y in points if y > 0] for name, points in curve.series.items()}
    every = [point for points in shown.values() for point in points]
    across = _scale([x for x, _ in every], _LEFT, _WIDTH - _RIGHT)
    up = _scale([y for _, y in every], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(curve.title)}">',
        f"<style>{_STYLE}</style>",
        f'<text class="title" x="{_LEFT}" y="20">{escape(curve.title)}</text>',
        f'<text x="{_LEFT}" y="36">{escape(curve.y)}</text>',
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(curve.x)}</text>',
        *_grid(sorted({x for x, _ in every}), _powers([y for _, y in every]), across, up),
    ]
    ends: list[float] = []
    # From the top to the bottom, so that names which would lie upon each other are pushed down in that order.
    for number, name in sorted(enumerate(shown), key=lambda one: up(shown[one[1]][-1][1]) if shown[one[1]] else 0):
        if points := shown[name]:
            parts += _line(name, points, number, across, up, ends)
    return "\n".join([*parts, "</svg>", ""])


def _scale(values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
    low, high = math.log(min(values)), math.log(max(values))
    if high - low < 0.1:
        low, high = low - 0.5, high + 0.5

    def place(value: float) -> float:
        return start + (math.log(value) - low) / (high - low) * (end - start)

    return place


def _powers(values: Sequence[float]) -> list[float]:
    """The powers of ten inside, with twos and fives between them where there are few."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    steps = (1, 2, 5) if high - low < 3 else (1,)
    found = [step * 10.0**power for power in range(low, high + 1) for step in steps]
    return [one for one in found if min(values) <= one <= max(values)]


def _grid(
    xs: Sequence[float], ys: Sequence[float], across: Callable[[float], float], up: Callable[[float], float]
) -> list[str]:
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = [
        f'<line class="axis" x1="{_LEFT}" y1="{bottom}" x2="{right}" y2="{bottom}"/>',
        *(
            f'<text class="tick" x="{across(x):.1f}" y="{bottom + 16}" text-anchor="middle">{_said(x)}</text>'
            for x in xs
        ),
    ]
    for y in ys:
        parts.append(f'<line class="grid" x1="{_LEFT}" y1="{up(y):.1f}" x2="{right}" y2="{up(y):.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{up(y) + 4:.1f}" text-anchor="end">{_said(y)}</text>')
    return parts


def _line(
    name: str,
    points: Points,
    number: int,
    across: Callable[[float], float],
    up: Callable[[float], float],
    ends: list[float],
) -> list[str]:
    colour, dash = _COLOURS[number % len(_COLOURS)], _DASHES[number // len(_COLOURS) % len(_DASHES)]
    path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
    last_x, last_y = points[-1]
    at = max(up(last_y) + 4, ends[-1] + 13) if ends else up(last_y) + 4
    ends.append(at)
    dots = [
        f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}">'
        f"<title>{escape(name)}, {_said(x)}: {_said(y)}</title></circle>"
        for x, y in points
    ]
    return [
        f'<polyline points="{path}" stroke="{colour}" stroke-dasharray="{dash}"/>',
        *dots,
        f'<line x1="{across(last_x) + 5:.1f}" y1="{up(last_y):.1f}" x2="{_WIDTH - _RIGHT + 12}" y2="{at - 4:.1f}" '
        f'stroke="{colour}" stroke-width="0.7"/>',
        f'<text class="end" x="{_WIDTH - _RIGHT + 16}" y="{at:.1f}" style="fill:{colour}">{escape(name)}</text>',
    ]


def _said(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def table(curve: Curve) -> str:
    """The same as a table, for who cannot see it or wants the numbers."""
    xs = sorted({x for points in curve.series.values() for x, _ in points})
    series: Mapping[str, dict[float, float]] = {name: dict(points) for name, points in curve.series.items()}
    lines = [
        f"| {curve.x} | " + " | ".join(_said(x) for x in xs) + " |",
        "|" + "---|" * (len(xs) + 1),
        *(
            f"| {name} | " + " | ".join(_said(points[x]) if x in points else "" for x in xs) + " |"
            for name, points in series.items()
        ),
    ]
    return "\n".join(lines)
