"""WSGI middleware: `app = FencingMiddleware(app)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from typing import Any

from ...errors import HoldfastError
from .gate import PATIENCE, ThreadGate
from .request import SAFE, parse, problem
from .signature import Signer

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class FencingMiddleware:
    """Refuses requests whose token was overtaken (409), in one process; the handler finds the mark in
    `environ["holdfast.mark"]`, to hand to the guard of its own storage."""

    def __init__(
        self,
        app: App,
        *,
        signer: Signer | None = None,
        required: bool = True,
        max_jump: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        """`required`: a request that may change something must carry a token; reading without one is always allowed."""
        self._app = app
        self._signer = signer
        self._required = required
        self.gate = ThreadGate(max_jump=max_jump, patience=patience)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            mark = parse(
                environ.get("HTTP_FENCING_TOKEN"),
                environ.get("HTTP_FENCING_RESOURCE"),
                environ.get("HTTP_FENCING_SIGNATURE"),
                self._required and environ["REQUEST_METHOD"] not in SAFE,
                self._signer,
            )
            leave = self.gate.acquire(mark) if mark is not None else None
        except HoldfastError as error:
            told = problem(error)
            start_response(f"{told.status} {HTTPStatus(told.status).phrase}", told.headers)
            return [told.body]
        if mark is None or leave is None:
            return self._app(environ, start_response)
        environ["holdfast.mark"] = mark
        try:
            return _Body(self._app(environ, start_response), leave)
        except BaseException:
            leave()
            raise


class _Body:
    """The handler may go on working while its answer is read, so it is being served until the server closes it."""

    def __init__(self, body: Iterable[bytes], leave: Callable[[], None]) -> None:
        self._body = body
        self._leave = leave

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._leave()
