"""Between an answer that was lost and the second look others come and go: tokens rise in the order of entering all the same.

(Connections that are cut at random, all the time: see the theme of that name in the conformance suite.)
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.protocol.serialization import Exists, GetChildren2

from holdfast import Unavailable
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.zookeeper import session as sessions
from holdfast.stores.zookeeper import wire
from holdfast.stores.zookeeper.session import Batch
from holdfast.sync import Lease, Locks
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.zookeeper import ZooKeeper

from ..hands import Background, Connect, until
from .hands import session_of

pytestmark = pytest.mark.server

GET_CHILDREN2 = b"\0\0\0\x0c"
PING = b"\xff\xff\xff\xfe"


@pytest.fixture(scope="module")
def server() -> Iterator[ZooKeeper]:
    with servers.start("zookeeper", "forceSync=no") as started:
        assert isinstance(started, ZooKeeper)
        yield started


@pytest.fixture
def proxy(server: ZooKeeper) -> Iterator[Proxy]:
    with Proxy(server.address) as between:
        yield between


def through(proxy: Proxy, root: str) -> str:
    return f"zookeeper://127.0.0.1:{proxy.port}{root}"


def acquiring(locks: Locks, watched: Locks, place: int) -> Background:
    """In the background; it has joined the line when this returns."""
    doing = Background(lambda: locks.lock("x", ttl=20).acquire(timeout=30))
    until(lambda: len(watched.inspect("x").waiters) == place)
    return doing


def test_a_claim_whose_answer_was_lost_enters_after_those_who_left_meanwhile(
    server: ZooKeeper, proxy: Proxy, connect: Connect, root: str
) -> None:
    first, second, third = connect(server.url + root), connect(server.url + root), connect(through(proxy, root))
    with third.lock("other", ttl=20):
        pass  # it is connected
    held = first.lock("x", ttl=20).acquire()
    next_one = acquiring(second, first, 1)
    proxy.to_client.drop()
    last = acquiring(third, first, 2)
    held.release()
    between: Lease = next_one.result()
    between.release()
    proxy.to_client.flow()
    proxy.cut()
    assert last.result().token > between.token > held.token


def test_a_claim_whose_look_at_the_line_was_late_enters_after_those_who_left_meanwhile(
    server: ZooKeeper, proxy: Proxy, connect: Connect, root: str
) -> None:
    """No connection breaks at all: the second of two requests is on its way for long."""
    first, second, third = connect(server.url + root), connect(server.url + root), connect(through(proxy, root))
    with third.lock("x", ttl=20):
        pass  # the name is known, so that a claim is the creation and the look, and nothing else
    held = first.lock("x", ttl=20).acquire()
    next_one = acquiring(second, first, 1)
    client = session_of(third).client
    call = client.call

    def one_after_the_other(request: Any, reply: Any) -> Any:
        """The look is sent when the creation is known to be there: else both may come in one piece, and none is held."""
        if isinstance(request, GetChildren2):
            until(lambda: len(first.inspect("x").waiters) == 2)
        return call(request, reply)

    client.call = one_after_the_other
    proxy.to_server.hold(when=lambda data: data[8:12] == GET_CHILDREN2)
    last = acquiring(third, first, 2)
    proxy.to_server.wait_for_caught(1)
    held.release()
    between: Lease = next_one.result()
    between.release()
    proxy.to_server.flow()
    assert last.result().token > between.token > held.token


# ---- one answer is lost, and those behind it come


def a_release_is_told_what_became_of_it(proxy: Proxy, locks: Locks) -> None:
    kept, lease = locks.lock("kept", ttl=20).acquire(), locks.lock("x", ttl=20).acquire()
    session = session_of(locks)
    proxy.to_client.drop(chunks=1, when=lambda chunk: chunk[4:8] != PING)
    leaving = Background(lease.release)
    until(lambda: proxy.to_client.caught.chunks)
    with contextlib.suppress(Unavailable):
        finish(session.ask([Exists("/", None)]))  # whose answer comes where the other is expected
    assert leaving.result() is True
    assert not session.dead
    kept.check()
    assert kept.release()


def test_an_answer_that_a_server_never_sent_is_a_connection_lost_and_no_more(
    proxy: Proxy, connect: Connect, root: str
) -> None:
    """Here it broke: after an election a server may leave one out. kazoo's thread ended, and a session with all its locks."""
    a_release_is_told_what_became_of_it(proxy, connect(through(proxy, root)))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("mistake", ["kazoo reads as it likes", "any refusal is an answer"])
def test_and_without_care_for_it_that_is_found(
    proxy: Proxy, connect: Connect, root: str, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mistake == "kazoo reads as it likes":
        monkeypatch.setattr(wire.Client, "_understood", lambda self, read, *args: read(*args))
    else:
        monkeypatch.setattr(sessions, "_ANSWERS", (Exception,))
    with pytest.raises(AssertionError):
        a_release_is_told_what_became_of_it(proxy, connect(through(proxy, root)))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("xids do not match"),
        struct.error("unpack requires a buffer of 4 bytes"),
        exceptions.RequestTimeoutError(),
        exceptions.SystemZookeeperError(),
        exceptions.ThrottledOpError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("within", ["an answer", "a transaction"])
def test_what_says_nothing_about_the_nodes_is_no_answer(
    server: ZooKeeper, connect: Connect, root: str, error: Exception, within: str
) -> None:
    """Else a node that could not be asked for were a node that is gone."""
    locks = connect(server.url + root)
    locks.lock("x").acquire().release()
    batch = Batch(1, Threads().bell(), 0)
    batch.answers[0] = error if within == "an answer" else [error]
    with pytest.raises(Unavailable, match="did not say"):
        session_of(locks).answers(batch)
