"""Who may see the page, and who may do something. Rules:

1. Without an access token, only requests that name this machine itself in Host: a page of somebody else, whose name was made to
   lead here (DNS rebinding), is refused.
2. With one, a session is needed: a cookie that scripts cannot read and other sites cannot send, given for the token; or the
   token itself as a bearer.
3. Whatever changes anything is a POST from our own page: the same origin, and the secret of the session in a header.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from typing import NamedTuple

from starlette.requests import Request

from ..drivers.dialing import is_local
from ..secret import Secret

COOKIE = "holdfast_dashboard"
HEADER = "x-holdfast-csrf"
LIFETIME = 12 * 3600.0
_MOST = 1000


class Session(NamedTuple):
    csrf: str
    ends: float


class Access:
    def __init__(self, token: Secret | None, *, anywhere: bool = False) -> None:
        self.token = token
        self._anywhere = anywhere  # an application that mounts us sees to it who comes
        self._sessions: dict[str, Session] = {}
        self._mutex = threading.Lock()

    def is_host_right(self, request: Request) -> bool:
        if self.token or self._anywhere:
            return True
        host = request.headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and not host.endswith("]") else host
        return bool(name) and is_local(name) and not name.startswith(("/", "@"))

    def may_look(self, request: Request) -> bool:
        return not self.token or self._bearer(request) or self.session(request) is not None

    def may_act(self, request: Request) -> bool:
        """Over and above: that it is our own page that asks, and no other site with the visitor's cookie."""
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return False
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
            return False
        if self.token and self._bearer(request):
            return True
        session = self.session(request)
        given = request.headers.get(HEADER, "")
        return session is not None and hmac.compare_digest(given.encode(), session.csrf.encode())

    def may_tell(self, request: Request) -> bool:
        """A process, of which no browser is one: without a token, only where nobody else can come."""
        if "sec-fetch-site" in request.headers or "origin" in request.headers:
            return False
        if self.token:
            return self._bearer(request)
        return not self._anywhere and self.is_host_right(request)

    def is_token(self, given: str) -> bool:
        return self.token is not None and hmac.compare_digest(given.encode(), self.token.plain.encode())

    def session(self, request: Request) -> Session | None:
        found = self._sessions.get(request.cookies.get(COOKIE, ""))
        return found if found is not None and found.ends > time.monotonic() else None

    def open(self) -> tuple[str, Session]:
        now = time.monotonic()
        key, session = secrets.token_urlsafe(32), Session(secrets.token_urlsafe(32), now + LIFETIME)
        with self._mutex:
            alive = sorted((one for one in self._sessions.items() if one[1].ends > now), key=lambda one: one[1].ends)
            self._sessions = dict(alive[-_MOST + 1 :])
            self._sessions[key] = session
        return key, session

    def end(self, request: Request) -> None:
        with self._mutex:
            self._sessions.pop(request.cookies.get(COOKIE, ""), None)

    def _bearer(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given)
