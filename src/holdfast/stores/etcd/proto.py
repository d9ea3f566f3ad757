"""The dozen messages of etcd's API that are needed, as protobuf puts them on the wire.

Written by hand: generated code would bring protobuf's runtime, and with it its quarrels over versions and over files of one
name. A request is bytes; of a reply, only the fields that somebody reads are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...secret import SecretBytes

TXN = b"/etcdserverpb.KV/Txn"
RANGE = b"/etcdserverpb.KV/Range"
LEASE_GRANT = b"/etcdserverpb.Lease/LeaseGrant"
LEASE_REVOKE = b"/etcdserverpb.Lease/LeaseRevoke"
LEASE_KEEP_ALIVE = b"/etcdserverpb.Lease/LeaseKeepAlive"
LEASE_TIME_TO_LIVE = b"/etcdserverpb.Lease/LeaseTimeToLive"
WATCH = b"/etcdserverpb.Watch/Watch"
AUTHENTICATE = b"/etcdserverpb.Auth/Authenticate"

EQUAL, LESS = 0, 2
CREATE, MOD = 1, 2  # targets of a compare
ASCEND, DESCEND = 1, 2
_BY_CREATION = 2


# ---- writing


_SMALL = [bytes((value,)) for value in range(128)]


def varint(value: int) -> bytes:
    if value < 128:
        return _SMALL[value]
    if value < 1 << 14:  # nearly all lengths
        return bytes((value & 127 | 128, value >> 7))
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value) if value else b""


def data(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def compare(key: bytes, target: int, result: int, revision: int, range_end: bytes = b"") -> bytes:
    """True if all keys of the range (or the one key) compare so; a key that is not there has revisions of 0."""
    revision_field = 4 + target  # create_revision is 5, mod_revision is 6
    parts = number(1, result) + number(2, target) + data(3, key) + varint(revision_field << 3) + varint(revision)
    return parts + (data(64, range_end) if range_end else b"")


def range_of(
    key: bytes,
    range_end: bytes = b"",
    *,
    limit: int = 0,
    order: int = 0,
    keys_only: bool = False,
    created_before: int = 0,
) -> bytes:
    """What to read; in `order` of creation, if one is given."""
    parts = data(1, key) + (data(2, range_end) if range_end else b"") + number(3, limit)
    if order:
        parts += number(5, order) + number(6, _BY_CREATION)
    return parts + number(8, keys_only) + number(13, created_before - 1 if created_before else 0)


def op_range(request: bytes) -> bytes:
    return data(1, request)


def op_put(key: bytes, value: bytes, lease: int) -> bytes:
    return data(2, data(1, key) + data(2, value) + number(3, lease))


def op_delete(key: bytes) -> bytes:
    return data(3, data(1, key))


def op_txn(transaction: bytes) -> bytes:
    return data(4, transaction)


def txn(compares: list[bytes], success: list[bytes], failure: list[bytes] | None = None) -> bytes:
    parts = [data(1, one) for one in compares]
    parts += [data(2, one) for one in success]
    parts += [data(3, one) for one in failure or ()]
    return b"".join(parts)


def lease_grant(seconds: int, lease: int) -> bytes:
    return number(1, seconds) + number(2, lease)


def lease_id(lease: int) -> bytes:
    return number(1, lease)


def time_to_live(lease: int, *, keys: bool) -> bytes:
    return number(1, lease) + number(2, keys)


def watch_create(watch_id: int, key: bytes, range_end: bytes) -> bytes:
    """From now on."""
    parts = data(1, key) + (data(2, range_end) if range_end else b"") + number(7, watch_id)
    return data(1, parts)


def watch_cancel(watch_id: int) -> bytes:
    return data(2, number(1, watch_id))


def login(name: str, password: str) -> bytes:
    return SecretBytes(data(1, name.encode()) + data(2, password.encode()))


# ---- reading


class Garbled(Exception):
    """That is no answer of etcd's."""


_DEEPEST = 8  # a transaction in a gathering in a transaction: more than we ever ask


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Field by field. Fixed-width fields, which etcd does not use here, are skipped."""
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield tag >> 3, value
        elif kind == 2:
            size, at = _varint(message, at)
            if size > end - at:
                raise Garbled("a field is longer than its message")
            yield tag >> 3, message[at : at + size]
            at += size
        else:
            at += 8 if kind == 1 else 4


def _varint(message: bytes, at: int) -> tuple[int, int]:
    try:
        value = message[at]
        at += 1
        if value < 128:
            return value, at
        value &= 127
        for shift in range(7, 70, 7):
            more = message[at]
            at += 1
            value |= (more & 127) << shift
            if more < 128:
                return value, at
    except IndexError:
        raise Garbled("a message ends within a number") from None
    raise Garbled("a number without end")


class Header(NamedTuple):
    revision: int = 0
    term: int = 0


class KeyValue(NamedTuple):
    key: bytes = b""
    created: int = 0  # revisions
    modified: int = 0
    value: bytes = b""
    lease: int = 0


class Ranged(NamedTuple):
    found: tuple[KeyValue, ...] = ()
    more: bool = False


class Done(NamedTuple):
    """A transaction's outcome. `answers`: a Ranged, the number of keys deleted, a Done, or None for a put."""

    succeeded: bool
    answers: tuple[Ranged | int | Done | None, ...]
    header: Header

    def ranged(self, index: int) -> tuple[KeyValue, ...]:
        answer = self.answers[index] if 0 <= index < len(self.answers) else None
        if not isinstance(answer, Ranged):
            raise Garbled("an answer is not of the kind that was asked for")
        return answer.found


class Leased(NamedTuple):
    """The answer to a grant, a keep-alive or a question for the time to live. A ttl of 0 or less: there is no such lease."""

    lease: int
    ttl: int
    header: Header
    keys: tuple[bytes, ...] = ()


class Heard(NamedTuple):
    """What a watch is told."""

    watch_id: int
    revision: int
    created: bool
    canceled: bool
    events: bool
    reason: str


def _bytes(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise Garbled("a number, where there should be text")
    return value


def _int(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise Garbled("text, where there should be a number")
    return value - 2**64 if value >= 2**63 else value


def _header(message: bytes) -> Header:
    found = dict(fields(message))
    return Header(_int(found.get(3, 0)), _int(found.get(4, 0)))


def _key_value(message: bytes) -> KeyValue:
    got = dict(fields(message))
    return KeyValue(
        _bytes(got.get(1, b"")),
        _int(got.get(2, 0)),
        _int(got.get(3, 0)),
        _bytes(got.get(5, b"")),
        _int(got.get(6, 0)),
    )


def read_range(message: bytes) -> Ranged:
    found = []
    more = False
    for field, value in fields(message):
        if field == 2:
            found.append(_key_value(_bytes(value)))
        elif field == 3:
            more = bool(value)
    return Ranged(tuple(found), more)


def read_txn(message: bytes, deep: int = 0) -> Done:
    if deep > _DEEPEST:
        raise Garbled("transactions within transactions")
    header, succeeded = Header(), False
    answers: list[Ranged | int | Done | None] = []
    read: dict[int | bytes, Ranged | int | Done | None] = {}  # of many that entered together, all are answered alike
    for field, value in fields(message):
        if field == 1:
            header = _header(_bytes(value))
        elif field == 2:
            succeeded = bool(value)
        else:
            if value not in read:
                read[value] = _answer(_bytes(value), deep)
            answers.append(read[value])
    return Done(succeeded, tuple(answers), header)


def _answer(message: bytes, deep: int) -> Ranged | int | Done | None:
    for field, value in fields(message):
        if field == 1:
            return read_range(_bytes(value))
        if field == 3:
            return _int(dict(fields(_bytes(value))).get(2, 0))
        if field == 4:
            return read_txn(_bytes(value), deep + 1)
    return None


def read_lease(message: bytes, *, keys: bool = False) -> Leased:
    header, lease, ttl = Header(), 0, 0
    attached = []
    for field, value in fields(message):
        if field == 1:
            header = _header(_bytes(value))
        elif field == 2:
            lease = _int(value)
        elif field == 3:
            ttl = _int(value)
        elif field == 5 and keys:
            attached.append(_bytes(value))
    return Leased(lease, ttl, header, tuple(attached))


def read_watch(message: bytes) -> Heard:
    watch_id, revision, created, canceled, events, reason = 0, 0, False, False, False, ""
    for field, value in fields(message):
        if field == 1:
            revision = _header(_bytes(value)).revision
        elif field == 2:
            watch_id = _int(value)
        elif field == 3:
            created = bool(value)
        elif field == 4:
            canceled = bool(value)
        elif field == 6:
            reason = _bytes(value).decode(errors="replace")
        elif field == 11:
            events = True
    return Heard(watch_id, revision, created, canceled, events, reason)


def read_login(message: bytes) -> bytes:
    return _bytes(dict(fields(message)).get(2, b""))
