"""WSGI middleware: `app = FencingMiddleware(app)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ...errors import HoldfastError
from ...problems import Environ, StartResponse, WsgiApp, tell_wsgi
from ..mark import Mark
from .fencing import Fencing
from .gate import ThreadGate
from .request import SAFE, check_resource, parse, problem


class FencingMiddleware(Fencing[WsgiApp, Environ, Callable[[Mark], object], ThreadGate]):
    """Refuses requests whose token was overtaken (409); the handler finds the mark in `environ["holdfast.mark"]`, to hand to the
    guard of its own storage. The marks are those of this process, unless `marks` keeps them for several."""

    _gates = ThreadGate

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        leave: Callable[[], None] | None = None
        try:
            mark = self._read(environ)
            if mark is not None and self._signer is None and environ["REQUEST_METHOD"] in SAFE:
                self.gate.look(mark)
            elif mark is not None:
                leave = self.gate.acquire(mark, self._signer is not None)
                if self._marks is not None:
                    self._marks(mark)
        except HoldfastError as error:
            if leave is not None:
                leave()
            return tell_wsgi(start_response, problem(error))
        except BaseException:
            if leave is not None:
                leave()
            raise
        if mark is not None:
            environ["holdfast.mark"] = mark
        if leave is None:
            return self._app(environ, start_response)
        try:
            return _Body(self._app(environ, start_response), leave)
        except BaseException:
            leave()
            raise

    def _read(self, environ: Environ) -> Mark | None:
        if not self._warned:
            self._warn_once(bool(environ.get("wsgi.multiprocess")))
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        mark = parse(
            environ.get("HTTP_FENCING_TOKEN"),
            environ.get("HTTP_FENCING_RESOURCE"),
            environ.get("HTTP_FENCING_SIGNATURE"),
            self._required and environ["REQUEST_METHOD"] not in SAFE,
            self._signer,
            environ["REQUEST_METHOD"],
            path.encode("latin-1").decode("utf-8", "replace") or "/",
        )
        if self._resource is not None:
            check_resource(mark, self._resource(environ))
        return mark


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
