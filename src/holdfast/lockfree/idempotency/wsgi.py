"""WSGI middleware for the header Idempotency-Key: `app = IdempotencyMiddleware(app, keys, caller=who_asks)`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from http import HTTPStatus
from io import BytesIO
from typing import Any

from ...drivers.base import boot_time
from ...errors import HoldfastError, Unstorable
from ...problems import Environ, StartResponse, WsgiApp, tell_wsgi
from . import Once, Run
from .request import REPLAYED, CutOff, Failed, Reception, Recorder, Unbounded, answer, missing, payload_of, problem


class IdempotencyMiddleware(Reception):
    """A request with a key that was answered before gets that answer again: 400 if the key is missing, 409 while the first is
    being worked on, 422 if it came with another request. What is not kept may be tried again."""

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"].upper() not in self._methods:
            return self._pass(environ, start_response)
        try:
            given = environ.get("HTTP_IDEMPOTENCY_KEY")
            key = self._key([] if given is None else [given], environ)
            if key is None:
                return tell_wsgi(start_response, missing()) if self._required else self._pass(environ, start_response)
            body = self._body(environ)
            path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
            payload = payload_of(environ["REQUEST_METHOD"], path, environ.get("QUERY_STRING", ""), body)
            once = self._keys.once(key, payload)
            run = once.__enter__()
        except HoldfastError as error:
            return tell_wsgi(start_response, problem(error))
        if not run.first:
            once.__exit__(None, None, None)
            return _replay(start_response, run.result)
        environ["wsgi.input"] = BytesIO(body)
        return _First(self._app, environ, start_response, once, run, self)

    def _pass(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        passed: Iterable[bytes] = self._app(environ, start_response)
        return passed

    def _body(self, environ: Environ) -> bytes:
        length = environ.get("CONTENT_LENGTH") or ""
        if not (length.isascii() and length.isdigit()):
            if not environ.get("wsgi.input_terminated"):
                if environ.get("HTTP_TRANSFER_ENCODING"):
                    raise Unbounded("send the length of the body: this server does not tell where a chunked one ends")
                return b""
            length = ""
        self._checked(int(length or 0) if len(length) < 19 else sys.maxsize)  # Python reads no number of 5,000 digits
        wanted = int(length) if length else self._max_body + 1
        body: bytes = environ["wsgi.input"].read(wanted) if wanted else b""
        if length and len(body) < wanted:  # nothing of it is done, or remembered: the whole of it is yet to come
            raise CutOff(f"{len(body)} bytes of {wanted} have come")
        self._checked(len(body))
        return body


class _First:
    """Passes the answer on as it comes, all but its end: that is given when the answer is kept, so that no client believes in
    an answer that the next repetition would not get."""

    def __init__(
        self, app: WsgiApp, environ: Environ, start_response: StartResponse, once: Once, run: Run, rules: Reception
    ) -> None:
        self._app, self._environ, self._start_response = app, environ, start_response
        self._once, self._run = once, run
        self._recorder = Recorder(rules._limit)
        self._rules = rules
        self._until = boot_time() + rules._ttl
        self._head: tuple[str, list[tuple[str, str]]] | None = None
        self._written: list[bytes] = []  # by the callable that WSGI's start_response returns, for the old
        self._left = False
        self._chunks = self._work()

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        """Called by every server. If the client went away in the middle, the work is done and remembered all the same: to
        its end, or until the run counts as dead, since an answer may have no end."""
        for _ in self._chunks:
            if boot_time() >= self._until and not self._left:
                self._keep(None)
                self._chunks.close()

    def _started(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], None]:
        self._head = status, list(headers)
        return self._written.append

    def _work(self) -> Generator[bytes, None, None]:
        body: Iterable[bytes] = ()
        passed = False
        held: bytes | None = None
        try:
            body = self._app(self._environ, self._started)
            for chunk in body:
                for one in (*self._taken(), chunk):
                    self._recorder.add(one)
                    if held is not None:
                        passed = passed or self._start()
                        yield held
                    held = one
            for one in self._taken():
                self._recorder.add(one)
                held = (held or b"") + one
            self._keep(self._recorder.body)
        except BaseException as error:
            if not self._left:
                self._leave(error)
            raise
        finally:
            close = getattr(body, "close", None)
            if close is not None:
                close()
        if not passed:
            self._start()
        yield held or b""

    def _taken(self) -> list[bytes]:
        written, self._written[:] = list(self._written), []
        return written

    def _start(self) -> bool:
        assert self._head is not None
        self._start_response(*self._head)
        return True

    def _keep(self, body: bytes | None) -> None:
        if self._head is None:
            raise RuntimeError("the application did not call start_response")
        status, headers = self._head
        if not self._rules._keeps(status):
            self._leave(Failed())
            return
        self._run.result = answer(status, headers, body)
        with contextlib.suppress(Unstorable):  # it is remembered as done; this client gets its answer
            self._leave(None)

    def _leave(self, error: BaseException | None) -> None:
        self._left = True
        self._once.__exit__(type(error) if error else None, error, None)


def _replay(start_response: StartResponse, kept: Any) -> list[bytes]:
    status = kept.status
    line = status if isinstance(status, str) else f"{status} {HTTPStatus(status).phrase}"
    start_response(line, [*kept.headers, (REPLAYED, "true")])
    return [kept.body]
