"""Names as keys: injective, readable in redis-cli, and all keys of a name in one slot of a cluster."""

from __future__ import annotations

import re
import struct
from binascii import crc_hqx
from functools import lru_cache

SLOTS = 16384
_SPECIAL = re.compile(rb"[%{}\x00-\x20\x7f*?\[\]\\]")
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")

# After the state's own key, in the order in which the scripts take them.
PARTS = (b"", b":entries", b":ends", b":line", b":evicted")


def state_key(prefix: bytes, name: str) -> bytes:
    """`hf:{invoice:42}`. What would end the braces early, or trouble a terminal or a pattern, is escaped as in a URL."""
    return b"%b:{%b}" % (prefix, _SPECIAL.sub(lambda found: b"%%%02X" % ord(found[0]), name.encode()))


def name_of(prefix: bytes, key: bytes) -> str | None:
    """The name whose state this key is; None: it is no such key."""
    start = b"%b:{" % prefix
    if not key.startswith(start) or not key.endswith(b"}"):
        return None
    try:
        return _ESCAPED.sub(lambda found: bytes((int(found[1], 16),)), key[len(start) : -1]).decode()
    except UnicodeDecodeError:
        return None


def slot(key: bytes) -> int:
    """Where a cluster keeps it: decided by what is between the braces."""
    start = key.index(b"{") + 1
    return crc_hqx(key[start : key.index(b"}", start)], 0) % SLOTS


def word(text: bytes) -> bytes:
    """One word of a request."""
    return b"$%d\r\n%b\r\n" % (len(text), text)


def pack(*words: bytes | str | int) -> bytes:
    """A request, as the server reads it."""
    parts = [text if type(text) is bytes else str(text).encode() for text in words]
    return b"*%d\r\n" % len(parts) + b"".join(map(word, parts))


def message_pack(*values: int | bytes) -> bytes:
    """MessagePack, as much of it as the scripts are sent."""
    parts = []
    for value in values:
        if type(value) is bool:
            parts.append(b"\xc3" if value else b"\xc2")
        elif type(value) is bytes:
            parts.append(b"\xdb" + len(value).to_bytes(4, "big") + value)
        else:
            parts.append(struct.pack(">Bq", 0xD3, value))
    return b"".join(parts)


class NameKeys:
    """The keys of names, packed once: most programs take the same few locks again and again."""

    def __init__(self, prefix: bytes) -> None:
        def packed(name: str, count: int) -> bytes:
            state = state_key(prefix, name)
            return b"$1\r\n%d\r\n" % count + b"".join(word(state + part) for part in PARTS[:count])

        def bare(name: str, count: int) -> bytes:
            state = state_key(prefix, name)
            return b"".join(word(state + part) for part in PARTS[:count])

        self.counted = lru_cache(4096)(packed)  # with their count in front, as EVALSHA takes them
        self.bare = lru_cache(16384)(bare)  # as part of a longer list
