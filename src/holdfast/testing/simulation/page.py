"""One run as a page: a lane for every process, server and for the storage, and under it the story in words.

One file that needs nothing from anywhere, runs no script, and escapes every name. Time is drawn unevenly, since a round trip
takes a millisecond and a ttl a thousand times that: between two moments at which something happens there is always a little
room, and never much.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from html import escape
from pathlib import Path

from .. import checkers
from ..history import ACQUIRE, CHECK, CRASHED, GRANTED, RELEASE, STALE, UNKNOWN, Operation
from .story import FAULT, SIGNAL, STORAGE, USER, Event, Story, lasting
from .workload import Report

STORE = "storage"  # its lane
_HEALED = "world"  # who tells that all has healed: that is a line, and no lane
_LANE, _HEAD = 34, 20
_LEAST, _MOST, _A_SECOND = 2.5, 26.0, 700.0  # pixels between two moments: at least, at most, and how many a second
_TICKS = 90.0  # pixels between two times
_COLOURS = (
    "#3b6fb6",
    "#2f8f83",
    "#7a5ab5",
    "#9a7b1f",
    "#b5567a",
    "#4a7d2f",
)  # of names, in the order of their first use
_GREY, _LAST = "#888888", "last of "  # what each has when it closes its connection: see workload.py
_LASTING = re.compile(r"for (\d+\.\d+) s")


class _Time:
    """Where a moment is, from the left."""

    def __init__(self, moments: set[float]) -> None:
        self._moments = sorted(moments) or [0.0]
        at, self._places = 4.0, [4.0]
        for before, after in zip(self._moments, self._moments[1:], strict=False):
            at += min(_LEAST + (after - before) * _A_SECOND, _MOST)
            self._places.append(at)
        self.width = at + 40.0

    def __call__(self, moment: float) -> float:
        after = bisect_left(self._moments, moment)
        if after == len(self._moments):
            return self._places[-1]
        if self._moments[after] == moment or after == 0:
            return self._places[after]
        low, high = self._moments[after - 1], self._moments[after]
        share = (moment - low) / (high - low)
        return self._places[after - 1] + share * (self._places[after] - self._places[after - 1])

    def ticks(self) -> Iterator[tuple[float, float]]:
        """Moments, and where they are, far enough from each other to be read."""
        last = -_TICKS
        for moment, place in zip(self._moments, self._places, strict=True):
            if place >= last + _TICKS:
                last = place
                yield moment, place


def page(report: Report, story: Story, again: str) -> str:
    """`again`: the command that tells the same story."""
    overlaps = checkers.overlaps(report.history)
    word, title = ("kept", "All promises were kept") if report.ok else ("broken", "A promise was broken")
    style = (Path(__file__).parents[1] / "page.css").read_text(encoding="utf-8")
    picture = _Picture(report, story, overlaps)
    refused = sum(one.outcome == STALE for one in report.history.operations)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Seed {story.seed} of {escape(story.store)}: holdfast simulate</title><style>{style}</style></head><body class="wide">
<main><h1>Seed {story.seed} of {escape(story.store)}: <span class="{word}">{title}</span></h1>
<p>{len(story.events)} events in {story.seconds:.1f} s of virtual time. {len(overlaps)} overlaps: more believed to be inside than
fit. {refused} refusals: the storage turned away whoever had been overtaken. Two may both believe that they hold a lock; no stale
token changes fenced state. The same again: <code>{escape(again)}</code></p>
{"".join(f'<p class="finding">{escape(one)}</p>' for one in story.findings)}
<h2>Who did what</h2>
<p>Point at anything to read it; click it to go to its line below. Quiet stretches are drawn shorter than they are.</p>
{picture.legend()}
<div class="scroll lanes" role="region" aria-label="Timeline" tabindex="0">{picture.labels()}{picture.drawn()}</div>
<h2>In words</h2>
<div class="scroll" role="region" aria-label="The story in words" tabindex="0"><table class="story">
<thead><tr><th>second</th><th>who</th><th>what</th></tr></thead><tbody>
{"".join(_line(number, event) for number, event in enumerate(story.events))}</tbody></table></div>
</main></body></html>
"""


def _line(number: int, event: Event) -> str:
    mark = "● " if event.kind == FAULT else ""
    return (
        f'<tr id="e{number}" class="{event.kind}{_refused(event)}"><td class="number">{event.at:.4f}</td>'
        f"<td>{escape(event.lane)}</td><td>{mark}{escape(event.text)}{lasting(event)}</td></tr>\n"
    )


def _refused(event: Event) -> str:
    return " refused" if event.kind == STORAGE and ": refused, " in event.text else ""


class _Picture:
    def __init__(self, report: Report, story: Story, overlaps: list[checkers.Overlap]) -> None:
        self._story = story
        self._overlaps = overlaps
        self._holds = list(_holds(report.history.operations))
        acting = {one.process for one in report.history.operations}
        lanes = [lane for lane in story.lanes if lane in acting]
        lanes += [lane for lane in story.lanes if lane not in acting and lane != _HEALED]
        self._lanes = {lane: _HEAD + at * _LANE for at, lane in enumerate([*lanes, STORE])}
        self._machines = {lane for lane in story.lanes if lane not in acting}
        names = sorted(dict.fromkeys(one.name for one, _ in self._holds), key=lambda name: name.startswith(_LAST))
        self._colours = {
            name: _GREY if name.startswith(_LAST) else _COLOURS[at % len(_COLOURS)] for at, name in enumerate(names)
        }
        moments = {event.at for event in story.events}
        moments |= {event.until for event in story.events if event.until is not None}
        self._x = _Time(moments | {until for _, until in self._holds})
        self._height = _HEAD + len(self._lanes) * _LANE + 4

    def legend(self) -> str:
        some = {name: colour for name, colour in self._colours.items() if not name.startswith(_LAST)}
        if len(some) < len(self._colours):
            some["its last one, when it closes"] = _GREY
        names = "".join(
            f'<span><i style="background:{colour}"></i>holds {escape(name)}</span>' for name, colour in some.items()
        )
        marks = {
            "waits": "waits for it",
            "request": "a request and its answer",
            "lost": "a request without an answer",
            "fault": "a fault",
            "overlap": "an overlap",
            "refused": "refused by the storage",
            "signal": "is told of trouble",
        }
        explained = "".join(f'<span><i class="{kind}"></i>{said}</span>' for kind, said in marks.items())
        return f'<p class="legend">{names}{explained}</p>'

    def labels(self) -> str:
        said = "".join(
            f'<text x="6" y="{y + 21}"{_class(lane in self._machines, "machine")}>{escape(lane)}</text>'
            for lane, y in self._lanes.items()
        )
        width = 22 + 8 * max(map(len, self._lanes))
        return f'<svg class="labels" width="{width}" height="{self._height}" aria-hidden="true">{said}</svg>'

    def drawn(self) -> str:
        parts = [f'<svg class="time" width="{self._x.width:.0f}" height="{self._height}" aria-hidden="true">']
        for y in self._lanes.values():
            kind = "lane even" if (y - _HEAD) // _LANE % 2 else "lane"
            parts.append(f'<rect class="{kind}" x="0" y="{y}" width="{self._x.width:.0f}" height="{_LANE}"/>')
        for moment, place in self._x.ticks():
            parts.append(f'<text class="at" x="{place:.1f}" y="13">{moment:.3f} s</text>')
            parts.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{_HEAD}" y2="{self._height}"/>')
        parts += [self._hold(one, until) for one, until in self._holds]
        for number, event in enumerate(self._story.events):
            parts.append(f'<a href="#e{number}" tabindex="-1">{self._mark(event)}</a>')
        parts += [box for overlap in self._overlaps for box in self._overlap(overlap)]
        return "\n".join([*parts, "</svg>"])

    def _hold(self, one: Operation, until: float) -> str:
        said = f"{one.process} holds {one.name!r} from {one.returned:.4f} s for {until - one.returned:.4f} s"
        box = self._box(one.returned, until, self._lanes[one.process] + 4, 12)
        return f'<rect fill="{self._colours[one.name]}" {box}><title>{escape(said)}</title></rect>'

    def _overlap(self, overlap: checkers.Overlap) -> Iterator[str]:
        who = " and ".join(overlap.who)
        said = f"overlap: {who} believe that they hold {overlap.name!r}, for {overlap.seconds:.4f} s"
        for lane in dict.fromkeys(overlap.who):
            box = self._box(overlap.since, overlap.since + overlap.seconds, self._lanes[lane] + 2, 16)
            yield f'<rect class="overlap" {box}><title>{escape(said)}</title></rect>'

    def _mark(self, event: Event) -> str:
        said = f"<title>{escape(f'{event.at:.4f} s  {event.lane} {event.text}')}</title>"
        x = self._x(event.at)
        if event.kind == SIGNAL and event.lane == _HEALED:
            return f'<line class="healed" x1="{x:.1f}" x2="{x:.1f}" y1="{_HEAD}" y2="{self._height}">{said}</line>'
        y = self._lanes[STORE if event.kind == STORAGE else event.lane]
        if event.kind == FAULT:
            seconds, band = _LASTING.search(event.text), ""
            if seconds is not None:
                box = self._box(event.at, event.at + float(seconds[1]), y + 1, _LANE - 2)
                band = f'<rect class="band" {box}>{said}</rect>'
            if event.text.startswith(CRASHED):
                return f'{band}<text class="killed" x="{x - 5:.1f}" y="{y + 24}">✕{said}</text>'
            return f'{band}<circle class="fault" cx="{x:.1f}" cy="{y + 24}" r="4.5">{said}</circle>'
        if event.kind == SIGNAL:
            return f'<path class="signal" d="M{x:.1f} {y + 18}l5 9h-10z">{said}</path>'
        if event.kind == USER:
            return f'<rect class="waits" {self._box(event.at, event.until, y + 18, 2)}>{said}</rect>'
        if _refused(event):
            return f'<circle class="refused" cx="{x:.1f}" cy="{y + 17}" r="6">{said}</circle>'
        kind = "lost" if event.until is None else "request"
        return f'<rect class="{kind}" {self._box(event.at, event.until, y + 22, 7)}>{said}</rect>'

    def _box(self, since: float, until: float | None, y: int, height: int) -> str:
        left = self._x(since)
        width = max(self._x(since if until is None else until) - left, 2.0)
        return f'x="{left:.1f}" y="{y}" width="{width:.1f}" height="{height}"'


def _holds(operations: list[Operation]) -> Iterator[tuple[Operation, float]]:
    """Who was told that it holds something, and until when it used it, or asked to release it."""
    last: dict[tuple[str, str, str], float] = {}
    for one in operations:
        if one.kind == CHECK and one.outcome != UNKNOWN:
            last[one.process, one.name, one.holder] = one.invoked
    for one in reversed(operations):  # repeated until it is answered: the first time counts
        if one.kind == RELEASE:
            last[one.process, one.name, one.holder] = one.invoked
    for one in operations:
        if one.kind == ACQUIRE and one.outcome == GRANTED:
            yield one, max(last.get((one.process, one.name, one.holder), one.returned), one.returned)


def _class(really: bool, name: str) -> str:
    return f' class="{name}"' if really else ""
