"""Pictures of a run, as SVG: who held what while which fault lasted, and how long people waited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Any

from ..testing.history import ACQUIRE, CHECK, CRASHED, GRANTED, RELEASE, STALE, WRITE, History, Operation
from .checkers import histogram
from .nemesis import FAULT, lasted

Position = Callable[[float], float]  # of a moment, from the left

WINDOW = 60.0  # seconds that a timeline shows: the last ones of a longer run
_WIDTH, _LEFT, _LANE = 1100, 90, 22
_KINDS = {"mutex": "#3b6fb6", "reentrant": "#7a5ab5", "rwlock": "#2f8f83", "semaphore": "#9a7b1f", "all_of": "#b5567a"}
_EDGES = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]


def timeline(history: History, about: dict[str, Any]) -> str:
    """A lane for the faults, then one for every worker: bars are holds, by kind; red marks are writes that were refused."""
    end: float = max((one.invoked for one in history.operations), default=about["healed"])
    since: float = max(about["begun"], end - WINDOW)
    workers = sorted(
        {one.process for one in history.operations if one.invoked >= since}, key=lambda one: (len(one), one)
    )
    scale: float = (_WIDTH - _LEFT) / max(end - since, 0.001)
    height = (len(workers) + 2) * _LANE
    lanes = {worker: number for number, worker in enumerate(workers, 1)}

    def x(at: float) -> float:
        return _LEFT + (min(max(at, since), end) - since) * scale

    parts = [
        f'<svg viewBox="0 0 {_WIDTH + 30} {height}" role="img" aria-label="Holds and faults over {end - since:.0f} seconds">',
        *(_label(name, lane) for name, lane in {"faults": 0, **lanes}.items()),
        *_faults(history, since, x, height - _LANE),
        *_holds(history, since, lanes, x),
        *_marks(history, since, lanes, x),
        f'<line class="healed" x1="{x(about["healed"]):.1f}" x2="{x(about["healed"]):.1f}" y1="0" y2="{height - _LANE}"/>',
    ]
    for tick in range(11):
        at = since + (end - since) * tick / 10
        parts.append(f'<text class="tick" x="{x(at):.1f}" y="{height - 6}">{at - about["begun"]:.1f} s</text>')
    return "\n".join([*parts, "</svg>"])


def legend() -> str:
    kinds = "".join(f'<span><i style="background:{colour}"></i>{kind}</span>' for kind, colour in _KINDS.items())
    marks = '<span><i class="fault"></i>a fault</span><span><i class="refused"></i>a write was refused</span>'
    return f'<p class="legend">{kinds}{marks}</p>'


def distribution(values: Iterable[float], label: str) -> str:
    """How many lasted how long."""
    counts = histogram(values, _EDGES)
    labels = [f"< {edge:g} s" for edge in _EDGES] + [f"≥ {_EDGES[-1]:g} s"]
    most = max([*counts, 1])
    parts = [f'<svg viewBox="0 0 {_WIDTH} {len(counts) * _LANE}" role="img" aria-label="{label}">']
    for number, (edge, count) in enumerate(zip(labels, counts, strict=True)):
        y, width = number * _LANE, count / most * (_WIDTH - _LEFT - 80)
        parts.append(_label(edge, number))
        parts.append(
            f'<rect class="wait" x="{_LEFT}" y="{y + 3}" width="{width:.1f}" height="{_LANE - 6}"/>'
            f'<text x="{_LEFT + width + 6:.1f}" y="{y + 16}">{count}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def _label(text: str, lane: int) -> str:
    return f'<text class="lane" x="{_LEFT - 8}" y="{lane * _LANE + 16}">{escape(text)}</text>'


def _faults(history: History, since: float, x: Position, height: int) -> Iterator[str]:
    for note in history.notes:
        if note.what.startswith(FAULT) and note.at >= since:
            seconds = lasted(note)
            width = max(2.0, x(note.at + seconds) - x(note.at))
            said = escape(f"{note.what.removeprefix(FAULT)} of {note.process}, {note.detail}")
            box = f'x="{x(note.at):.1f}" y="2" width="{width:.1f}" height="{height - 2}"'
            yield f'<rect class="fault" {box}><title>{said}</title></rect>'


def _holds(history: History, since: float, lanes: dict[str, int], x: Position) -> Iterator[str]:
    last: dict[tuple[str, str, str], float] = {}
    for one in history.of(CHECK):
        last[one.process, one.name, one.holder] = one.invoked
    for one in reversed(list(history.of(RELEASE))):  # repeated until it is answered: the first time counts
        last[one.process, one.name, one.holder] = one.invoked
    for one in history.of(ACQUIRE):
        if one.outcome == GRANTED and one.returned >= since:
            until = last.get((one.process, one.name, one.holder), one.returned)
            said = escape(
                f"{one.process} held {_short(one)} from {one.returned - since:.3f} for {until - one.returned:.3f} s"
            )
            colour = _KINDS.get(one.detail, "#777")
            yield (
                f'<rect fill="{colour}" x="{x(one.returned):.1f}" y="{lanes[one.process] * _LANE + 4}" '
                f'width="{max(1.0, x(until) - x(one.returned)):.1f}" height="{_LANE - 8}"><title>{said}</title></rect>'
            )


def _marks(history: History, since: float, lanes: dict[str, int], x: Position) -> Iterator[str]:
    for one in history.of(WRITE):
        if one.outcome == STALE and one.invoked >= since:
            y = lanes[one.process] * _LANE
            yield f'<circle class="refused" cx="{x(one.returned):.1f}" cy="{y + _LANE / 2}" r="4"><title>refused</title></circle>'
    for note in history.notes:
        if note.what == CRASHED and note.at >= since and note.process in lanes:
            yield f'<text class="killed" x="{x(note.at):.1f}" y="{lanes[note.process] * _LANE + 16}">✕</text>'


def _short(one: Operation) -> str:
    return one.name.rpartition("/")[2]
