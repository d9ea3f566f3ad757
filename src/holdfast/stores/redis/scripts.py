"""The Lua scripts, each a constant. They are known to the server by their SHA-1, and sent whole when it has forgotten."""

from __future__ import annotations

import hashlib
from pathlib import Path

from .keys import pack, word

_FOLDER = Path(__file__).parent


class Script:
    """One script. `call` makes a request of it, given its packed keys and arguments."""

    def __init__(self, file: str, keys: int, arguments: int, folder: Path = _FOLDER) -> None:
        self.name = file.removesuffix(".lua")
        self.text = read(folder, file)
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()
        self._keys = keys
        self.arguments = arguments
        self.head = self.with_arguments(arguments)
        self.load = pack(b"SCRIPT", b"LOAD", self.text)

    def with_arguments(self, count: int) -> bytes:
        """How a request begins that passes so many arguments."""
        return b"*%d\r\n$7\r\nEVALSHA\r\n%b" % (3 + self._keys + count, word(self.sha))

    def call(self, counted_keys: bytes, *arguments: bytes) -> bytes:
        return b"".join((self.head, counted_keys, *map(word, arguments)))

    def call_many(self, keys: bytes, key_count: int, arguments: bytes, argument_count: int) -> bytes:
        """With as many keys and arguments as it takes, packed by the caller."""
        start = b"*%d\r\n$7\r\nEVALSHA\r\n%b" % (3 + key_count + argument_count, word(self.sha))
        return b"".join((start, word(b"%d" % key_count), keys, arguments))


def read(folder: Path, file: str) -> bytes:
    """A script's text, with what it includes."""
    lines = (folder / file).read_bytes().split(b"\n")
    for at, line in enumerate(lines):
        if line.startswith(b"-- include "):
            lines[at] = read(folder, line.removeprefix(b"-- include ").decode())
    return b"\n".join(lines)


CLAIM = Script("claim.lua", 4, 5)
JOIN = CLAIM.with_arguments(8)  # the same, with what it takes to join the line
RELEASE = Script("release.lua", 4, 2)
RENEW = Script("renew.lua", 0, 0)
RENEW_MANY = Script("renew_many.lua", 4, 4)
WATCH = Script("watch.lua", 4, 3)
WANTED = Script("wanted.lua", 4, 5)
EVICT = Script("evict.lua", 5, 4)
INSPECT = Script("inspect.lua", 5, 0)
KINDS = Script("kinds.lua", 0, 0)

# Loaded together whenever a server turns out not to know one of them.
ALL = (CLAIM, RELEASE, RENEW, RENEW_MANY, WATCH, WANTED, EVICT, INSPECT, KINDS)
