"""A transaction of the user's own in etcd: no branch of it runs for a holder that was overtaken. And the test can fail."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any
from uuid import uuid4

import httpx
import pytest

from holdfast import fenced
from holdfast.databases.etcd import post
from holdfast.errors import StaleToken
from holdfast.fenced import aio
from holdfast.fenced import etcd as guarded

pytestmark = pytest.mark.server
WORLDS = pytest.mark.parametrize("world", ["threads", "asyncio"])


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


def create_or_replace(key: str, value: str) -> dict[str, Any]:
    put = {"request_put": {"key": b64(key), "value": b64(value)}}
    absent = {"key": b64(key), "target": "VERSION", "result": "EQUAL", "version": "0"}
    return {"compare": [absent], "success": [put], "failure": [put]}


def a_stale_holder_tries(url: str, name: str, world: str) -> bytes | None:
    """Between its seal and its transaction, somebody newer comes and writes. What is there afterwards?"""

    def somebody_newer() -> None:
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as other:
            fenced.Etcd(other, (name, 2)).put(name, "newer")

    class Overtaken(httpx.Client):
        posts = 0

        def post(self, *args: Any, **more: Any) -> httpx.Response:
            self.posts += 1
            if self.posts == 2:
                somebody_newer()
            return super().post(*args, **more)

    class AsyncOvertaken(httpx.AsyncClient):
        posts = 0

        async def post(self, *args: Any, **more: Any) -> httpx.Response:
            self.posts += 1
            if self.posts == 2:
                await asyncio.to_thread(somebody_newer)
            return await super().post(*args, **more)

    async def in_asyncio() -> None:
        async with AsyncOvertaken(base_url=url, trust_env=False, timeout=30) as client:
            await aio.Etcd(client, (name, 1)).transact(create_or_replace(name, "stale"))

    with pytest.raises(StaleToken):
        if world == "asyncio":
            asyncio.run(in_asyncio())
        else:
            with Overtaken(base_url=url, trust_env=False, timeout=30) as client:
                fenced.Etcd(client, (name, 1)).transact(create_or_replace(name, "stale"))
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as look:
        return fenced.Etcd(look, (name, 2)).get(name)


@WORLDS
def test_neither_branch_of_a_transaction_runs_for_a_stale_holder(etcd_url: str, world: str) -> None:
    assert a_stale_holder_tries(etcd_url, uuid4().hex, world) == b"newer"


@WORLDS
def test_with_both_compares_side_by_side_it_would(etcd_url: str, world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def side_by_side(self: guarded.Guard, transaction: dict[str, Any]) -> dict[str, Any]:
        await self.sealed()
        compares = [self.compare(), *transaction.get("compare", ())]
        answer = await post(self._client, {**transaction, "compare": compares})
        if not answer.get("succeeded"):
            await self.sealed()
        return answer

    monkeypatch.setattr(guarded.Guard, "transact", side_by_side)
    assert a_stale_holder_tries(etcd_url, uuid4().hex, world) == b"stale"


def test_the_answer_is_that_of_ones_own_transaction(etcd_url: str) -> None:
    name = uuid4().hex
    with httpx.Client(base_url=etcd_url, trust_env=False, timeout=30) as client:
        guard = fenced.Etcd(client, (name, 1))
        first = guard.transact(create_or_replace(name, "one"))
        second = guard.transact(create_or_replace(name, "two"))
        assert first["succeeded"]
        assert not second.get("succeeded")
        assert int(second["header"]["revision"]) > int(first["header"]["revision"])
        assert "response_put" in second["responses"][0]
        assert guard.get(name) == b"two"
