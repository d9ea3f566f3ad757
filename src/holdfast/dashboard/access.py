"""Who may see the page, and who may do something. Rules:

1. Without an access token, only requests that name this machine itself in Host: a page of somebody else, whose name was made to
   lead here (DNS rebinding), is refused.
2. With one, a session is needed: a cookie that scripts cannot read and other sites cannot send, given for the token; or the
   token itself as a bearer.
3. Whatever changes anything is a POST from our own page: the same origin, and the secret of the session in a header.
4. A session is in its cookie, signed by a key that is made of the token: every worker of a server knows it, and so does the
   server that comes after a restart. Another token ends all of them.
"""

from __future__ import annotations

import hashlib
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
_ROUNDS = 200_000  # whoever has found a cookie is not to guess the token by it
_NO_TOKEN = b"none: such a session opens nothing; it only ties what acts to a page of ours"


class Session(NamedTuple):
    cookie: str
    csrf: str
    ends: int  # by the wall clock, which is the same for all workers


class Access:
    def __init__(self, token: Secret | None, *, anywhere: bool = False) -> None:
        self.token = token
        self._anywhere = anywhere  # an application that mounts us sees to it who comes
        self._key = hashlib.pbkdf2_hmac("sha256", token.plain.encode(), b"holdfast", _ROUNDS) if token else _NO_TOKEN
        # Cookies know no ports: two dashboards of one machine, with tokens of their own, are two names.
        self.cookie = f"{COOKIE}_{self._signed('name')[:8]}" if token else COOKIE
        self._ended: dict[str, int] = {}  # those that were logged out here, until they would have ended by themselves
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
        cookie = request.cookies.get(self.cookie, "")
        said, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signed(f"session {said}").encode()):
            return None
        ends = said.partition(".")[0]
        if not (ends.isascii() and ends.isdigit() and len(ends) < 15 and int(ends) > time.time()):
            return None
        return None if cookie in self._ended else self._opened(cookie, int(ends))

    def open(self) -> Session:
        ends = int(time.time() + LIFETIME)
        said = f"{ends}.{secrets.token_urlsafe(32)}"
        return self._opened(f"{said}.{self._signed(f'session {said}')}", ends)

    def _opened(self, cookie: str, ends: int) -> Session:
        return Session(cookie, self._signed(f"csrf {cookie}"), ends)

    def end(self, request: Request) -> None:
        if session := self.session(request):
            with self._mutex:
                now = time.time()
                alive = sorted((one for one in self._ended.items() if one[1] > now), key=lambda one: one[1])
                self._ended = dict([*alive[-_MOST + 1 :], (session.cookie, session.ends)])

    def _signed(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), "sha256").hexdigest()

    def _bearer(self, request: Request) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given)
