"""Guarded etcd and ZooKeeper, real ones, pass the suite; their checks hold in transactions of the user's own."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Iterator
from hashlib import sha256
from typing import Any
from uuid import uuid4

import httpx
import pytest
from kazoo.client import KazooClient

from holdfast import fenced
from holdfast.errors import Misuse, StaleToken
from holdfast.fenced import aio
from holdfast.fenced.mark import mark_of
from holdfast.fenced.zookeeper import mark_path
from holdfast.testing import guards

from .sql_under_test import OneLoop

pytestmark = pytest.mark.server


def key_of(resource: object) -> str:
    return f"/value-{sha256(repr(resource).encode()).hexdigest()}"


def b64(text: str) -> str:
    return b64encode(text.encode()).decode()


class EtcdUnderTest:
    most = fenced.MAX_MARK
    transactional = False

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, trust_env=False, timeout=30)

    def read(self, resource: str, token: int) -> int | None:
        value = fenced.Etcd(self.client, (resource, token)).get(key_of(resource))
        return None if value is None else int(value)

    def write(self, resource: str, token: int, value: int) -> None:
        fenced.Etcd(self.client, (resource, token)).put(key_of(resource), str(value))

    def seen(self, resource: str) -> int:
        found = self.client.post("/v3/kv/range", json={"key": b64(f"holdfast/fence/{resource}")}).json()
        return int(b64decode(found["kvs"][0]["value"])) if "kvs" in found else 0

    def abandon(self, resource: str, token: int, value: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.client.close()


class AsyncEtcdUnderTest(EtcdUnderTest):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.loop = OneLoop()
        self.async_client = httpx.AsyncClient(base_url=url, trust_env=False, timeout=30)

    def read(self, resource: str, token: int) -> int | None:
        value = self.loop(aio.Etcd(self.async_client, mark_of((resource, token))).get(key_of(resource)))
        return None if value is None else int(value)

    def write(self, resource: str, token: int, value: int) -> None:
        self.loop(aio.Etcd(self.async_client, mark_of((resource, token))).put(key_of(resource), str(value)))

    def close(self) -> None:
        super().close()
        self.loop(self.async_client.aclose())
        self.loop.close()


class ZooKeeperUnderTest:
    most = fenced.MAX_MARK
    transactional = False

    def __init__(self, hosts: str) -> None:
        self.client = KazooClient(hosts)
        self.client.start(30)

    def read(self, resource: str, token: int) -> int | None:
        value = fenced.ZooKeeper(self.client, (resource, token)).get(key_of(resource))
        return None if value is None else int(value)

    def write(self, resource: str, token: int, value: int) -> None:
        fenced.ZooKeeper(self.client, (resource, token)).set(key_of(resource), b"%d" % value)

    def seen(self, resource: str) -> int:
        path = mark_path(resource)
        return int(self.client.get(path)[0].split()[0]) if self.client.exists(path) else 0

    def abandon(self, resource: str, token: int, value: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.client.stop()
        self.client.close()


@pytest.fixture(
    scope="module",
    params=[(EtcdUnderTest, "etcd_url"), (AsyncEtcdUnderTest, "etcd_url"), (ZooKeeperUnderTest, "zookeeper_hosts")],
    ids=["etcd", "etcd in asyncio", "zookeeper"],
)
def guard(request: pytest.FixtureRequest) -> Iterator[Any]:
    kind, where = request.param
    under_test = kind(request.getfixturevalue(where))
    yield under_test
    under_test.close()


@pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
def test_a_guarded_store(check: guards.Check, guard: Any) -> None:
    check(guard)


# ---- transactions of the user's own


@pytest.fixture
def etcd(etcd_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=etcd_url, trust_env=False, timeout=30) as client:
        yield client


def test_a_transaction_of_ones_own_in_etcd(etcd: httpx.Client) -> None:
    name = uuid4().hex
    old, new = fenced.Etcd(etcd, (name, 1)), fenced.Etcd(etcd, (name, 2))
    put = {"request_put": {"key": b64(name), "value": b64("old")}}
    assert old.transact({"success": [put]})["succeeded"]
    own_compare = {"key": b64(name), "target": "VALUE", "result": "EQUAL", "value": b64("other")}
    assert not old.transact({"compare": [own_compare], "success": [put]}).get("succeeded"), "it is not about the token"
    compare = old.compare()
    new.seal()
    assert not etcd.post("/v3/kv/txn", json={"compare": [compare], "success": [put]}).json().get("succeeded")
    with pytest.raises(StaleToken, match="since 20"):
        old.transact({"success": [put]})
    assert new.get(name) == b"old"
    assert new.delete(name)
    assert not new.delete(name)
    new.put(name, "")
    assert new.get(name) == b""
    with pytest.raises(Misuse):
        fenced.Etcd(object(), (name, 1))


def test_the_asyncio_names_of_etcd(etcd_url: str) -> None:
    async def work() -> None:
        async with httpx.AsyncClient(base_url=etcd_url, trust_env=False) as client:
            name = uuid4().hex
            guard = aio.Etcd(client, (name, 2))
            await guard.seal()
            assert guard.compare()["result"] == "EQUAL"
            assert (await guard.transact({"success": []}))["succeeded"]
            assert not await guard.delete(name)
            with pytest.raises(StaleToken):
                await aio.Etcd(client, (name, 1)).put(name, "x")

    asyncio.run(work())


@pytest.fixture
def zookeeper(zookeeper_hosts: str) -> Iterator[Any]:
    client = KazooClient(zookeeper_hosts)
    client.start(30)
    yield client
    client.stop()
    client.close()


def test_a_transaction_of_ones_own_in_zookeeper(zookeeper: Any) -> None:
    name = uuid4().hex
    old, new = fenced.ZooKeeper(zookeeper, (name, 1)), fenced.ZooKeeper(zookeeper, (name, 2))
    late = zookeeper.transaction()
    old.check(late)
    late.create(f"/{name}", b"late")
    new.seal()
    assert all(isinstance(result, Exception) for result in late.commit())
    assert not zookeeper.exists(f"/{name}")
    own = zookeeper.transaction()
    new.check(own)
    own.create(f"/{name}", b"mine")
    assert not any(isinstance(result, Exception) for result in own.commit())
    with pytest.raises(StaleToken, match="since 20"):
        old.set(f"/{name}", b"late")
    assert new.get(f"/{name}") == b"mine"
    assert new.delete(f"/{name}")
    assert not new.delete(f"/{name}")
    with pytest.raises(Misuse, match="parent"):
        new.set(f"/{name}/child/grandchild", b"")
    with pytest.raises(Misuse):
        fenced.ZooKeeper(object(), (name, 1))


def test_the_asyncio_names_of_zookeeper(zookeeper: Any) -> None:
    async def work() -> None:
        name = uuid4().hex
        guard = aio.ZooKeeper(zookeeper, (name, 2))
        await guard.set(f"/{name}", b"x")
        assert await guard.get(f"/{name}") == b"x"
        await guard.check(zookeeper.transaction())
        assert await guard.seal() == 0
        assert await guard.delete(f"/{name}")
        with pytest.raises(StaleToken):
            await aio.ZooKeeper(zookeeper, (name, 1)).get(f"/{name}")

    asyncio.run(work())
