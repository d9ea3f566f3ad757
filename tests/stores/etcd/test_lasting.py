"""What goes wrong only after a while: logins run out, pings annoy, loops end. In threads and in asyncio."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from holdfast import aio
from holdfast.claim import Grant, Place
from holdfast.drivers.aio import Asyncio
from holdfast.errors import Unavailable
from holdfast.stores.etcd import ear, open_store
from holdfast.stores.etcd.channel import Channel, ChannelError
from holdfast.stores.etcd.gather import Gatherer
from holdfast.stores.etcd.replies import (
    Garbled,
    read_txn,
)
from holdfast.stores.etcd.requests import (
    data,
    txn,
)
from holdfast.testing import servers
from holdfast.testing.servers.etcd import Etcd

from ..contract import Hand, claim_of, until
from .hands import admin, base64

server = pytest.mark.server
WORLDS = pytest.mark.parametrize("world", ["threads", "asyncio"])


def handoff(holder: Hand, waiter: Hand, name: str) -> float:
    """How long the next in line slept after a release."""
    first, second = claim_of(name), claim_of(name)
    assert isinstance(holder("claim", first), Grant)
    place = waiter("claim", second)
    assert isinstance(place, Place)
    waiting = waiter.in_background("wait", place, 30.0)
    until(lambda: waiter.store._sleepers._bells or waiting.done)
    began = time.monotonic()
    holder("release", first)
    waiting.result()
    slept = time.monotonic() - began
    while not isinstance(answer := waiter("claim", second), Grant):
        waiter("wait", answer, 1.0)
    waiter("release", second)
    return slept


# ---- logins


@pytest.fixture(scope="module")
def short_logins() -> Iterator[Etcd]:
    with servers.start("etcd", "--auth-token-ttl=1") as one:
        admin(one, "/v3/auth/user/add", name="root", password="r00t")
        admin(one, "/v3/auth/role/add", name="root")
        admin(one, "/v3/auth/user/grant", user="root", role="root")
        admin(one, "/v3/auth/user/add", name="alice", password="w")
        admin(one, "/v3/auth/role/add", name="alice")
        allowed = {"permType": "READWRITE", "key": base64(b"a/"), "range_end": base64(b"a0")}
        admin(one, "/v3/auth/role/grant", name="alice", perm=allowed)
        admin(one, "/v3/auth/user/grant", user="alice", role="alice")
        admin(one, "/v3/auth/enable")
        yield one


@server
@WORLDS
def test_bells_are_heard_after_the_login_has_run_out(short_logins: Etcd, world: str) -> None:
    url = f"etcd://alice:w@127.0.0.1:{short_logins.port}/a"
    a, b = Hand(open_store, url, world), Hand(open_store, url, world)
    try:
        handoff(a, b, "x")
        time.sleep(4)  # etcd forgets the login; the stream of watches is open still
        assert handoff(a, b, "x") < 5
    finally:
        a.close()
        b.close()


# ---- pings


@server
@WORLDS
def test_the_ear_pings_no_more_often_than_etcd_allows(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five times as fast as in earnest, on both sides: etcd's own limit is 5 s."""
    assert ear.PING_AFTER > 5
    quick = ear.PING_AFTER / 5
    monkeypatch.setattr(ear, "PING_AFTER", quick)
    lost = 0

    def count(lose: Any) -> Any:
        def counted(self: Any) -> None:
            nonlocal lost
            lost += self._connection is not None
            lose(self)

        return counted

    monkeypatch.setattr(ear.Ear, "_lose", count(ear.Ear._lose))
    monkeypatch.setattr(ear, "_TURN", 0.2)
    with servers.start("etcd", "--unsafe-no-fsync", "--grpc-keepalive-min-time=1s") as one:
        a, b = Hand(open_store, one.url, world), Hand(open_store, one.url, world)
        try:
            a("claim", claim_of("x"))
            place = b("claim", claim_of("x"))
            b("wait", place, 9.0)
            assert lost == 0
        finally:
            a.close()
            b.close()


# ---- event loops


@server
def test_a_connection_of_an_event_loop_that_was_closed_is_not_used_in_the_next(url: str) -> None:
    opened: list[Any] = []

    async def first() -> None:
        opened.append(aio.connect(url))
        await (await opened[0].lock("x").acquire(timeout=5)).release()

    async def second() -> None:
        async with opened[0] as locks:
            await (await locks.lock("x").acquire(timeout=5)).release()

    def again() -> None:
        asyncio.run(second())
        gc.collect()

    asyncio.run(first())
    with pytest.warns(ResourceWarning):  # asyncio's own, of the first loop's transports
        again()


# ---- gathering


def test_a_task_cancelled_as_its_answer_comes_holds_up_nobody() -> None:
    asyncio.run(a_task_is_cancelled_as_its_answer_comes())


async def a_task_is_cancelled_as_its_answer_comes() -> None:
    answers: list[asyncio.Future[bytes]] = []

    async def ask(path: bytes, message: bytes, deadline: float) -> bytes:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    async def turns(count: int = 10) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def send(name: str = "hot") -> asyncio.Task[Any]:
        return asyncio.create_task(gatherer.transact(name, txn([], []), time.clock_gettime(time.CLOCK_BOOTTIME) + 20))

    gatherer = Gatherer(ask, Asyncio(), "nowhere")
    alone = send("another")  # so that the others gather
    await turns()
    first = send()
    await turns()
    second = send()
    await turns()
    assert len(answers) == 3
    (_, flight, _) = gatherer._flying
    answers[1].set_result(b"")
    while flight[0].answer is None:
        await turns(1)
    assert not first.done()
    first.cancel()  # between the answer and its hearing it
    await turns()
    answers[2].set_result(b"")
    await second
    assert first.cancelled()
    third = send()
    await turns()
    assert len(answers) == 4, "nothing of this name is sent any more"
    for answer in (answers[3], answers[0]):
        answer.set_result(b"")
    await third
    await alone


def test_one_that_is_cancelled_as_it_flies_alone_holds_up_nobody() -> None:
    async def main() -> None:
        async def ask(path: bytes, message: bytes, deadline: float) -> bytes:
            asked.append(path)
            await asyncio.sleep(60 if len(asked) == 1 else 0)
            return b""

        def send() -> asyncio.Task[Any]:
            return asyncio.create_task(gatherer.transact("x", b"", time.clock_gettime(time.CLOCK_BOOTTIME) + 20))

        asked: list[bytes] = []
        gatherer = Gatherer(ask, Asyncio(), "nowhere")
        first = send()
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert not gatherer._flying
        await asyncio.wait_for(send(), 20)

    asyncio.run(main())


def test_a_flight_that_is_cancelled_tells_everybody_on_board() -> None:
    async def main() -> None:
        async def ask(path: bytes, message: bytes, deadline: float) -> bytes:
            await asyncio.sleep(60)
            return b""

        gatherer = Gatherer(ask, Asyncio(), "nowhere")
        give_up = time.clock_gettime(time.CLOCK_BOOTTIME) + 20
        alone = asyncio.create_task(gatherer.transact("another", b"", give_up))  # so that the next one gathers
        await asyncio.sleep(0)
        waiting = asyncio.create_task(gatherer.transact("x", b"", give_up))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(gatherer._flying) == 2
        for task in asyncio.all_tasks():
            if task.get_name() == "holdfast-etcd-gatherer":
                task.cancel()
        with pytest.raises(Unavailable, match="nowhere"):
            await waiting
        alone.cancel()

    asyncio.run(main())


# ---- what no etcd would say


def test_a_message_is_believed_up_to_its_limit() -> None:
    channel = Channel("x", tls=False)
    number = channel.call(b"/etcdserverpb.Watch/Watch", b"", ())
    other = H2Connection(H2Configuration(client_side=False))
    other.initiate_connection()
    assert any(isinstance(event, RequestReceived) for event in other.receive_data(channel.outgoing()))
    other.send_headers(number, [(":status", "200")])
    other.send_data(number, b"\0\xff\xff\xff\xff")
    with pytest.raises(ChannelError, match="announced"):
        channel.feed(other.data_to_send())


@pytest.mark.parametrize(
    "answer",
    [
        b"\xff" * 11,
        b"\x0a\x7f",
        b"\x08",
        b"\x08" + b"\x80" * 100_000,
        data(3, data(4, b"")) * 1 + b"\x0a\x05abc",
    ],
)
def test_what_is_no_answer_is_garbled(answer: bytes) -> None:
    with pytest.raises(Garbled):
        read_txn(answer)


def test_transactions_within_transactions_end_somewhere() -> None:
    answer = b""
    for _ in range(5000):
        answer = data(3, data(4, answer))
    with pytest.raises(Garbled):
        read_txn(answer)


@WORLDS
@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100, b"\xff" * 100_000])
def test_who_is_no_etcd_is_named(world: str, said: bytes, unlike_etcd: Any) -> None:
    port = unlike_etcd(said)
    store = Hand(open_store, f"etcd://127.0.0.1:{port}/{uuid4().hex[:8]}", world)
    with pytest.raises(Unavailable, match=f":{port}"):
        store("claim", claim_of("x"), 0.5)
    store.close()


@pytest.fixture
def unlike_etcd() -> Iterator[Any]:
    listeners: list[socket.socket] = []

    def serve(said: bytes) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def one(connection: socket.socket) -> None:
            with connection:
                try:
                    while connection.recv(65536):
                        connection.sendall(said)
                except OSError:
                    return

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=one, args=(connection,), daemon=True).start()

        threading.Thread(target=run, daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    yield serve
    for listener in listeners:
        listener.close()
