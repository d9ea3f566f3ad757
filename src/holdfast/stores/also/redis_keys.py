"""redis-py's and python-redis-lock's keys: a random value that only its owner may delete, and a ttl."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...claim import Claim
from ...drivers.base import Driver
from ...errors import Unavailable
from ..redis import open_wire
from ..redis.connection import Disconnected
from ..redis.keys import pack
from ..redis.replies import Reply, ReplyError, worded
from ..redis.url import parse
from .old import Kept, Names, mark

# A key that has no ttl is another's that never ends: SET NX leaves it alone, and so do we.
_TAKE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0
"""
_KEEP = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
"""
# python-redis-lock's waiters sleep on a list: what it pushes there, we push.
_GIVE_BACK = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if KEYS[2] then
  redis.call('DEL', KEYS[2])
  redis.call('LPUSH', KEYS[2], 1)
  redis.call('PEXPIRE', KEYS[2], 1000)
end
return redis.call('DEL', KEYS[1])
"""


def open_format(whose: str, url: str, names: Names, driver: Driver) -> RedisKeys:
    return RedisKeys(whose, url, names.checked(), driver)


class RedisKeys:
    mutexes_only = True

    def __init__(self, whose: str, url: str, names: Names, driver: Driver) -> None:
        self.whose = whose
        self._names = names
        self._driver = driver
        self._wire = open_wire(parse(url), driver)

    async def take(self, claim: Claim, within: float) -> float:
        taken = await self._ask(self._request(_TAKE, claim, self._ms(claim)), within) == 1
        return claim.ttl if taken else 0.0

    async def keep(self, claims: Sequence[Claim], within: float) -> Sequence[Kept]:
        asked = [self._request(_KEEP, claim, self._ms(claim)) for claim in claims]
        replies = await self._wire.ask_apart(asked, within)
        return [self._verdict(claim, reply) for claim, reply in zip(claims, replies, strict=True)]

    async def give_back(self, claim: Claim, within: float) -> None:
        await self._ask(self._request(_GIVE_BACK, claim), within)

    async def is_taken(self, name: str, within: float) -> bool:
        return bool(await self._ask(pack("EXISTS", self._keys(name)[0]), within))

    def forked(self) -> None:
        self._wire.forked()

    async def close(self, within: float) -> None:
        await self._wire.close()

    def _keys(self, name: str) -> list[str]:
        old = self._names.of(name)
        return [old] if self.whose == "redis-py" else [f"lock:{old}", f"lock-signal:{old}"]

    def _request(self, script: str, claim: Claim, *more: int) -> bytes:
        keys = self._keys(claim.name)
        return pack("EVAL", script, len(keys), *keys, mark(claim.holder), *more)

    def _ms(self, claim: Claim) -> int:
        return math.ceil(claim.ttl * 1000)

    async def _ask(self, request: bytes, within: float) -> Reply:
        """Once more if the connection breaks: all that is asked is harmless to repeat."""
        until = self._driver.now() + within
        try:
            reply = await self._wire.ask(request, within)
        except Disconnected:
            if self._driver.now() >= until:
                raise
            reply = await self._wire.ask(request, until - self._driver.now())
        if isinstance(reply, ReplyError):
            raise self._refused(reply)
        return reply

    def _verdict(self, claim: Claim, reply: Reply) -> Kept:
        if isinstance(reply, Unavailable):
            return reply
        if isinstance(reply, Exception):
            return self._refused(reply)
        return claim.ttl if reply == 1 else 0.0

    def _refused(self, reply: Exception) -> Unavailable:
        return Unavailable(f"the lock of {self.whose} at {self._wire.where}: {worded(reply)}")
