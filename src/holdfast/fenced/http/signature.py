"""Signed tokens: (resource, token, method, path, expiry) under an HMAC, so that nobody can shut the others out with a huge
number, and a signature that was seen on its way opens no other door.

Whoever hands out the leases signs; whoever guards the storage verifies. Keys have names, so that they can be changed:
add the new key everywhere, then sign with it, then remove the old one.
"""

from __future__ import annotations

import hmac
import math
import re
import time
from collections.abc import Mapping
from hashlib import sha256
from urllib.parse import quote

from ...errors import HoldfastError, Misuse
from ..mark import Mark, Ticket, mark_of

MIN_SECRET = 16  # bytes
ANY = "*"
_PATH = "/*:@!$&'()+,=~"  # what stands for itself in a path, but for the semicolon
_FORM = re.compile(r"([A-Za-z0-9_.-]{1,64});([0-9]{1,12});([A-Z]{1,20}|\*);([!-:<-~]{1,4096});([0-9a-f]{64})", re.ASCII)
# Also for whoever decodes once more, and for who takes a backslash for a slash.
_WAY_OUT = re.compile(r"(/|%252f|%(25)?5c)(\.|%252e){2}", re.ASCII | re.IGNORECASE)


class BadSignature(HoldfastError):
    """The signature is missing, wrong, out of date, or by a key that is not known."""


class Signer:
    """Signs with the key named `current` (the last one, unless said) and verifies with any of them."""

    def __init__(self, keys: Mapping[str, bytes], current: str | None = None) -> None:
        if not keys:
            raise Misuse("a signer needs at least one key")
        for name, secret in keys.items():
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name, re.ASCII):
                raise Misuse(f"the name of a key may have letters, digits, _ . and -, not {name!r:.80}")
            if not isinstance(secret, bytes) or len(secret) < MIN_SECRET:
                raise Misuse(f"the key {name!r} must be at least {MIN_SECRET} bytes; secrets.token_bytes(32) makes one")
        self._keys = dict(keys)
        self._current = current if current is not None else list(self._keys)[-1]
        if self._current not in self._keys:
            raise Misuse(f"there is no key {self._current!r} to sign with")

    def sign(self, ticket: Ticket, method: str, path: str, ttl: float = 300.0) -> str:
        """What goes into the header `Fencing-Signature`: good for this method and path (without the query) and for `ttl`
        seconds by the verifier's clock. `*` is any method; a path that ends in `*` is all that begin like it."""
        if not 0 < ttl < math.inf:
            raise Misuse(f"a signature must be good for some seconds, not {ttl!r}")
        expiry = int(time.time() + ttl) + 1
        good_for = f"{method.upper()};{quote(path, safe=_PATH)}"
        digest = _digest(self._keys[self._current], mark_of(ticket), good_for, expiry)
        signature = f"{self._current};{expiry};{good_for};{digest}"
        if _FORM.fullmatch(signature) is None:
            raise Misuse(f"a signature is for a method such as PUT and for a path, not for {method!r:.40} {path!r:.80}")
        return signature

    def verify(self, mark: Mark, signature: str, method: str, path: str) -> None:
        """`BadSignature` unless it is ours, for this resource, token, method and path, and in time."""
        form = _FORM.fullmatch(signature)
        if form is None:
            raise BadSignature("the signature is malformed")
        name, expiry, digest = form[1], int(form[2]), form[5]
        # An unknown key is computed as well, so that the time taken does not tell which keys there are.
        secret = self._keys.get(name, bytes(32))
        good = hmac.compare_digest(_digest(secret, mark, f"{form[3]};{form[4]}", expiry), digest)
        if not good or name not in self._keys:
            raise BadSignature("the signature is not by a known key, or not for this resource and token")
        if time.time() >= expiry:
            raise BadSignature("the signature is out of date: ask for a new one")
        if not _covers(form[3], form[4], method, path):
            raise BadSignature("the signature is good for another method or path")


def _covers(methods: str, paths: str, method: str, path: str) -> bool:
    if methods not in (ANY, method.upper()):
        return False
    # What was no UTF-8 all looks the same by now, and may be another path than the one that was signed.
    if "\ufffd" in path or any("\ud800" <= letter <= "\udfff" for letter in path):
        return False
    asked = quote(path, safe=_PATH)
    # What a server might take for a way out of the prefix is not covered by it.
    if paths.endswith(ANY):
        return asked.startswith(paths[:-1]) and _WAY_OUT.search(asked) is None
    return asked == paths


def _digest(secret: bytes, mark: Mark, good_for: str, expiry: int) -> str:
    name = mark.resource.encode()
    # The length makes it unambiguous where the name ends; what it is good for has no zero bytes.
    message = b"holdfast fencing 2\0%d\0%s\0%d\0%s\0%d" % (len(name), name, mark.token, good_for.encode(), expiry)
    return hmac.new(secret, message, sha256).hexdigest()
