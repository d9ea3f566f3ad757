"""What the tests of ZooKeeper share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kazoo.client import KazooClient

from holdfast.sync import Locks
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.zookeeper import ZooKeeper

SOON = 20.0
Connect = Callable[..., Locks]
Ensemble = Cluster[ZooKeeper]


def until(condition: Callable[[], object], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {within:g} s"
        time.sleep(0.005)


class Doing(threading.Thread):
    """Something that is done in the background, and when it was done."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._action = action
        self._answer: Any = None
        self._error: BaseException | None = None
        self.at = 0.0
        self.start()

    def run(self) -> None:
        try:
            self._answer = self._action()
        except BaseException as error:
            self._error = error
        self.at = time.monotonic()

    def result(self, within: float = SOON) -> Any:
        self.join(within)
        assert not self.is_alive(), f"not done within {within:g} s"
        if self._error is not None:
            raise self._error
        return self._answer


@contextmanager
def admin(hosts: str, **more: Any) -> Iterator[KazooClient]:
    client = KazooClient(hosts, timeout=10, **more)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def proxied(ensemble: Ensemble) -> Iterator[tuple[str, list[Proxy]]]:
    """The hosts of an ensemble as a client sees it that we can cut off."""
    with ExitStack() as stack:
        proxies = [stack.enter_context(Proxy(member.address)) for member in ensemble.members]
        yield ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies), proxies


def session_of(locks: Locks) -> Any:
    """The one session of a connection that uses one ttl."""
    (session,) = locks._engine.store._sessions._open.values()  # type: ignore[attr-defined]
    return session
