"""The tree, drawn: as Mermaid, for documents, and as SVG, for everything else."""

from __future__ import annotations

from html import escape
from textwrap import wrap

from .tree import ALTERNATIVE, LEAVES, LOCK, NODES, QUESTIONS, ROOT

_COLOURS = {ALTERNATIVE: ("#e3f4e3", "#2e7d32"), LOCK: ("#fff4d6", "#b26a00"), "": ("#eef2fb", "#3b5aa3")}
_REDESIGN = ("#fde3e3", "#b71c1c")


def mermaid() -> str:
    lines = ["flowchart TD"]
    for key, node in NODES.items():
        lines.append(f'    {_id(key)}{{"{QUESTIONS[node.asks].text}"}}')
        lines += [f"    {_id(key)} -->|{answer}| {_id(to)}" for answer, to in node.leads.items()]
    lines += [f'    {_id(leaf.key)}["{leaf.title}"]' for leaf in LEAVES.values()]
    for kind, name in ((ALTERNATIVE, "alternative"), (LOCK, "lock")):
        fill, stroke = _COLOURS[kind]
        lines.append(f"    classDef {name} fill:{fill},stroke:{stroke}")
        lines.append(f"    class {','.join(_id(leaf.key) for leaf in LEAVES.values() if leaf.kind == kind)} {name}")
    return "\n".join(lines) + "\n"


def _id(key: str) -> str:
    return key.replace("-", "_")


_WIDTH, _GAP, _LINE, _ROW = 190, 18, 15, 130


def svg() -> str:
    """Questions in rows, each below the last that can lead to it; ends below them all."""
    rows = _rows()
    height = _ROW * len(rows)
    width = max(len(row) for row in rows) * (_WIDTH + _GAP) + _GAP
    places: dict[str, tuple[float, float]] = {}
    for depth, row in enumerate(rows):
        left = (width - len(row) * (_WIDTH + _GAP) + _GAP) / 2
        for number, key in enumerate(row):
            places[key] = (left + number * (_WIDTH + _GAP), 20 + depth * _ROW)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        "<title>Do you need a lock?</title>",
    ]
    parts += [
        _edge(places[key], places[to], answer) for key, node in NODES.items() for answer, to in node.leads.items()
    ]
    parts += [_box(key, *place) for key, place in places.items()]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rows() -> list[list[str]]:
    depth = {ROOT: 0}
    for _ in NODES:  # the longest way decides, so that every line leads down
        for key, node in NODES.items():
            for to in node.leads.values():
                if key in depth:
                    depth[to] = max(depth.get(to, 0), depth[key] + 1)
    last = max(depth.values())
    rows: list[list[str]] = [[] for _ in range(last + 1)]
    for key, row in depth.items():
        rows[row].append(key)
    return rows


def _box(key: str, x: float, y: float) -> str:
    leaf = LEAVES.get(key)
    text = leaf.title if leaf else QUESTIONS[NODES[key].asks].text
    fill, stroke = _COLOURS.get(leaf.kind if leaf else "", _REDESIGN)
    lines = wrap(text, 32)
    height = len(lines) * _LINE + 14
    words = "".join(
        f'<text x="{x + _WIDTH / 2:.0f}" y="{y + 18 + number * _LINE:.0f}" text-anchor="middle">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    frame = f'<rect x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{height}" rx="6" fill="{fill}" stroke="{stroke}"/>'
    return frame + words


def _edge(start: tuple[float, float], end: tuple[float, float], answer: str) -> str:
    x1, y1, x2, y2 = start[0] + _WIDTH / 2, start[1] + 50, end[0] + _WIDTH / 2, end[1]
    x, y = x1 + (x2 - x1) * 0.6, y1 + (y2 - y1) * 0.6
    line = f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="#888"/>'
    return f'{line}<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" font-weight="bold">{escape(answer)}</text>'
