"""What a request says of its lease, and what is answered to one that is refused. No framework in here."""

from __future__ import annotations

import logging
from functools import lru_cache
from http import HTTPStatus
from urllib.parse import quote, unquote

from ...errors import HoldfastError, Misuse, StaleToken, Unavailable
from ...problems import Problem, Refusal, refused
from ..mark import MAX_MARK, Mark, mark_of
from .gate import TooFar
from .signature import BadSignature, Signer

TOKEN, RESOURCE, SIGNATURE = "Fencing-Token", "Fencing-Resource", "Fencing-Signature"
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
log = logging.getLogger("holdfast.fenced")
_DIGITS = len(str(MAX_MARK))


class TokenMissing(HoldfastError):
    """The request must say under which lease it is made."""


class OtherResource(HoldfastError):
    """The token is for another resource than the one that the request is about."""


def encode(resource: str) -> str:
    """A name as a header may carry it."""
    return quote(resource, safe="")


def parse(
    token: str | bytes | None,
    resource: str | bytes | None,
    signature: str | None,
    required: bool,
    signer: Signer | None,
    method: str,
    path: str,
) -> Mark | None:
    """The mark of a request, None if it carries none and need not; raises what `problem` can put into words."""
    if token is None or resource is None:
        if token is None and resource is None and not required:
            return None
        raise TokenMissing(f"this request needs the headers {TOKEN} and {RESOURCE}")
    mark = read_mark(token, resource)
    if signer is not None:
        if signature is None:
            raise BadSignature(f"this request needs the header {SIGNATURE}")
        signer.verify(mark, signature, method, path)
    return mark


def check_resource(mark: Mark | None, wanted: str | None) -> None:
    if mark is not None and wanted is not None and mark.resource != wanted:
        raise OtherResource(f"this request is about {wanted!r}; the token is for {mark.resource!r}")


def warn_of_workers() -> None:
    log.warning(
        "this service runs in several processes, and each keeps the marks of its own requests only: pass `marks` to the "
        "FencingMiddleware, so that they are kept in Redis or in a database for all of them"
    )


@lru_cache(maxsize=4096)  # a holder makes many requests, and they all say the same
def read_mark(token: str | bytes, resource: str | bytes) -> Mark:
    """What the two headers say, or `Misuse`."""
    digits = token.decode("latin-1") if isinstance(token, bytes) else token
    name = resource.decode("latin-1") if isinstance(resource, bytes) else resource
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _DIGITS or digits[0] == "0":
        raise Misuse(f"{TOKEN} must be a whole number from 1 to {MAX_MARK}, in digits only")
    if "," in name:  # what servers and proxies make of a header that is given twice: then which one counts?
        raise Misuse(f"{RESOURCE} must be given once, percent-encoded: a comma is %2C")
    try:
        name = unquote(name, errors="strict") if "%" in name else name
    except UnicodeDecodeError:
        raise Misuse(f"{RESOURCE} must be UTF-8, percent-encoded") from None
    return mark_of((name, int(digits)))


def refuse_repeated(names: list[bytes]) -> None:
    """Of two tokens, which one would count? A proxy before us might have looked at the other."""
    ours = [name for name in names if name.startswith(b"fencing-")]
    if len(set(ours)) < len(ours):  # in one pass: a stranger may send thousands
        raise Misuse("a fencing header is given twice")


REFUSALS = (
    Refusal(StaleToken, HTTPStatus.CONFLICT, "Stale fencing token"),
    Refusal(TokenMissing, HTTPStatus.PRECONDITION_REQUIRED, "Fencing token required"),
    Refusal(OtherResource, HTTPStatus.FORBIDDEN, "Fencing token of another resource"),
    Refusal(BadSignature, HTTPStatus.FORBIDDEN, "Bad fencing signature"),
    Refusal(TooFar, HTTPStatus.UNPROCESSABLE_ENTITY, "Fencing token too far ahead"),
    Refusal(Unavailable, HTTPStatus.SERVICE_UNAVAILABLE, "An older holder is still being served", passing=True),
    Refusal(HoldfastError, HTTPStatus.BAD_REQUEST, "Malformed fencing token"),
)


def problem(error: HoldfastError) -> Problem:
    if isinstance(error, StaleToken):
        about = {"resource": error.resource, "seen": error.seen, "presented": error.presented, "since": error.since}
        return refused(error, REFUSALS, **about)
    return refused(error, REFUSALS)
