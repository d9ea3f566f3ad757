"""The laboratory's page, as an ASGI application. Every run is asked for whole: its scenario, store, settings, seed and strikes
are in the question, and nothing is remembered between two of them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..claim import printable
from ..dashboard.access import Access
from ..dashboard.answers import file_answer, json_answer, refusal
from ..errors import HoldfastError, Misuse
from .record import opened
from .scenarios import FENCES, SCENARIOS, Scenario, Settings
from .stage import Setup, run
from .stores import STORES
from .strikes import parsed

_DASHBOARD = {"elements.js": "text/javascript"}
_FILES = {
    "index.html": "text/html",
    "lab.css": "text/css",
    **{f"{one}.js": "text/javascript" for one in ("lab", "lanes", "address", "player")},
}
_MOST_DIGITS = 15  # of a seed: what JavaScript keeps whole
Answer = Callable[[Request], Awaitable[Response]]


class Lab:
    """`record`: a history of `holdfast verify --keep` to open instead of a scenario."""

    def __init__(self, record: Path | None = None) -> None:
        self._access = Access(None)
        self._record = _opened(record) if record is not None else None
        self._one_at_a_time = Lock()  # a run is work for a processor, and there is nobody to serve twice
        routes = [
            Route("/", self._guarded(self._index)),
            Route("/static/{file}", self._guarded(self._static)),
            Route("/api/table", self._guarded(self._table)),
            Route("/api/run", self._guarded(self._run)),
            Route("/api/record", self._guarded(self._recorded)),
        ]
        self._app = Starlette(routes=routes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    def _guarded(self, answer: Answer) -> Answer:
        async def guarded(request: Request) -> Response:
            foreign = request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
            # Another site's page must not make us work; it may lead here, as any link does.
            if not self._access.is_host_right(request) or (foreign and request.url.path != "/"):
                return refusal(421, "this address is not ours: open the laboratory as localhost")
            try:
                return await answer(request)
            except HoldfastError as error:
                return refusal(400, printable(str(error)))

        return guarded

    async def _index(self, request: Request) -> Response:
        return file_answer(__package__, _FILES, "index.html")

    async def _static(self, request: Request) -> Response:
        name = request.path_params["file"]
        if name in _DASHBOARD:
            return file_answer("holdfast.dashboard", _DASHBOARD, name)
        return file_answer(__package__, _FILES, name)

    async def _table(self, request: Request) -> Response:
        """What there is to choose from."""
        return json_answer(
            {
                "scenarios": {key: _told(one) for key, one in SCENARIOS.items()},
                "stores": {key: {"title": kind.title, "can": sorted(kind.can)} for key, kind in STORES.items()},
                "fences": {key: fence.value for key, fence in FENCES.items()},
                "record": self._record is not None,
            }
        )

    async def _run(self, request: Request) -> Response:
        setup, until = asked(dict(request.query_params))

        def work() -> dict[str, Any]:
            with self._one_at_a_time:
                return run(setup, until)

        tape = await run_in_threadpool(work)
        return json_answer({**tape, "digest": digest(tape)})

    async def _recorded(self, request: Request) -> Response:
        if self._record is None:
            raise Misuse("no record was opened: holdfast lab --record FILE")
        return json_answer(self._record)


def asked(words: dict[str, str]) -> tuple[Setup, float | None]:
    """From a URL to a run, or Misuse."""
    scenario = SCENARIOS.get(words.get("scenario", ""))
    if scenario is None:
        raise Misuse(f"there are the scenarios {', '.join(SCENARIOS)}")
    store = words.get("store", scenario.stores[0])
    if store not in scenario.stores:
        raise Misuse(f"this scenario runs with {', '.join(scenario.stores)}")
    fence = words.get("fence", scenario.start.fence)
    if fence not in FENCES:
        raise Misuse(f"there are the fences {', '.join(FENCES)}")
    flags = {key: _flag(words.get(key), getattr(scenario.start, key)) for key in ("checks", "fair", "bells")}
    seed = words.get("seed", "1")
    if not (seed.isascii() and seed.isdigit() and len(seed) <= _MOST_DIGITS):
        raise Misuse(f"a seed is a whole number of at most {_MOST_DIGITS} digits")
    usual = ",".join(map(str, scenario.strikes))
    names = [part.name for part in scenario.parts]
    strikes = parsed(words.get("do", usual), names, STORES[store].can, scenario.length)
    return Setup(scenario, store, Settings(fence, **flags), int(seed), strikes), _moment(words.get("to"))


def _flag(word: str | None, usual: bool) -> bool:
    if word not in (None, "yes", "no"):
        raise Misuse("a setting is yes or no")
    return usual if word is None else word == "yes"


def _moment(word: str | None) -> float | None:
    try:
        until = None if word is None else float(word)
    except ValueError:
        until = math.nan
    if until is not None and not math.isfinite(until):
        raise Misuse("`to` is a moment, in seconds")
    return until


def digest(tape: dict[str, Any]) -> str:
    """The same for the same run: shown, so that two can be compared."""
    return hashlib.sha256(json.dumps(tape["events"]).encode()).hexdigest()[:12]


def _told(scenario: Scenario) -> dict[str, Any]:
    return {
        "title": scenario.title,
        "what": scenario.what,
        "stores": scenario.stores,
        "processes": [part.name for part in scenario.parts],
        "strikes": [str(one) for one in scenario.strikes],
        "told": {str(one): one.told for one in scenario.strikes},
        "asks": scenario.asks,
        "start": _words(scenario.start),
        "helps": _words(scenario.helps),
        "why": scenario.why,
        "length": scenario.length,
        "ttl": scenario.ttl,
    }


def _words(settings: Settings) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else "yes" if value else "no" for key, value in settings._asdict().items()
    }


def _opened(path: Path) -> dict[str, Any]:
    try:
        return opened(path)
    except OSError as error:
        raise Misuse(f"the record {str(path)!r} cannot be read: {error.strerror}") from None
