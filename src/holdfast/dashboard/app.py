"""The pages and the few questions behind them, as an ASGI application. Read-only, unless it was told otherwise."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from ..claim import MAX_TOKEN, printable, valid_name
from ..doctor import examine
from ..errors import HoldfastError, Misuse, Unavailable
from ..observe.changes import Change
from ..secret import Secret
from ..waitfor import WaitGraph
from .access import HEADER, LIFETIME, Access, Session
from .answers import HEADERS, dumped, file_answer, json_answer, refusal
from .board import Board
from .history import History, one_of
from .looking import Looking, named
from .told import MOST_BODY, Bound, changes

INTERVAL = 1.0
_BEAT = 5.0  # seconds: a word now and then, so that the page, and whoever is in between, knows that the stream lives
_LOOK = 0.3  # seconds: whether the server is to end, which waits for those whom we tell something
_WRONG_TOKEN = 0.5  # seconds to think about it
_MOST_BODY = 8192
_MOST_STREAMS = 100  # pages open at once
_MOST_EDGES = 60  # drawn of one store: more are a knot
_MODULES = ("dashboard", "elements", "graph", "history", "lock", "overview", "past", "pieces", "state", "stores")
_FILES = {
    "dashboard.css": "text/css",
    **{f"{module}.js": "text/javascript" for module in _MODULES},
    "login.html": "text/html",
    "index.html": "text/html",
}
_log = logging.getLogger("holdfast.dashboard")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer = Callable[[Request], Awaitable[Response]]


class _Events(StreamingResponse):
    """Server-sent. `over` is called once, however it ends, and if it never began."""

    def __init__(self, told: AsyncIterator[bytes], over: Callable[[], None]) -> None:
        super().__init__(told, headers={**HEADERS, "X-Accel-Buffering": "no"}, media_type="text/event-stream")
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._over()


class Dashboard:
    """An ASGI application. It looks at the stores from its first request on, until `close()`."""

    def __init__(
        self,
        urls: Sequence[str | None],
        *,
        allow_evict: bool,
        token: str | None,
        mounted: bool,
        interval: float,
        history: str | None,
    ) -> None:
        self._stores = named(list(urls) or [None])
        self._interval = max(0.05, interval)
        self.allow_evict = allow_evict
        self.access = Access(Secret(token) if token else None, anywhere=mounted)
        self.board = Board()
        self.history = History(history)
        self._looking: dict[str, Looking] = {}
        self._examined: dict[str, asyncio.Lock] = {}
        self._bound = Bound()
        self._closing = False
        self._streams = 0
        self._app = Starlette(
            routes=[
                Route("/", self._guarded(self._index)),
                Route("/login", self._login_page, methods=["GET"]),
                Route("/login", self._login, methods=["POST"]),
                Route("/static/{file}", self._static),
                Route("/api/session", self._guarded(self._session)),
                Route("/api/state", self._guarded(self._state)),
                Route("/api/events", self._guarded(self._events)),
                Route("/api/graph", self._guarded(self._graph)),
                Route("/api/history", self._guarded(self._find)),
                Route("/api/history.jsonl", self._guarded(self._export)),
                Route("/api/doctor", self._guarded(self._doctor, acts=True), methods=["POST"]),
                Route("/api/evict", self._guarded(self._evict, acts=True), methods=["POST"]),
                Route("/api/told", self._told, methods=["POST"]),
                Route("/api/logout", self._guarded(self._logout, acts=True), methods=["POST"]),
            ]
        )
        self._app.router.redirect_slashes = False  # it would lead out of the path that a proxy may have before ours

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await run_in_threadpool(self.close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    def start(self) -> None:
        """Begin to look. Done by the first request too: an application that is mounted is not told that it begins."""
        if not self._looking and not self._closing:
            self._looking = {
                store: Looking(store, url, self.board, self.history, self._interval) for store, url in self._stores
            }

    def close(self) -> None:
        self._closing = True
        for one in self._looking.values():
            one.close()
        self.history.close()

    # ---- the door

    def _guarded(self, answer: Answer, *, acts: bool = False) -> Answer:
        async def guarded(request: Request) -> Response:
            if not self.access.is_host_right(request):
                return refusal(
                    421, "this address is not ours: open the dashboard as localhost, or start it with --token"
                )
            if not self.access.may_look(request):
                if request.url.path.rstrip("/") == request.scope.get("root_path", "").rstrip("/"):
                    return RedirectResponse("login", 303, HEADERS)  # from here: a proxy may have a path before ours
                return refusal(401, "log in first")
            if acts and not self.access.may_act(request):
                return refusal(403, "not from our own page: open it anew (a proxy in between has to pass Host on)")
            self.start()
            for one in self._looking.values():
                one.wake()  # somebody is here
            try:
                return await answer(request)
            except HoldfastError as error:
                return refusal(400 if isinstance(error, Misuse) else 503, printable(str(error)))

        return guarded

    async def _login_page(self, request: Request) -> Response:
        if not self.access.is_host_right(request):
            return refusal(421, "this address is not ours")
        return file_answer(__package__, _FILES, "login.html")

    async def _login(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return refusal(403, "not from our own page")
        try:
            form = await _words(request)
        except Misuse as error:
            return refusal(400, str(error))
        if not self.access.is_token(form.get("token", "")):
            await asyncio.sleep(_WRONG_TOKEN)
            return file_answer(__package__, _FILES, "login.html", 401, without=" hidden")
        response = RedirectResponse("./", 303, HEADERS)
        self._give(request, response, self.access.open())
        return response

    async def _logout(self, request: Request) -> Response:
        self.access.end(request)
        response = json_answer({})
        response.delete_cookie(self.access.cookie, path=f"{request.scope.get('root_path', '')}/")
        return response

    def _give(self, request: Request, response: Response, session: Session) -> None:
        response.set_cookie(
            self.access.cookie,
            session.cookie,
            max_age=int(LIFETIME),
            path=f"{request.scope.get('root_path', '')}/",
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )

    # ---- looking

    async def _index(self, request: Request) -> Response:
        return file_answer(__package__, _FILES, "index.html")

    async def _static(self, request: Request) -> Response:
        return file_answer(__package__, _FILES, request.path_params["file"])

    async def _session(self, request: Request) -> Response:
        """What the page needs in order to act: its session's secret, which no other site can read."""
        known = self.access.session(request)
        session = known or self.access.open()
        response = json_answer(
            {"csrf": session.csrf, "header": HEADER, "allow_evict": self.allow_evict, "login": bool(self.access.token)}
        )
        if known is None:
            self._give(request, response, session)
        return response

    async def _state(self, request: Request) -> Response:
        return json_answer(self.board.since(0))

    async def _events(self, request: Request) -> Response:
        if self._streams >= _MOST_STREAMS:
            return refusal(503, f"{_MOST_STREAMS} pages are open already: close one")
        self._streams += 1  # and not when it begins: of a thousand who come together, none has begun yet
        return _Events(self._stream(request), self._one_less)

    def _one_less(self) -> None:
        self._streams -= 1

    async def _stream(self, request: Request) -> AsyncIterator[bytes]:
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        news.set()

        def ring() -> None:
            loop.call_soon_threadsafe(news.set)

        end = self.board.watch(ring)
        for one in self._looking.values():
            one.wake()  # only now: whoever looked between the request and this has gone to rest for long
        version, first, spoke = 0, True, loop.time()
        try:
            while not self._closing and not _is_server_ending():
                with suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), min(_BEAT, _LOOK))
                if not self.access.may_look(request):  # logged out, or for too long in: it is told nothing more
                    return
                if not news.is_set():
                    if loop.time() - spoke >= _BEAT:
                        spoke = loop.time()
                        yield _event("beat", {"looked": self.board.looked()})
                    continue
                news.clear()
                told = self.board.since(version)
                if told["version"] == version and not first:
                    continue
                version, kind, first = told["version"], "all" if told.pop("whole") else "some", False
                spoke = loop.time()
                yield _event(kind, told)
        finally:
            end()

    async def _graph(self, request: Request) -> Response:
        looked_at = list(self._looking.items())
        return json_answer(await run_in_threadpool(lambda: [_drawn(store, one.graph()) for store, one in looked_at]))

    async def _find(self, request: Request) -> Response:
        asked = request.query_params
        said = asked.get("most", "")
        most = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 500
        name = asked.get("name")
        found = await run_in_threadpool(
            self.history.find, asked.get("q", ""), store=asked.get("store", ""), name=name, most=min(most, 10_000)
        )
        return json_answer({"now": _now(), "events": found, "trouble": self.history.trouble})

    async def _export(self, request: Request) -> Response:
        lines = await run_in_threadpool(lambda: "".join(f"{dumped(event)}\n" for event in self.history))
        disposition = {"Content-Disposition": 'attachment; filename="holdfast-history.jsonl"'}
        return Response(lines, headers={**HEADERS, **disposition}, media_type="application/x-ndjson")

    # ---- doing

    async def _doctor(self, request: Request) -> Response:
        """It takes a lock of its own, so it is asked for, and one examination of a store goes on at a time."""
        one = self._asked(await _body(request))
        async with self._examined.setdefault(one.store, asyncio.Lock()):
            found = await run_in_threadpool(lambda: [finding._asdict() for finding in examine(one.url)])
        return json_answer({"store": one.store, "findings": found})

    async def _evict(self, request: Request) -> Response:
        """Only the grant that was looked at, by its token; and only by somebody who typed the name."""
        if not self.allow_evict:
            return refusal(403, "this dashboard is read-only: start it with --allow-evict")
        asked = await _body(request)
        one = self._asked(asked)
        name, token = asked.get("name"), asked.get("token")
        if type(name) is not str or type(token) is not int or not 0 < token <= MAX_TOKEN:
            return refusal(400, "an eviction names a lock and the token of one grant")
        if asked.get("typed") != name:
            return refusal(400, "the name was not typed as it is: nothing was done")
        valid_name(name)  # else it would be in the log that somebody was perhaps put out
        past = None
        became = "was perhaps put out (the store did not say)"
        try:
            past = await run_in_threadpool(one.locks().force_release, name, token=token)
            became = "was put out" if past is not None else "was gone already, and nobody was put out"
        except Unavailable as error:
            return refusal(503, f"{printable(str(error))}. It is not known whether the holder was put out: look again")
        finally:
            who = request.client.host if request.client else "?"
            _log.warning(
                "the holder of token %d of %r %s by the dashboard, asked from %s", token, printable(name), became, who
            )
        one.wake()
        return json_answer({"released": past is not None, "new_token": past})

    async def _told(self, request: Request) -> Response:
        """By processes with observe=["dashboard"], never by a page: with the token, or on this machine where there is none."""
        if not self.access.may_tell(request):
            return refusal(403, "events are sent by processes of this machine, or with the token of this dashboard")
        try:
            found = changes((await _body(request, MOST_BODY)).get("events"))
        except Misuse as error:
            return refusal(400, str(error))
        self.start()
        taken = found[: self._bound.take(len(found))]
        by_store: dict[str, list[Change]] = {}
        for system, change in taken:
            by_store.setdefault(self._store_of(system, change.name), []).append(change)
        for store, some in by_store.items():
            await run_in_threadpool(self.history.add, store, some)
        return json_answer({"taken": len(taken), "dropped": len(found) - len(taken)})

    def _store_of(self, system: str, name: str) -> str:
        """The one that is of this kind, or of several the one that has this name in use; else it stays open which it is."""
        stores = self.board.of_kind(system)
        if len(stores) > 1:
            stores = [store for store in stores if self._looking[store].seen(name)]
        return stores[0] if len(stores) == 1 else one_of(system)

    def _asked(self, body: dict[str, Any]) -> Looking:
        found = self._looking.get(str(body.get("store")))
        if found is None:
            raise Misuse("there is no such store here")
        return found


def _is_server_ending() -> bool:
    """uvicorn waits for open pages for ever, and tells nobody; but it is known by the handler that it has for signals."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


def _drawn(store: str, graph: WaitGraph) -> dict[str, Any]:
    """Deadlocks first: of thousands who wait, only some can be shown."""
    deadlocks = graph.deadlocks()
    stuck = dict.fromkeys(edge for cycle in deadlocks for edge in cycle)
    shown = [*stuck, *islice((edge for edge in graph.each_edge() if edge not in stuck), _MOST_EDGES)][:_MOST_EDGES]
    return {
        "store": store,
        "edges": [edge._asdict() for edge in shown],
        "waits": sum(len(one.waiters) * len(one.holders) for one in graph.snapshots),
        "deadlocks": [[edge._asdict() for edge in cycle] for cycle in deadlocks],
    }


def _event(kind: str, told: dict[str, Any]) -> bytes:
    return f"event: {kind}\ndata: {dumped({**told, 'now': _now()})}\n\n".encode()


def _now() -> float:
    import time

    return round(time.time(), 3)


async def _read(request: Request, most: int = _MOST_BODY) -> bytes:
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise Misuse("that is more than any question of ours")
    except ClientDisconnect:  # else there is a traceback in the log for whoever hangs up in the middle
        raise Misuse("that was no whole question") from None
    return body


async def _body(request: Request, most: int = _MOST_BODY) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise Misuse("questions are JSON")
    body = await _read(request, most)  # whose Misuse is a ValueError too, and says what is wrong
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Misuse("questions are JSON objects")
    return said


async def _words(request: Request) -> dict[str, str]:
    """A form, as browsers send one."""
    from urllib.parse import parse_qsl

    return dict(parse_qsl((await _read(request)).decode(errors="replace"), keep_blank_values=True))
