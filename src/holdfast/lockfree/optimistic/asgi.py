"""ASGI: a service whose resources change only at the version that the client has seen.

The handler finds the version that is asked for in `scope["holdfast.version"]`, hands it on (`update(…, expected=version)`) and
answers with `etag(row["version"])`; a `Conflict` that it lets through becomes 412. The version is `ABSENT` for If-None-Match: *,
which creates what is not there yet, and None for If-Match: *, which takes whatever is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from ...errors import Conflict, Misuse
from ...problems import AsgiApp, Message, Receive, Scope, Send, described, tell
from .http import etag, version_of
from .retry import ABSENT, Absent

METHODS = ("PUT", "PATCH", "DELETE")


class IfMatchMiddleware:
    """428 if a request that changes something does not say at which version; 412 if it is at another; 400 if it is malformed."""

    def __init__(self, app: AsgiApp, *, methods: Sequence[str] = METHODS, required: bool = True) -> None:
        self._app = app
        self._methods = frozenset(methods)
        self._required = required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in self._methods:
            await self._app(scope, receive, send)
            return
        given = [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == b"if-match"]
        creates = any(name.lower() == b"if-none-match" and value.strip() == b"*" for name, value in scope["headers"])
        if not given and self._required and not creates:
            detail = "say with If-Match which version you have seen; If-None-Match: * if there is none yet"
            await tell(send, described(HTTPStatus.PRECONDITION_REQUIRED, "If-Match is missing", detail, []))
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            version = _version(given, creates)
        except Misuse as error:
            await tell(send, described(HTTPStatus.BAD_REQUEST, "If-Match is malformed", str(error), []))
            return
        try:
            await self._app({**scope, "holdfast.version": version}, receive, sending)
        except Conflict as error:
            if started:
                raise
            seen = error.seen[-1] if error.seen else None
            headers = [("etag", etag(seen))] if type(seen) is int else []
            await tell(send, described(HTTPStatus.PRECONDITION_FAILED, "It has changed since", str(error), headers))


def _version(given: Sequence[str], creates: bool) -> int | Absent | None:
    if given and creates:
        raise Misuse("If-Match says that it is there, and If-None-Match: * that it is not")
    if creates:
        return ABSENT
    return version_of(", ".join(given)) if given else None
