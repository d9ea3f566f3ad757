"""etcd: guarded get, put and delete, and a compare for transactions of your own. Through etcd's JSON gateway, with httpx.

The mark is the key `holdfast/fence/<name>`; its value is the token in 19 digits, so that etcd's own comparison of bytes is
that of numbers.
"""

from __future__ import annotations

import time
from base64 import b64decode
from typing import Any

from ..databases.etcd import Json, encode, post
from ..drivers.base import finish
from ..errors import Misuse, Unavailable
from .mark import Guarded, Ticket, mark_of, refusal

PREFIX = "holdfast/fence/"
_DIGITS = 19  # of 2^63 - 1
_ATTEMPTS = 3


class Guard:
    """What threads and asyncio share."""

    def __init__(self, client: Any, ticket: Ticket) -> None:
        if not hasattr(client, "post"):
            raise Misuse(f"a client of httpx with a base_url is wanted, not {type(client).__name__}")
        self._client = client
        self._mark = mark_of(ticket)
        self._key = encode(PREFIX + self._mark.resource)
        self._since = encode(f"holdfast/since/{self._mark.resource}")
        self._value = encode(f"{self._mark.token:0{_DIGITS}d}")

    def compare(self) -> Json:
        """True in etcd while nobody newer has been here; and while this token was sealed."""
        return {"key": self._key, "target": "VALUE", "result": "EQUAL", "value": self._value}

    async def sealed(self, *operations: Json) -> list[Json]:
        """The operations in one transaction with the seal, in one round trip.

        etcd can only require *all* comparisons, and one of a key's value fails if there is no such key. So: if there is no
        mark, go on; else, in a transaction inside, if the mark is not above the token, go on; else look at it.
        """
        put = {"request_put": {"key": self._key, "value": self._value}}
        stamp = {"request_put": {"key": self._since, "value": encode(str(time.time()))}}
        look = [{"request_range": {"key": key}} for key in (self._key, self._since)]
        first = [put, stamp, *operations]
        higher = {"key": self._key, "target": "VALUE", "result": "LESS", "value": self._value}
        answer = await post(
            self._client,
            {
                "compare": [{"key": self._key, "target": "VERSION", "result": "EQUAL", "version": "0"}],
                "success": first,
                "failure": [
                    {
                        "request_txn": {
                            "compare": [higher],
                            "success": first,
                            "failure": [
                                {
                                    "request_txn": {
                                        "compare": [self.compare()],
                                        "success": [*operations],
                                        "failure": look,
                                    }
                                }
                            ],
                        }
                    }
                ],
            },
        )
        if answer.get("succeeded"):
            return self._rest(answer, 2)
        inner = answer["responses"][0]["response_txn"]
        if inner.get("succeeded"):
            return self._rest(inner, 2)
        innermost = inner["responses"][0]["response_txn"]
        if innermost.get("succeeded"):
            return self._rest(innermost, 0)
        seen, since = (one["response_range"].get("kvs", [{}])[0].get("value") for one in innermost["responses"])
        raise refusal(self._mark, int(b64decode(seen)), float(b64decode(since)) if since else None)

    @staticmethod
    def _rest(answer: Json, ours: int) -> list[Json]:
        rest: list[Json] = answer.get("responses", [])[ours:]
        return rest

    async def transact(self, transaction: Json) -> Json:
        """Ours outside, theirs within: beside ours, a compare of ours that fails would run *their* failure branch."""
        for _ in range(_ATTEMPTS):
            await self.sealed()  # StaleToken, if somebody newer has been here
            answer = await post(self._client, {"compare": [self.compare()], "success": [{"request_txn": transaction}]})
            if answer.get("succeeded"):
                return {**answer["responses"][0]["response_txn"], "header": answer["header"]}
        raise Unavailable(f"the mark of {self._mark.resource!r} in etcd was changed by hand while it was in use")

    async def get(self, key: str | bytes) -> bytes | None:
        (answer,) = await self.sealed({"request_range": {"key": encode(key)}})
        found = answer["response_range"].get("kvs")
        return b64decode(found[0].get("value", "")) if found else None

    async def put(self, key: str | bytes, value: str | bytes) -> None:
        await self.sealed({"request_put": {"key": encode(key), "value": encode(value)}})

    async def delete(self, key: str | bytes) -> bool:
        (answer,) = await self.sealed({"request_delete_range": {"key": encode(key)}})
        return int(answer["response_delete_range"].get("deleted", 0)) > 0


class Etcd(Guarded[Guard]):
    """Guarded access under one lease: `Etcd(httpx.Client(base_url="http://localhost:2379"), lease)`."""

    def __init__(self, client: Any, ticket: Ticket) -> None:
        self._guard = Guard(client, ticket)

    def get(self, key: str | bytes) -> bytes | None:
        """The value; from now on, older tokens are refused."""
        return finish(self._guard.get(key))

    def put(self, key: str | bytes, value: str | bytes) -> None:
        finish(self._guard.put(key, value))

    def delete(self, key: str | bytes) -> bool:
        """Was there one?"""
        return finish(self._guard.delete(key))

    def seal(self) -> None:
        """Record the token, before the first read that goes past the guard."""
        finish(self._guard.sealed())

    def compare(self) -> Json:
        """A compare for a transaction of your own, after `seal`: it fails once somebody newer has been here."""
        return self._guard.compare()

    def transact(self, transaction: Json) -> Json:
        """A transaction of your own (as /v3/kv/txn takes it), sealed. `StaleToken` if it failed because of the token."""
        return finish(self._guard.transact(transaction))


class AsyncEtcd(Guarded[Guard]):
    """The same with `httpx.AsyncClient`."""

    def __init__(self, client: Any, ticket: Ticket) -> None:
        self._guard = Guard(client, ticket)

    async def get(self, key: str | bytes) -> bytes | None:
        """The value; from now on, older tokens are refused."""
        return await self._guard.get(key)

    async def put(self, key: str | bytes, value: str | bytes) -> None:
        await self._guard.put(key, value)

    async def delete(self, key: str | bytes) -> bool:
        """Was there one?"""
        return await self._guard.delete(key)

    async def seal(self) -> None:
        """Record the token, before the first read that goes past the guard."""
        await self._guard.sealed()

    def compare(self) -> Json:
        """A compare for a transaction of your own, after `seal`: it fails once somebody newer has been here."""
        return self._guard.compare()

    async def transact(self, transaction: Json) -> Json:
        """A transaction of your own (as /v3/kv/txn takes it), sealed. `StaleToken` if it failed because of the token."""
        return await self._guard.transact(transaction)
