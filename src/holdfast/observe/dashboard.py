"""Events to a dashboard, over HTTP: what looking at a store cannot see, such as losses, refusals, failed renewals, and what
comes and goes between two looks.

    holdfast.connect(url, observe=["dashboard"])       # to HOLDFAST_DASHBOARD, else to http://127.0.0.1:8377
    holdfast.connect(url, observe=[Dashboard("https://locks.internal", token=…)])

Rule: nobody waits for it. An event is put aside, and a thread sends what has gathered, twice a second. Where the dashboard is
away or slow, events are dropped, not queued; it is asked again after a while.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from http.client import HTTPException
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from .. import events
from ..claim import printable
from ..drivers.dialing import is_local
from ..drivers.starting import start
from ..errors import Misuse
from ..events import Event
from ..secret import Secret, redacted
from . import Subscribable

ADDRESS, TOKEN = "HOLDFAST_DASHBOARD", "HOLDFAST_DASHBOARD_TOKEN"
USUAL = "http://127.0.0.1:8377"
# Not those that come every third of a ttl, nor those that the dashboard sees by itself.
KINDS = tuple(kind for kind in events.KINDS if kind not in (events.RENEWED, events.WAITING, events.EVICTED))
BATCH = 200
_PAUSE = 0.5
_PATIENCE = 2.0
_AWAY = (1.0, 30.0)  # seconds until a dashboard that did not answer is asked again: doubled each time
_LAST_WORDS = 0.5  # seconds, when the process ends


class _Nowhere(HTTPRedirectHandler):
    """The token is for this dashboard, and not for whoever it would send us to."""

    def redirect_request(self, *_: object) -> None:
        return None


class Dashboard:
    """One may follow many connections."""

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        address = url or os.environ.get(ADDRESS) or USUAL
        if not address.startswith(("http://", "https://")):
            raise Misuse(f"a dashboard's address begins with http:// or https://, not {redacted(address)!r:.80}")
        secret = token or os.environ.get(TOKEN)
        self._url = Secret(address.rstrip("/"))
        # The environment's proxy is for the network. It would be given the token of a dashboard on this machine.
        direct = [ProxyHandler({})] if is_local(urlsplit(address).hostname or "") else []
        self._opener = build_opener(_Nowhere, *direct)
        self._token = Secret(secret) if secret else None
        self.dropped = 0
        self._start()
        self._refusals_heard = False
        atexit.register(self._last_words)

    def _start(self) -> None:
        self._pid = os.getpid()
        self._waiting: deque[Event] = deque(maxlen=5 * BATCH)
        self._news, self._sent = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()
        self._away = 0.0
        self._asked_again = 0.0

    def __repr__(self) -> str:
        return f"<Dashboard {redacted(self._url.plain)}>"

    def __call__(self, locks: Subscribable) -> Callable[[], None]:
        if not self._refusals_heard:
            self._refusals_heard = True
            events.refusals.subscribe(self._heard, (events.REFUSED,))
        return locks.subscribe(self._heard, KINDS)

    def _heard(self, event: Event) -> None:
        if self._pid != os.getpid():  # a forked child has no thread, and its parent's events are not its own
            self._start()
        if time.monotonic() < self._asked_again or len(self._waiting) == self._waiting.maxlen:
            self.dropped += 1
            return
        self._waiting.append(event)
        if self._thread is None:
            self._begin()
        self._news.set()

    def _begin(self) -> None:
        with self._mutex:
            if self._thread is None:
                self._thread = start(self._run, "holdfast-to-dashboard")

    def _run(self) -> None:
        with self._mutex:
            if self._thread is not threading.current_thread():  # its start was interrupted
                return
        while True:
            self._news.wait()
            time.sleep(_PAUSE)
            self._news.clear()
            while batch := self._taken():
                self._post(batch)
            self._sent.set()

    def _taken(self) -> list[Event]:
        return [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]

    def _post(self, batch: list[Event]) -> None:
        told = [event._replace(owner=printable(event.owner), detail=printable(event.detail)) for event in batch]
        body = json.dumps({"events": [event._asdict() for event in told]}).encode()
        headers = {"Content-Type": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.plain}"
        try:
            request = Request(f"{self._url.plain}/api/told", body, headers, method="POST")  # noqa: S310 - http, as checked
            with self._opener.open(request, timeout=_PATIENCE):
                self._away = 0.0
        except (OSError, HTTPException, ValueError):
            self.dropped += len(batch) + len(self._waiting)
            self._waiting.clear()
            least, most = _AWAY
            self._away = min(max(least, self._away * 2), most)
            self._asked_again = time.monotonic() + self._away

    def _last_words(self) -> None:
        """What a short process has to tell is told before it ends, if somebody listens."""
        if self._waiting and self._thread is not None and self._pid == os.getpid():
            self._sent.clear()
            self._sent.wait(_PAUSE + _LAST_WORDS)


_shared: list[Dashboard] = []


def observe(locks: Subscribable) -> Callable[[], None]:
    """By name: all connections of this process share one."""
    if not _shared:
        _shared.append(Dashboard())
    return _shared[0](locks)
