"""ZooKeeper has no guarded read: who is overtaken between the seal and the read is told so."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from holdfast import fenced
from holdfast.errors import StaleToken

pytestmark = pytest.mark.server


class Overtaken:
    """A real client; just before a node is read through it, somebody newer writes that node."""

    def __init__(self, client: Any, path: str, newer: Any) -> None:
        self._client, self._read, self._newer = client, path, newer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get(self, path: str) -> Any:
        if path == self._read:
            self._newer()
        return self._client.get(path)


@pytest.fixture
def client(zookeeper_hosts: str) -> Iterator[Any]:
    client = KazooClient(zookeeper_hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def test_a_read_that_was_overtaken_on_the_way_is_refused(client: Any) -> None:
    name = f"overtaken {time.time_ns()}"
    path = f"/read-{time.time_ns()}"
    fenced.ZooKeeper(client, (name, 1)).set(path, b"ours")
    overtaken = Overtaken(client, path, lambda: fenced.ZooKeeper(client, (name, 2)).set(path, b"theirs"))
    with pytest.raises(StaleToken):
        fenced.ZooKeeper(overtaken, (name, 1)).get(path)
    assert fenced.ZooKeeper(client, (name, 2)).get(path) == b"theirs"


def test_what_is_not_there_is_guarded_too(client: Any) -> None:
    name = f"absent {time.time_ns()}"
    path = f"/absent-{time.time_ns()}"
    overtaken = Overtaken(client, path, fenced.ZooKeeper(client, (name, 2)).seal)
    assert fenced.ZooKeeper(client, (name, 1)).get(path) is None
    with pytest.raises(StaleToken):
        fenced.ZooKeeper(overtaken, (name, 1)).get(path)
