"""What the tests on real nodes do to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.stores.redlock.store import RedlockStore
from holdfast.sync import Locks
from holdfast.testing.servers.redis import Redis


def url_of(nodes: list[Redis], options: str = "") -> str:
    return "redlock://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes) + options


def store_of(locks: Locks) -> RedlockStore:
    store = locks._engine.store
    assert isinstance(store, RedlockStore)
    return store


@contextmanager
def paused(nodes: list[Redis]) -> Iterator[None]:
    for node in nodes:
        node.pause()
    try:
        yield
    finally:
        for node in nodes:
            node.resume()


def hang_up(nodes: list[Redis]) -> None:
    """What `timeout 60`, a balancer or a rolling restart do to connections."""
    for node in nodes:
        node.execute("CLIENT", "KILL", "TYPE", "normal")
