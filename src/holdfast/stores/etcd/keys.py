"""Where things stand in etcd, and what is written there.

    <prefix>/@in/<name> NUL <kind><holder>      somebody inside; the revision that created it is the token
    <prefix>/@line/<name> NUL <holder>          somebody in line, in the order of creation
    <prefix>/@out/<name>                        the last eviction
    <prefix>/@left/<name> NUL <holder>          somebody who left, and of whose claims one may still be on its way

No prefix contains an @ and no name a NUL, so two names, or two prefixes, never share a key. Values are JSON, for people with
etcdctl; a live claim's key ends with the secret that releases it, so read access to the prefix is for those who may write.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, NamedTuple

from ...claim import MAX_TOKEN, Claim
from ...rule import EVERYBODY
from .replies import KeyValue

# Kinds of those inside, in this order: what stands in a reader's way is a range, from PART on.
READER, PART, WHOLE = b"r", b"s", b"w"
_END = b"x"
Span = tuple[bytes, bytes]  # from, up to but without


def kind_of(units: int, capacity: int) -> bytes:
    if units == capacity:
        return WHOLE
    return READER if capacity == EVERYBODY and units == 1 else PART


class Terms(NamedTuple):
    """What a key's value says of its claim."""

    owner: str
    units: int
    capacity: int
    ttl: float
    fair: bool
    note: str
    token: int  # 0: the revision that created the key
    since: int  # wall time in µs, by the clock of the client that wrote it: for people


class Places(NamedTuple):
    """The keys of one claim, and of whoever may be in its way."""

    kind: bytes
    inside: bytes
    ways: Span  # of those inside, the ones that may keep it out
    line: Span
    in_line: bytes
    left: bytes


class Keys:
    def __init__(self, prefix: str) -> None:
        self.root = f"{prefix}/".encode()
        self._inside = self.root + b"@in/"
        self._line = self.root + b"@line/"
        self._out = self.root + b"@out/"
        self._left = self.root + b"@left/"
        self.of = lru_cache(4096)(self._of)
        self.terms = lru_cache(1024)(_pack)

    def _of(self, name: str) -> tuple[bytes, bytes]:
        """What the keys of those inside, and of those in line, begin with."""
        text = name.encode()
        return self._inside + text + b"\0", self._line + text + b"\0"

    def inside(self, claim: Claim) -> bytes:
        return self.of(claim.name)[0] + kind_of(claim.units, claim.capacity) + claim.holder.encode()

    def anywhere(self, claim: Claim) -> list[bytes]:
        """Its key inside, of whatever kind: it may have been downgraded."""
        return [self.of(claim.name)[0] + kind + claim.holder.encode() for kind in (WHOLE, PART, READER)]

    def in_line(self, claim: Claim) -> bytes:
        return self.of(claim.name)[1] + claim.holder.encode()

    def left(self, claim: Claim) -> bytes:
        return self._left + claim.name.encode() + b"\0" + claim.holder.encode()

    def places(self, claim: Claim) -> Places:
        start, line = self.of(claim.name)
        kind = kind_of(claim.units, claim.capacity)
        ways, everybody_waiting = in_the_way(start, kind), everybody(line)
        return Places(kind, self.inside(claim), ways, everybody_waiting, self.in_line(claim), self.left(claim))

    def evicted(self, name: str) -> bytes:
        return self._out + name.encode()

    def value(self, claim: Claim, wall_us: int, token: int = 0) -> bytes:
        return self.terms(claim.owner, claim.units, claim.capacity, claim.ttl, claim.fair, claim.note) + (
            b'"token":%d,"since":%d}' % (token, wall_us)
        )

    def spans(self, prefix: str) -> tuple[Span, Span]:
        """All keys of those inside, and of those in line, of names that begin so."""
        text = prefix.encode()
        return (self._inside + text, after(self._inside + text)), (self._line + text, after(self._line + text))

    def name_of(self, key: bytes) -> str | None:
        """None: somebody else put it there."""
        start = len(self._inside) if key.startswith(self._inside) else len(self._line)
        name, end, _ = key[start:].partition(b"\0")
        try:
            return name.decode() if end else None
        except UnicodeDecodeError:
            return None


def everybody(start: bytes) -> Span:
    """All that begin with `start`, which ends with NUL."""
    return start, start[:-1] + b"\1"


def in_the_way(start: bytes, kind: bytes) -> Span:
    """Of those inside, the ones that may keep out a claim of this kind. Readers are no matter to a reader."""
    return (start + PART, start + _END) if kind == READER else everybody(start)


def after(start: bytes) -> bytes:
    """The first key that does not begin with `start`, whose last byte is never 0xff."""
    return start[:-1] + bytes((start[-1] + 1,))


def _pack(owner: str, units: int, capacity: int, ttl: float, fair: bool, note: str) -> bytes:
    said = {"owner": owner, "units": units, "capacity": capacity, "ttl": ttl, "fair": fair, "note": note}
    return json.dumps(said, separators=(",", ":"))[:-1].encode() + b","


def read_terms(found: KeyValue) -> Terms:
    said = read_json(found)
    return Terms(*(_plausible(said.get(field), default) for field, default in _DEFAULTS.items()))


def token_of(found: KeyValue, terms: Terms) -> int:
    return terms.token or found.created


def read_json(found: KeyValue) -> dict[str, Any]:
    """Whatever somebody put there: what is not ours counts as a claim of unknown terms, and is not an error."""
    try:
        said = json.loads(found.value)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def read_number(said: dict[str, Any], field: str, default: int = 0) -> int:
    number: int = _plausible(said.get(field), default)
    return number


def _plausible(value: Any, default: Any) -> Any:
    """What was said, if it is of the kind of the default; a number, if it is no lower than that (0, or 1 for units)."""
    if isinstance(default, (str, bool)):
        return value if type(value) is type(default) else default
    kinds = (int, float) if isinstance(default, float) else (int,)
    return value if type(value) in kinds and min(default, 1) <= value <= MAX_TOKEN else default


_DEFAULTS: dict[str, Any] = {
    "owner": "?",
    "units": 1,
    "capacity": 1,
    "ttl": 0.0,
    "fair": True,
    "note": "",
    "token": 0,
    "since": 0,
}
