"""What a request says of its lease, and what is answered to one that is refused. No framework in here."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import quote, unquote

from ...errors import HoldfastError, Misuse, StaleToken, Unavailable
from ..mark import MAX_TOKEN, Mark, mark_of
from .gate import TooFar
from .signature import BadSignature, Signer

TOKEN, RESOURCE, SIGNATURE = "Fencing-Token", "Fencing-Resource", "Fencing-Signature"
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_DIGITS = len(str(MAX_TOKEN))


class TokenMissing(HoldfastError):
    """The request must say under which lease it is made."""


class Problem(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes


def encode(resource: str) -> str:
    """A name as a header may carry it."""
    return quote(resource, safe="")


def parse(
    token: str | None, resource: str | None, signature: str | None, required: bool, signer: Signer | None
) -> Mark | None:
    """The mark of a request, None if it carries none and need not; raises what `problem` can put into words."""
    if token is None or resource is None:
        if token is None and resource is None and not required:
            return None
        raise TokenMissing(f"this request needs the headers {TOKEN} and {RESOURCE}")
    if not (token.isascii() and token.isdigit()) or len(token) > _DIGITS or token[0] == "0":
        raise Misuse(f"{TOKEN} must be a whole number from 1 to {MAX_TOKEN}, in digits only")
    try:
        name = unquote(resource, errors="strict") if "%" in resource else resource
    except UnicodeDecodeError:
        raise Misuse(f"{RESOURCE} must be UTF-8, percent-encoded") from None
    mark = mark_of((name, int(token)))
    if signer is not None:
        if signature is None:
            raise BadSignature(f"this request needs the header {SIGNATURE}")
        signer.verify(mark, signature)
    return mark


def problem(error: HoldfastError) -> Problem:
    """RFC 9457, problem+json."""
    extra: dict[str, object] = {}
    headers = []
    if isinstance(error, StaleToken):
        status, title = HTTPStatus.CONFLICT, "Stale fencing token"
        extra = {"resource": error.resource, "seen": error.seen, "presented": error.presented, "since": error.since}
    elif isinstance(error, TokenMissing):
        status, title = HTTPStatus.PRECONDITION_REQUIRED, "Fencing token required"
    elif isinstance(error, BadSignature):
        status, title = HTTPStatus.FORBIDDEN, "Bad fencing signature"
    elif isinstance(error, TooFar):
        status, title = HTTPStatus.UNPROCESSABLE_ENTITY, "Fencing token too far ahead"
    elif isinstance(error, Unavailable):
        status, title = HTTPStatus.SERVICE_UNAVAILABLE, "An older holder is still being served"
        headers = [("retry-after", "1")]
    else:
        status, title = HTTPStatus.BAD_REQUEST, "Malformed fencing token"
    about = {"type": "about:blank", "title": title, "status": int(status), "detail": str(error), **extra}
    body = json.dumps(about).encode()
    headers += [("content-type", "application/problem+json"), ("content-length", str(len(body)))]
    return Problem(int(status), headers, body)
