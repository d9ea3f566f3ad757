"""One Redis without its connections: data, scripts, and what a client's words do to them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from .keyspace import COMMANDS, OK, Keyspace, Refused, Status
from .lua import lua

Publish = Callable[[bytes, bytes], int]


class Execution:
    def __init__(self, now_us: Callable[[], int], publish: Publish, changed: Callable[[bytes], object]) -> None:
        self.space = Keyspace(now_us, changed)
        self.scripts: dict[bytes, bytes] = {}
        self._publish = publish
        self._lua = lua()
        self._methods = {word: (getattr(self.space, name), count) for word, (name, count) in COMMANDS.items()}

    def __call__(self, words: Sequence[bytes]) -> Any:
        """A command of those that a script may give, too."""
        found = self._methods.get(words[0]) or self._methods.get(words[0].upper())
        if found is not None:
            method, count = found
            given = len(words) - 1
            if given != count and (count >= 0 or given < -count):
                raise Refused(f"ERR wrong number of arguments for '{words[0].decode().lower()}' command")
            return method(*words[1:])
        name = words[0].upper()
        if name == b"PUBLISH" and len(words) == 3:
            return self._publish(words[1], words[2])
        if name == b"PING":
            return words[1] if len(words) > 1 else Status(b"PONG")
        raise Refused(f"ERR unknown command '{words[0].decode('latin-1')}', with args beginning with: ")

    def ask(self, words: Sequence[bytes]) -> Any:
        """Any command that is about data and scripts."""
        name = words[0].upper()
        if name == b"EVALSHA" and len(words) > 2:
            sha = words[1].lower()
            if sha not in self.scripts:
                raise Refused("NOSCRIPT No matching script. Please use EVAL.")
            return self._evaluate(sha, words[2:])
        if name == b"EVAL" and len(words) > 2:
            return self._evaluate(self._load(words[1]), words[2:])
        if name == b"SCRIPT" and len(words) > 1:
            return self._script(words[1].upper(), words[2:])
        return self(words)

    def _evaluate(self, sha: bytes, words: Sequence[bytes]) -> Any:
        count, words = int(words[0]), words[1:]
        if count < 0:
            raise Refused("ERR Number of keys can't be negative")
        if count > len(words):
            raise Refused("ERR Number of keys can't be greater than number of args")
        return self._lua.run(sha, words[:count], words[count:], self)

    def _script(self, what: bytes, words: Sequence[bytes]) -> Any:
        if what == b"LOAD" and len(words) == 1:
            return self._load(words[0])
        if what == b"FLUSH":
            self.scripts.clear()
            return OK
        if what == b"EXISTS":
            return [int(sha.lower() in self.scripts) for sha in words]
        raise Refused(f"ERR unknown subcommand '{what.decode('latin-1')}'. Try SCRIPT HELP.")

    def _load(self, text: bytes) -> bytes:
        sha = _sha(text)
        self._lua.compile(sha, text)
        self.scripts[sha] = text
        return sha


@lru_cache(256)
def _sha(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def encoded(answer: Any) -> bytes:
    """As RESP2 has it."""
    kind = type(answer)
    if kind is int:
        return b":%d\r\n" % answer
    if kind is bytes:
        return b"$%d\r\n%b\r\n" % (len(answer), answer)
    if answer is None:
        return b"$-1\r\n"
    if kind is Status:
        return b"+%b\r\n" % answer.text
    if kind is Refused:
        return b"-%b\r\n" % str(answer).replace("\r", " ").replace("\n", " ").encode()
    return b"*%d\r\n" % len(answer) + b"".join([encoded(one) for one in answer])
