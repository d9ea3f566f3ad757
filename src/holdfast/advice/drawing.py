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


_WIDTH, _GAP, _LINE, _ROW, _MARGIN = 190, 18, 15, 130, 20
_WRAP = 29  # characters that fit into a box
_BAR = 82  # below a row's upper edge: where lines turn sideways, under the tallest box

# Which column each place stands in, so that no line crosses another, nor a box. Rows come by themselves.
_COLUMN = {
    "idempotent": 1.5, "idempotency": 1, "conflicts": 2, "check": 1, "shard": 3, "optimistic": 1, "goal": 2, "history": 4,
    "check-again": 1, "simple-lock": 2, "one-process": 4, "journal": 5, "fencing": 0, "ttl": 1, "partition": 3, "mailbox": 4,
    "careful-lock": 1, "redesign": 2,
}  # fmt: skip


def svg() -> str:
    """Questions in rows, each below the last that can lead to it; every end below what leads to it."""
    rows = _rows()
    last = max(_height(key) for key in rows[-1])
    width = (max(_COLUMN.values()) + 1) * (_WIDTH + _GAP) - _GAP + 2 * _MARGIN
    height = _ROW * (len(rows) - 1) + last + 2 * _MARGIN
    places = {
        key: (_MARGIN + _COLUMN[key] * (_WIDTH + _GAP), float(_MARGIN + depth * _ROW))
        for depth, row in enumerate(rows)
        for key in row
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="11">',
        "<title>Do you need a lock?</title>",
        '<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#777"/></marker></defs>',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for row in rows:
        for number, key in enumerate(sorted((key for key in row if key in NODES), key=_COLUMN.__getitem__)):
            # Two that lead to one place do not share a bar: one could not see which answer belongs to which.
            parts += _edges(key, places, _BAR + 16 * number)
    parts += [_box(key, *place) for key, place in places.items()]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _rows() -> list[list[str]]:
    depth = {ROOT: 0}
    for _ in NODES:  # the longest way decides, so that every line leads down
        for key, node in NODES.items():
            for to in node.leads.values():
                if key in depth:
                    depth[to] = max(depth.get(to, 0), depth[key] + 1)
    rows: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    for key, row in depth.items():
        rows[row].append(key)
    return rows


def _lines(key: str) -> list[str]:
    return wrap(LEAVES[key].title if key in LEAVES else QUESTIONS[NODES[key].asks].text, _WRAP)


def _height(key: str) -> int:
    return len(_lines(key)) * _LINE + 14


def _box(key: str, x: float, y: float) -> str:
    fill, stroke = _COLOURS.get(LEAVES[key].kind if key in LEAVES else "", _REDESIGN)
    words = "".join(
        f'<text x="{x + _WIDTH / 2:.0f}" y="{y + 18 + number * _LINE:.0f}" text-anchor="middle">{escape(line)}</text>'
        for number, line in enumerate(_lines(key))
    )
    box = f'x="{x:.0f}" y="{y:.0f}" width="{_WIDTH}" height="{_height(key)}"'
    return f'<rect {box} rx="6" fill="{fill}" stroke="{stroke}"/>{words}'


def _edges(key: str, places: dict[str, tuple[float, float]], below: float) -> list[str]:
    """Down, sideways, down; answers that lead to one place share a line."""
    x, y = places[key][0] + _WIDTH / 2, places[key][1]
    answers: dict[str, list[str]] = {}
    for answer, to in NODES[key].leads.items():
        answers.setdefault(to, []).append(answer)
    lines, words = [], []
    for to, said in answers.items():
        end, bar = places[to][0] + _WIDTH / 2, y + below
        points = f"{x:.0f},{y + _height(key):.0f} {x:.0f},{bar:.0f} {end:.0f},{bar:.0f} {end:.0f},{places[to][1]:.0f}"
        lines.append(f'<polyline points="{points}" fill="none" stroke="#777" marker-end="url(#tip)"/>')
        level = bar + (20 if x == end else 4)  # straight down: below the bar, where no other line comes
        at = f'x="{(x + end) / 2:.0f}" y="{level:.0f}" text-anchor="middle" font-weight="bold"'
        text = escape(" or ".join(said))
        words.append(f'<text {at} stroke="white" stroke-width="6">{text}</text><text {at}>{text}</text>')
    return lines + words
