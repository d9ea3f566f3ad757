"""What is kept for a while (`once(at_least=…)`), given up by its owner and by close() at the same time: see
tests/simulation/test_left_twice.py, and the suite's theme of `once`."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest

from holdfast.claim import Claim, Grant, Place, new_holder
from holdfast.drivers.base import finish
from holdfast.testing import servers
from holdfast.testing.servers.zookeeper import ZooKeeper

from ..hands import Background, Connect, until
from .hands import session_of

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    with servers.start("zookeeper", "forceSync=no") as started:
        assert isinstance(started, ZooKeeper)
        yield started


@pytest.mark.parametrize("early", [True, False], ids=["answered before", "asked after"])
@pytest.mark.parametrize("wanted", [True, False], ids=["wanted", "free"])
def test_who_is_overtaken_by_the_other_who_found_it_gone_says_so_or_what_was_true(
    server: ZooKeeper, connect: Connect, root: str, early: bool, wanted: bool
) -> None:
    """It must neither be told of a token that is none, nor forget the node that the other one has made since."""
    locks, others = connect(server.url + root), connect(server.url + root)
    store: Any = locks._engine.store
    mine = Claim("nightly", new_holder(), "host/1/mine", 20.0)
    grant = finish(store.claim(mine))
    assert isinstance(grant, Grant)
    waiting = Background(lambda: others.lock("nightly", ttl=20).acquire(timeout=30)) if wanted else None
    if wanted:
        until(lambda: locks.inspect("nightly").waiters)
    session = session_of(locks)
    ask, asked, go_on = session.ask, threading.Event(), threading.Event()

    async def slowly(requests: Any, give_up: float) -> Any:
        if asked.is_set():
            return await ask(requests, give_up)
        answers = await ask(requests, give_up) if early else None
        asked.set()
        assert go_on.wait(20)
        return await ask(requests, give_up) if answers is None else answers

    with mock.patch.object(session, "ask", slowly):
        slow = Background(lambda: finish(store.claim(mine._replace(ttl=19.0, queue=False))))
        assert asked.wait(20)
        others.force_release("nightly", token=grant.token)
        second = finish(store.claim(mine._replace(ttl=18.9, queue=False)))
        assert isinstance(second, Place if wanted else Grant)
        go_on.set()
        answer = slow.result()
    if isinstance(answer, Grant):
        now = second.token if isinstance(second, Grant) else grant.token
        assert answer.token in ((grant.token, now) if early else (now,))
    finish(store.release(mine))
    if waiting is not None:
        waiting.result().release()
    assert locks.names() == [], "a node that nobody remembers"
