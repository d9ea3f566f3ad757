"""What the header Idempotency-Key says, what is kept of an answer, and what is told to who is refused. No framework in here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Any, NamedTuple

from ...errors import HoldfastError, InFlight, KeyReused, Misuse, StaleToken, Unstorable
from ...problems import Problem, Refusal, described, refused

HEADER = "Idempotency-Key"
REPLAYED = "idempotency-replayed"
METHODS = ("POST", "PATCH")
MAX_KEY = 255
MAX_BODY = 1_000_000  # of a request: it has to be read whole, to be compared with that of the next
# Answers about this moment or this login, not about the work: the same request may well succeed later.
PASSING = frozenset({401, 403, 408, 409, 423, 425, 429})
# What belongs to one connection or to one login, and must not be handed to whoever repeats the request (RFC 9110, 7.6.1).
UNREPEATABLE = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "set-cookie",
        "set-cookie2",
        "clear-site-data",
        "authorization",
        "authentication-info",
        "www-authenticate",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
    }
)


class TooMuch(HoldfastError):
    """The request's body is larger than what is read to compare it."""


class Unbounded(HoldfastError):
    """Nobody says where the request's body ends, so it cannot be read."""


class CutOff(HoldfastError):
    """The request's body ended before its end: its client went away."""


class Failed(Exception):
    """The handler's answer is not one to keep: the next may try again."""


def read_key(values: Sequence[str | bytes], caller: str | None) -> str | None:
    """The name under which it is kept; None if there is no such header. Keys of different callers never meet, nor those of a
    caller and of nobody: each has a segment of its own, in which nothing that a client sends appears as it is."""
    if not values:
        return None
    if len(values) > 1:
        raise Misuse(f"the header {HEADER} is given {len(values)} times: which one counts?")
    key = values[0].decode("latin-1") if isinstance(values[0], bytes) else values[0]
    key = key.strip()
    ends = ","  # what WSGI servers and proxies put between two: then which one counts, here as above?
    if len(key) > 1 and key[0] == key[-1] == '"':  # a string, as the draft of the IETF writes it
        key, ends = key[1:-1], '"'
    if ends in key:
        raise Misuse(f"the header {HEADER} is given once, and in quotes if there is a comma in it")
    if not key or len(key) > MAX_KEY or not (key.isascii() and key.isprintable()):
        raise Misuse(f"the header {HEADER} must have 1 to {MAX_KEY} printable characters; a UUID is a good one")
    return f"http:caller:{sha256(caller.encode()).hexdigest()}:{key}" if caller else f"http:anybody:{key}"


def payload_of(method: str, path: str, query: str | bytes, body: bytes) -> bytes:
    question = query.decode("latin-1") if isinstance(query, bytes) else query
    return json.dumps([method, path, question, sha256(body).hexdigest()]).encode()


class Answer(NamedTuple):
    status: str | int  # WSGI has a line, ASGI a number
    headers: list[tuple[str, str]]
    body: bytes | None  # None: too large to be kept


def answer(status: str | int, headers: Sequence[tuple[str, str]], body: bytes | None) -> Answer:
    """What is kept of an answer: all but the headers that are for one connection or one login."""
    named = {one.strip().lower() for name, value in headers if name.lower() == "connection" for one in value.split(",")}
    unrepeatable = UNREPEATABLE | named
    return Answer(status, [(name, value) for name, value in headers if name.lower() not in unrepeatable], body)


class AnswerCodec:
    """A line of JSON, and the body as it is."""

    def dumps(self, answer: Answer, /) -> bytes:
        if answer.body is None:
            raise ValueError("the answer is larger than the limit")
        return json.dumps([answer.status, answer.headers]).encode() + b"\n" + answer.body

    def loads(self, kept: bytes, /) -> Answer:
        head, _, body = kept.partition(b"\n")
        status, headers = json.loads(head)
        return Answer(status, [(name, value) for name, value in headers], body)


ANSWERS = AnswerCodec()


class Recorder:
    """The chunks of a body, as long as they can be kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0

    def add(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size <= self._limit:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()  # nothing grows without bound: the client gets it all, but it is not kept

    @property
    def body(self) -> bytes | None:
        return b"".join(self._chunks) if self._size <= self._limit else None


class Reception:
    """What the middlewares for ASGI and WSGI have in common: whom they ask for a key, and how much they read."""

    def __init__(
        self,
        app: Any,
        keys: Any,
        *,
        caller: Callable[[Any], str | None] | None,
        methods: Sequence[str] = METHODS,
        required: bool = True,
        keep: Callable[[int], bool] | None = None,
        wait: float = 0.0,
        max_body: int = MAX_BODY,
    ) -> None:
        """`caller` tells who asks (of the scope or environ), so that nobody is given the answer to somebody else's request;
        None, or a caller that is None, is anybody: whoever presents the key gets the answer. `keep` says of a status whether
        the answer is kept, if that is in question at all: 401, 403, 408, 409, 423, 425, 429 and server errors never are.
        `wait`: for so many seconds, before 409."""
        if caller is not None and not callable(caller):
            raise Misuse(f"caller must be a function that tells who asks, or None for anybody, not {caller!r:.80}")
        self._app = app
        self._keys = keys._with(codec=ANSWERS, atomic=False, timeout=wait)
        self._limit: int = keys._rules.limit
        self._ttl: float = keys._rules.ttl
        self._methods = frozenset(methods)
        self._required = required
        self._caller = caller
        self._keep = keep
        self._max_body = max_body

    def _key(self, values: Sequence[str | bytes], asked: Any) -> str | None:
        caller = self._caller(asked) if self._caller and values else None
        if caller is not None and not isinstance(caller, str):  # no fault of the client's, so no answer of 400
            raise TypeError(f"caller must tell who asks as a str, not as {type(caller).__name__}")
        return read_key(values, caller)

    def _keeps(self, status: str | int) -> bool:
        code = int(str(status)[:3])
        return code < 500 and code not in PASSING and (self._keep is None or bool(self._keep(code)))

    def _checked(self, size: int) -> None:
        if size > self._max_body:
            raise TooMuch(f"a request with the header {HEADER} may have {self._max_body} bytes")


def missing() -> Problem:
    detail = f"this request needs the header {HEADER}: a new one for each operation, the same for each repetition of it"
    return described(HTTPStatus.BAD_REQUEST, f"{HEADER} is missing", detail, [])


REFUSALS = (
    Refusal(KeyReused, HTTPStatus.UNPROCESSABLE_ENTITY, f"{HEADER} was used for another request"),
    Refusal(InFlight, HTTPStatus.CONFLICT, "The same request is being worked on", passing=True),
    Refusal(StaleToken, HTTPStatus.CONFLICT, "The request took too long and was taken over", passing=True),
    Refusal(Unstorable, HTTPStatus.CONFLICT, "The request was carried out, but its answer was not kept"),
    Refusal(TooMuch, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The request is too large"),
    Refusal(Unbounded, HTTPStatus.LENGTH_REQUIRED, "The request has no length"),
    Refusal(CutOff, HTTPStatus.BAD_REQUEST, "The request was cut off"),
    Refusal(Misuse, HTTPStatus.BAD_REQUEST, f"{HEADER} is malformed"),
    Refusal(HoldfastError, HTTPStatus.SERVICE_UNAVAILABLE, "Idempotency keys are not available", passing=True),
)


def problem(error: HoldfastError) -> Problem:
    return refused(error, REFUSALS)
