"""What others put under our prefix, and what no etcd would answer: neither is ours to stumble over."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import HoldfastError, NotAcquired, Unavailable
from holdfast.claim import Grant, Place
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.etcd import open_store
from holdfast.stores.etcd.keys import Keys, Terms, read_terms
from holdfast.stores.etcd.replies import (
    Garbled,
    KeyValue,
)
from holdfast.stores.etcd.requests import (
    data,
    lease_grant,
    number,
)
from holdfast.stores.etcd.sessions import Sessions
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

from ..contract import Hand, claim_of
from ..hands import Connect
from .hands import admin, ask, base64, store_of

WORLDS = pytest.mark.parametrize("world", ["threads", "asyncio"])

STRANGE = [
    b"",
    b"7",
    b"[]",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"units":"x","capacity":[1],"ttl":"z","token":"q","since":{},"owner":7,"fair":1,"note":null}',
    b'{"units":null,"token":null,"ttl":null,"since":null}',
    b'{"units":-5,"capacity":0,"token":-1,"since":1e400,"ttl":NaN}',
    b'{"units":true,"token":1e3,"ttl":-1,"since":99999999999999999999}',
]


@pytest.mark.parametrize("value", STRANGE, ids=range(len(STRANGE)))
def test_what_is_not_ours_counts_as_a_claim_of_unknown_terms(value: bytes) -> None:
    assert read_terms(KeyValue(value=value)) == Terms("?", 1, 1, 0.0, True, "", 0, 0)


def test_what_is_ours_is_read_as_it_was_written() -> None:
    ours = claim_of("x", 10, units=2, capacity=3, fair=False, note="n")
    value = Keys("p").value(ours, 1_700_000_000_000_000, 7)
    assert read_terms(KeyValue(value=value)) == Terms(ours.owner, 2, 3, 10, False, "n", 7, 1_700_000_000_000_000)


@pytest.mark.server
def test_strange_keys_under_the_prefix_disturb_nobody(cluster: Cluster[Etcd], connect: Connect, prefix: str) -> None:
    a = connect()
    one = cluster.members[0]
    strange = {b"@in/a\0w" + b"0" * 32: STRANGE[6], b"@line/a\0" + b"0" * 32: STRANGE[7], b"@out/a": STRANGE[8]}
    strange |= {b"@in/\xff\xfe\0w" + b"0" * 32: b"{}", b"@in/no-nul": b"{}"}
    for key, value in strange.items():
        admin(one, "/v3/kv/put", key=base64(prefix.encode() + b"/" + key), value=base64(value))
    for make in (a.lock("a"), a.semaphore("a", 1)):
        with pytest.raises(NotAcquired):
            make.acquire(timeout=0.05)
    seen = a.inspect("a")
    assert [each.owner for each in seen.holders] == ["?"]
    assert a.names() == ["a"]


@pytest.mark.server
def test_who_lost_its_place_at_the_head_of_the_line_is_in_line_again_at_once(
    cluster: Cluster[Etcd], connect: Connect, prefix: str
) -> None:
    a, b = connect(), connect()
    assert isinstance(ask(a, claim_of("x")), Grant)
    mine = claim_of("x")
    assert isinstance(ask(b, mine), Place)
    assert isinstance(ask(b, mine), Place)
    assert store_of(b)._records[mine.holder].first
    admin(cluster.members[0], "/v3/kv/deleterange", key=base64(store_of(b)._keys.in_line(mine)))
    assert isinstance(ask(b, mine), Place)
    assert len(a.inspect("x").waiters) == 1


class Answering:
    """A wire on which everything is answered alike."""

    where = "nowhere"

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def ask(self, path: bytes, message: bytes, deadline: float) -> bytes:
        return self._answer


@pytest.mark.parametrize("answer", [b"", number(3, 31), lease_grant(31, 5)[2:] + number(2, 5), data(1, b"")])
def test_a_lease_that_was_not_granted_as_asked_is_no_lease(answer: bytes) -> None:
    """What is put on lease 0 would stay for ever."""
    wire: Any = Answering(answer)
    with pytest.raises(Garbled):
        finish(Sessions(wire, Threads()).open(31, Threads.now() + 1))


@WORLDS
def test_a_member_that_hangs_up_in_the_middle_of_tls_is_no_misuse(
    world: str, answering: Callable[[Callable[[socket.socket], Any]], int]
) -> None:
    port = answering(lambda connection: connection.recv(65536))
    store = Hand(open_store, f"etcds://127.0.0.1:{port}", world)
    try:
        with pytest.raises(Unavailable, match=f":{port}"):
            store("claim", claim_of("x"), 0.5)
    finally:
        store.close()


@WORLDS
def test_who_speaks_no_tls_at_all_is_misused(
    world: str, answering: Callable[[Callable[[socket.socket], Any]], int]
) -> None:
    port = answering(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
    store = Hand(open_store, f"etcds://127.0.0.1:{port}", world)
    try:
        with pytest.raises(HoldfastError, match="no TLS"):
            store("claim", claim_of("x"), 5.0)
    finally:
        store.close()


@pytest.fixture
def answering() -> Iterator[Callable[[Callable[[socket.socket], Any]], int]]:
    """A server that does as told with each connection, and then hangs up."""
    listeners: list[socket.socket] = []

    def serve(behave: Callable[[socket.socket], Any]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        behave(connection)
                    except OSError:
                        continue

        threading.Thread(target=run, daemon=True).start()
        port: int = listener.getsockname()[1]
        return port

    yield serve
    for listener in listeners:
        listener.close()
