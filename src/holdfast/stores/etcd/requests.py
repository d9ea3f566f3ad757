"""What is asked of etcd, as protobuf puts it on the wire: a request is bytes.

Written by hand: generated code would bring protobuf's runtime, and with it its quarrels over versions and over files of one
name. It is a dozen messages.
"""

from __future__ import annotations

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
    if 0 < value < 128 and field < 16:
        return bytes((field << 3, value))
    return varint(field << 3) + varint(value) if value else b""


def data(field: int, value: bytes) -> bytes:
    size = len(value)
    if size < 128 and field < 16:
        return bytes((field << 3 | 2, size)) + value
    return varint(field << 3 | 2) + varint(size) + value


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
