"""What was seen of a lock: from the metrics of an exporter, or from a history that was kept. Both are read, never written."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing
from datetime import datetime
from functools import partial
from http.client import HTTPException
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from ..drivers.starting import start
from ..errors import Misuse, Unavailable
from ..observe.naming import Names, template
from ..secret import redacted

_PATIENCE = 10.0
_MOST = 64 << 20  # bytes of metrics, or of a history
_INFINITE = float("inf")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? +([^ ]+)(?: +[^ ]+)?(?: +#.*)?")
# From the beginning of a word only: to look from each of its letters takes for ever, if somebody writes a long one.
_LABEL = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = {"n": "\n"}
_KEPT = """SELECT event, store, token, at, seconds FROM events WHERE event IN ('acquired', 'over') AND name = ? ORDER BY id
LIMIT 100000"""


class Spread(NamedTuple):
    """How often what lasted how long: upper bounds with how many are at most that, as in a histogram of Prometheus."""

    bounds: tuple[float, ...] = ()
    upto: tuple[float, ...] = ()  # for each bound, how many are at most that
    total: float = 0.0

    @property
    def number(self) -> float:
        return self.upto[-1] if self.upto else 0.0

    @property
    def mean(self) -> float:
        return self.total / self.number

    def at_most(self, part: float) -> float:
        """What so large a part of them did not exceed; infinite where they go beyond the last bound."""
        return next(
            bound for bound, number in zip(self.bounds, self.upto, strict=True) if number >= part * self.number - 1e-9
        )

    @property
    def lowest(self) -> tuple[float, float]:
        """The lowest of them lies between these."""
        below = 0.0
        for bound, number in zip(self.bounds, self.upto, strict=True):
            if number > 0:
                return below, bound
            below = bound
        return 0.0, _INFINITE

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Spread:
        """Of lengths that are known one by one."""
        all_of_them = sorted(seconds)
        upto = {one: number for number, one in enumerate(all_of_them, 1)}
        return cls(tuple(upto), tuple(float(number) for number in upto.values()), sum(all_of_them))


class Observed(NamedTuple):
    name: str
    source: str
    holds: Spread
    margins: Spread | None = None  # what was left when a renewal was confirmed; None: not known from there
    late: float = 0.0
    failed: float = 0.0
    losses: float = 0.0


def observed(name: str, source: str) -> Observed:
    """`source`: the URL of an exporter, or a file: its metrics, the dashboard's --history, or events as JSON lines."""
    if source.startswith(("http://", "https://")):
        return _of_metrics(name, redacted(source), _fetched(source))
    try:
        with open(source, "rb") as file:
            start = file.read(16)
            if start != b"SQLite format 3\x00":
                text = (start + file.read(_MOST)).decode("utf-8", "replace")
                return (
                    _of_lines(name, source, text) if text.lstrip().startswith("{") else _of_metrics(name, source, text)
                )
        with closing(sqlite3.connect(f"{Path(source).absolute().as_uri()}?mode=ro", uri=True)) as history:
            history.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20)  # of one value: it could make one of a gigabyte
            end = time.monotonic() + _PATIENCE  # what is called a table may be a view, and that has no end
            history.set_progress_handler(lambda: time.monotonic() > end, 100_000)
            return Observed(name, source, Spread.of(_lasted(history.execute(_KEPT, (name,)))))
    except (OSError, sqlite3.Error) as error:
        raise Misuse(f"{source!r} cannot be read: {error}") from None


def _fetched(url: str) -> str:
    """All of it in that time: urlopen()'s own is for each piece, and whoever sends a letter now and then comes to no end."""
    told: Future[bytes] = Future()
    start(partial(_fetch, url, told), "holdfast-advise")
    try:
        text = told.result(_PATIENCE)
    except (OSError, ValueError, HTTPException) as error:
        # HTTPException cites what it takes for a port, and that may be the password.
        why = (
            type(error).__name__
            if isinstance(error, HTTPException)
            else redacted(str(error)) or f"not in {_PATIENCE:g} s"
        )
        raise Unavailable(f"{redacted(url)} does not answer with metrics: {why}") from None
    return text.decode("utf-8", "replace")


def _fetch(url: str, told: Future[bytes]) -> None:
    try:
        with urlopen(Request(url, headers={"Accept": "text/plain"}), timeout=_PATIENCE) as answer:  # noqa: S310 - http only
            told.set_result(answer.read(_MOST))
    except Exception as error:
        told.set_exception(error)


# ---- metrics


def _of_metrics(name: str, source: str, text: str) -> Observed:
    wanted = {name, template(name), Names()(name)}  # the last: as our own exporters call it
    samples = [one for one in _samples(text) if one[1].get("lock_name") in wanted]

    def counted(metric: str, **labels: str) -> float:
        fits = (value for kind, has, value in samples if kind == metric and labels.items() <= has.items())
        return sum(fits)

    return Observed(
        next((has["lock_name"] for _, has, _ in samples), name),
        source,
        _spread(samples, "lock_hold_duration_seconds"),
        _spread(samples, "lock_renewal_margin_seconds"),
        counted("lock_renewals_total", outcome="late"),
        counted("lock_renewals_total", outcome="failed"),
        counted("lock_losses_total"),
    )


Sample = tuple[str, dict[str, str], float]


def _samples(text: str) -> Iterator[Sample]:
    """Of Prometheus' text format, or OpenMetrics. What is not understood is passed over: others' metrics are in it too."""
    for line in StringIO(text):  # one after the other: as a list, short lines would take twenty times their room
        found = _SAMPLE.fullmatch(line.strip())
        if found is None or line.startswith("#"):
            continue
        labels = {key: _unescaped(value) for key, value in _LABEL.findall(found[2] or "")}
        if _is_amount(value := _number(found[3])):
            yield found[1], labels, value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _is_amount(value: object) -> bool:
    """A number of things or of seconds; what somebody else wrote may be anything."""
    return type(value) in (int, float) and 0 <= value < _INFINITE  # type: ignore[operator]


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPED.get(found[1], found[1]), text)


def _spread(samples: list[Sample], metric: str) -> Spread:
    """All series of it added up: several kinds, outcomes and stores may go by one name."""
    upto: dict[float, float] = {}
    total = 0.0
    for kind, labels, value in samples:
        if kind == f"{metric}_bucket" and (bound := _number(labels.get("le", ""))) >= 0:
            upto[bound] = upto.get(bound, 0.0) + value
        elif kind == f"{metric}_sum":
            total += value
    bounds = tuple(sorted(upto))
    return Spread(bounds, tuple(upto[bound] for bound in bounds), total)


# ---- histories


def _of_lines(name: str, source: str, text: str) -> Observed:
    """As `holdfast watch --json` and the dashboard's export write them."""
    found = (
        (
            one.get("event"),
            one.get("store", ""),
            one.get("token"),
            _moment(one.get("at"), one.get("event")),
            one.get("seconds"),
        )
        for one in map(_event, StringIO(text))
        if one.get("name") == name
    )
    return Observed(name, source, Spread.of(_lasted(found)))


def _lasted(events: Iterable[tuple[Any, Any, Any, Any, Any]]) -> Iterator[float]:
    """How long it was held each time, at most, by (event, store, token, at, seconds) in their order.

    Whoever looks now and then sees that a hold is over, and knows how old it was when it was last seen: too little to size a
    lease by that is not renewed. So it counts from where it began to where it was seen that it is over.
    """
    begun: dict[tuple[str, int], float] = {}
    for event, store, token, at, seconds in events:
        if not _is_amount(seconds):
            continue
        key = (str(store)[:80], token) if type(token) is int and _is_amount(at) else None
        if event == "acquired" and key:
            begun.setdefault(key, at - seconds)
        elif event == "over":
            yield max(seconds, at - begun.pop(key, at)) if key else seconds


def _moment(said: object, event: object) -> object:
    """`watch` writes it in whole seconds, of which the end is meant at the end."""
    if not isinstance(said, str):
        return said
    try:
        return datetime.fromisoformat(said).timestamp() + (event == "over")
    except (ValueError, OverflowError, OSError):
        return None


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}
