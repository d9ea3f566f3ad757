"""The client's side: `httpx.post(url, auth=FencingAuth(lease))`, and the same with requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from ..mark import Mark, Ticket, mark_of, refusal
from .request import RESOURCE, SIGNATURE, TOKEN, encode

R = TypeVar("R")


class FencingAuth:
    """Adds the token to every request. httpx and requests both take a function for `auth`; this is one."""

    def __init__(self, ticket: Ticket, sign: Callable[[Mark, str, str], str] | None = None) -> None:
        """`sign` gives a signature for a method and a path, such as `signer.sign`; or asks whoever hands them out."""
        self._mark = mark_of(ticket)
        self._sign = sign

    def __call__(self, request: R) -> R:
        headers: Any = request.headers  # type: ignore[attr-defined]  # both kinds of request have them
        headers[TOKEN] = str(self._mark.token)
        headers[RESOURCE] = encode(self._mark.resource)
        if self._sign is not None:
            asked: Any = request
            path = unquote(urlsplit(str(asked.url)).path) or "/"
            headers[SIGNATURE] = self._sign(self._mark, asked.method, path)
        return request


def raise_if_stale(response: Any) -> None:
    """Raise the `StaleToken` that a response of httpx or requests carries, if it is one."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip()
    if response.status_code != 409 or kind != "application/problem+json":
        return
    try:
        about = response.json()
    except ValueError:
        return  # of somebody else's
    if not isinstance(about, dict) or about.get("title") != "Stale fencing token":
        return
    resource, presented, seen, since = (about.get(key) for key in ("resource", "presented", "seen", "since"))
    if isinstance(resource, str) and type(presented) is type(seen) is int:
        raise refusal(Mark(resource, presented), seen, since if _is_time(since) else None)


def _is_time(since: object) -> bool:
    return isinstance(since, (int, float)) and 0 <= since < 2**33
