"""Redis and Valkey: commands that carry the token, one round trip each.

The mark of a resource is the key `holdfast:fence:<name>`. In Redis Cluster it has to be in the slot of the keys that it
guards: put the same {tag} into both names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from ...databases.redis import Key, Script, Value, pairs, says, speak
from ...drivers.base import finish
from ...errors import Misuse
from ..mark import Guarded, Ticket, mark_of, refusal

PREFIX = "holdfast:fence:"

_WORDS = 4000  # Lua hands over fewer than 8,000 at once
_HEADS: dict[Value, int] = {"HSET": 2, "DEL": 1}  # the words that each piece of such a command begins with


@cache
def _lua(name: str) -> str:
    return (files(__package__ or "") / f"{name}.lua").read_text(encoding="utf-8")


@cache
def _command() -> Script:
    return Script(_lua("seal") + _lua("command"))


@cache
def _pieces() -> Script:
    return Script(_lua("seal") + _lua("pieces"))


@cache
def _script(text: str) -> Script:
    return Script(f"{_lua('seal')}{_lua('script')}{text}\nend\nreturn script(keys, arguments)\n")


class Guard:
    """What threads and asyncio share: one conversation, and what its errors mean."""

    def __init__(self, client: Any, ticket: Ticket) -> None:
        if not hasattr(client, "evalsha"):
            raise Misuse(f"a client of redis-py is wanted, not {type(client).__name__}")
        if hasattr(client, "execute"):  # it would answer with itself, which is no answer, and look like success
            raise Misuse(
                f"a client is wanted, not a {type(client).__name__}: what is queued is refused too late. Several commands that "
                "belong together go into one script()"
            )
        self._client = client
        self._mark = mark_of(ticket)
        self._key = PREFIX + self._mark.resource
        self._token = str(self._mark.token)

    async def converse(self, script: Script, keys: Sequence[Key], arguments: Sequence[Value]) -> Any:
        try:
            return await speak(self._client, script, (self._key, *keys), (self._token, *arguments))
        except Exception as error:
            self._explain(error)
            raise

    def _explain(self, error: Exception) -> None:
        if says(error, "HOLDFAST_STALE"):
            seen, since = str(error).split("HOLDFAST_STALE ", 1)[1].split()[:2]
            raise refusal(self._mark, int(seen), int(since) / 1e6) from None
        if says(error, "HOLDFAST_DAMAGED"):
            raise Misuse(f"the key {self._key!r} holds something that is not a mark: who writes to it?") from error

    async def execute(self, keys: Sequence[Key], *command: Value) -> Any:
        head = _HEADS.get(command[0] if command else "")
        if head and len(command) > _WORDS:
            return await self.converse(_pieces(), keys, (head, _WORDS - _WORDS % 2, *command))
        return await self.converse(_command(), keys, command)

    async def evaluate(self, text: str, keys: Sequence[Key], arguments: Sequence[Value]) -> Any:
        return await self.converse(_script(text), keys, arguments)


def set_words(key: Key, value: Value, ex: float | None, nx: bool, xx: bool) -> list[Value]:
    words: list[Value] = ["SET", key, value]
    if ex is not None:
        words += ["PX", round(ex * 1000)]
    if nx:
        words.append("NX")
    if xx:
        words.append("XX")
    return words


def hset_words(key: Key, fields: Mapping[str, Value]) -> list[Value]:
    if not fields:
        raise Misuse("hset needs at least one field")
    return ["HSET", key, *(word for pair in fields.items() for word in pair)]


class Redis(Guarded[Guard]):
    """Guarded commands of one client under one lease. Every one records the token, reads included.

    Values are `str`, `bytes`, `int` or `float`; answers are what the client gives (bytes, or str with decode_responses).
    """

    def __init__(self, client: Any, ticket: Ticket) -> None:
        self._guard = Guard(client, ticket)

    def seal(self) -> None:
        """Record the token, and do nothing else."""
        finish(self._guard.evaluate("return 1", (), ()))

    def get(self, key: Key) -> Any:
        return finish(self._guard.execute((key,), "GET", key))

    def set(self, key: Key, value: Value, *, ex: float | None = None, nx: bool = False, xx: bool = False) -> bool:
        """`ex` in seconds. False: not set, because of `nx` or `xx`."""
        return finish(self._guard.execute((key,), *set_words(key, value, ex, nx, xx))) is not None

    def delete(self, *keys: Key) -> int:
        """How many there were."""
        return int(finish(self._guard.execute(keys, "DEL", *keys)))

    def incr(self, key: Key, by: int = 1) -> int:
        return int(finish(self._guard.execute((key,), "INCRBY", key, by)))

    def hget(self, key: Key, field: str) -> Any:
        return finish(self._guard.execute((key,), "HGET", key, field))

    def hgetall(self, key: Key) -> dict[Any, Any]:
        return pairs(finish(self._guard.execute((key,), "HGETALL", key)))

    def hset(self, key: Key, fields: Mapping[str, Value]) -> int:
        """How many of the fields are new."""
        return int(finish(self._guard.execute((key,), *hset_words(key, fields))))

    def execute(self, *command: Value, keys: Sequence[Key]) -> Any:
        """Any one command that a script may call; `keys` names those it touches."""
        return finish(self._guard.execute(keys, *command))

    def script(self, text: str, keys: Sequence[Key] = (), arguments: Sequence[Value] = ()) -> Any:
        """Lua of your own, sealed in the same step. Keep the text constant and pass what varies as arguments."""
        return finish(self._guard.evaluate(text, keys, arguments))
