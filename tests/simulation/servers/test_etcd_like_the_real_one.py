"""The simulated etcd answers as the real one does: random requests in gRPC's own bytes to both, and what their watchers hear."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.stores.etcd import requests
from holdfast.stores.etcd.channel import Channel, Status, Told
from holdfast.stores.etcd.replies import fields, read_lease, read_watch
from holdfast.stores.etcd.requests import (
    compare,
    data,
    lease_grant,
    lease_id,
    number,
    op_delete,
    op_put,
    op_range,
    op_txn,
    range_of,
    time_to_live,
    txn,
    watch_cancel,
    watch_create,
)
from holdfast.testing import servers
from holdfast.testing.simulation.servers.etcd import EtcdCluster
from holdfast.testing.simulation.servers.etcd.cluster import Line

pytestmark = pytest.mark.server

ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "1"))  # `make soak` says more
KEYS = [b"a", b"b", b"b/1", b"b/2", b"b/2\0", b"c", b"\xff"]
LONG = 1000  # seconds: leases that do not end here


class Side:
    """A client of ours, without a store."""

    def __init__(self) -> None:
        self._channel = Channel("etcd", tls=False)
        self._watches = 0
        self.heard: list[bytes] = []

    def _exchange(self, sent: bytes) -> bytes:
        raise NotImplementedError

    def ask(self, path: bytes, message: bytes) -> tuple[Status, bytes]:
        stream, answer = self._channel.call(path, message, ()), b""
        while True:
            for told in self._told():
                if told.stream == stream:
                    if told.status is not None:
                        return told.status, answer
                    answer = told.message

    def watch(self, message: bytes) -> None:
        if self._watches:
            self._channel.send(self._watches, message)
        else:
            self._watches = self._channel.call(requests.WATCH, message, (), end=False)

    def hear(self, count: int) -> list[bytes]:
        """The first so many messages to watchers."""
        while len(self.heard) < count:
            self._told()
        return self.heard[:count]

    def _told(self) -> list[Told]:
        told = self._channel.feed(self._exchange(self._channel.outgoing()))
        self.heard += [one.message for one in told if one.stream == self._watches and one.message]
        return told


class Real(Side):
    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__()
        self._socket = socket.create_connection(address, timeout=60)

    def _exchange(self, sent: bytes) -> bytes:
        if sent:
            self._socket.sendall(sent)
        return self._socket.recv(1 << 16)

    def close(self) -> None:
        self._socket.close()


class Simulated(Side):
    """A member, whose one client has no network between."""

    def __init__(self, world: World) -> None:
        super().__init__()
        streams = Streams(world)
        self._cluster = EtcdCluster(world, streams, [("etcd", 2379)], shortest_lease=1)
        (self._member,) = self._cluster.members
        self._line = Line(self)  # type: ignore[arg-type]
        self._member._lines.append(self._line)
        self._answers = b""

    def put(self, answers: bytes) -> None:
        self._answers += answers

    def _exchange(self, sent: bytes) -> bytes:
        for call in self._line.talk.feed(sent):
            self._member._hear(self._line, call)  # type: ignore[arg-type]
        self._line.flush()
        answers, self._answers = self._answers, b""
        assert answers, "it would wait for ever"
        return answers


@pytest.fixture
def sides() -> Iterator[tuple[Real, Simulated]]:
    """Both new, so that revisions are the same."""
    with servers.start("etcd") as one, contextlib.closing(Real(one.address)) as real, World(1) as world:
        yield real, Simulated(world)


# ---- what is asked


def some_range(chance: random.Random) -> bytes:
    return range_of(
        chance.choice(KEYS),
        chance.choice([b"", b"", b"c", b"b/\xff", b"\0", b"a"]),
        limit=chance.choice([0, 0, 1, 2]),
        order=chance.choice([0, 1, 2]),
        keys_only=chance.random() < 0.3,
        created_before=chance.choice([0, 0, chance.randint(2, 300)]),
    )


def some_operation(chance: random.Random, leases: list[int], deep: int = 0) -> bytes:
    key = chance.choice(KEYS)
    forms: list[Callable[[], bytes]] = [
        lambda: op_range(some_range(chance)),
        lambda: op_put(key, b"%d" % chance.randint(0, 3), chance.choice([0, *leases, 77])),
        lambda: op_delete(key),
        lambda: data(3, data(1, key) + data(2, chance.choice([b"b/\xff", b"c", b"a"]))),
        lambda: op_txn(some_transaction(chance, leases, deep + 1)),
    ]
    return chance.choices(forms, weights=(4, 3 if deep < 2 else 1, 1, 0.3, 2 if deep < 2 else 0))[0]()


def some_compare(chance: random.Random) -> bytes:
    target, result = chance.randint(1, 2), chance.randint(0, 3)
    return compare(
        chance.choice(KEYS),
        target,
        result,
        chance.choice([0, 0, chance.randint(0, 300)]),
        chance.choice([b"", b"", b"c"]),
    )


def some_transaction(chance: random.Random, leases: list[int], deep: int = 0) -> bytes:
    return txn(
        [some_compare(chance) for _ in range(chance.choice([0, 0, 1, 2]))],
        [some_operation(chance, leases, deep) for _ in range(chance.randint(0, 3))],
        [some_operation(chance, leases, deep) for _ in range(chance.randint(0, 2))],
    )


def some_request(chance: random.Random, leases: list[int]) -> tuple[bytes, bytes]:
    lease = chance.choice([*leases, chance.randint(1, 40)])
    forms: list[tuple[float, Callable[[], tuple[bytes, bytes]]]] = [
        (10, lambda: (requests.TXN, some_transaction(chance, leases))),
        (3, lambda: (requests.RANGE, some_range(chance))),
        (2, lambda: (requests.LEASE_GRANT, lease_grant(LONG, lease))),
        (1, lambda: (requests.LEASE_KEEP_ALIVE, lease_id(lease))),
        (1, lambda: (requests.LEASE_TIME_TO_LIVE, time_to_live(lease, keys=chance.random() < 0.5))),
        (1, lambda: (requests.LEASE_REVOKE, lease_id(lease))),
        (0.1, lambda: (requests.TXN, txn([], [op_range(range_of(b"a"))] * chance.choice([128, 129])))),
    ]
    weights = [weight for weight, _ in forms]
    return chance.choices(forms, weights)[0][1]()


# ---- what is answered, but for the server's own name, its term, and times


def plain(path: bytes, message: bytes) -> Any:
    revision = dict(fields(bytes(dict(fields(message))[1]))).get(3, 0)
    if path == requests.TXN:
        return revision, plain_txn(message)
    if path == requests.RANGE:
        return revision, plain_range(message)
    if path == requests.LEASE_REVOKE:
        return revision
    found = read_lease(message, keys=True)
    left = found.ttl // 100 if path == requests.LEASE_TIME_TO_LIVE and found.ttl > 0 else found.ttl
    return revision, found.lease, left if left != LONG // 100 - 1 else LONG // 100, sorted(found.keys)


def plain_txn(message: bytes) -> Any:
    answers = []
    for field, value in fields(message):
        if field == 3:
            ((kind, answer),) = fields(bytes(value))
            if kind == 1:
                answers.append(plain_range(bytes(answer)))
            elif kind == 4:
                answers.append(plain_txn(bytes(answer)))
            else:
                answers.append((kind, dict(fields(bytes(answer))).get(2, 0)))
    return bool(dict(fields(message)).get(2, 0)), answers


def plain_range(message: bytes) -> Any:
    """Of keys that were created at one moment, no order is promised; nor which of them a limit leaves out."""
    found = [plain_pair(bytes(value)) for field, value in fields(message) if field == 2]
    rest = dict(fields(message))
    return found, rest.get(3, 0), rest.get(4, 0)


def plain_pair(message: bytes) -> Any:
    said = dict(fields(message))
    return tuple(said.get(field, b"" if field in (1, 5) else 0) for field in range(1, 7))


def plain_heard(messages: list[bytes]) -> dict[int, list[Any]]:
    """What each watch was told, one after the other: etcd may tell several things in one message."""
    found: dict[int, list[Any]] = {}
    for message in messages:
        heard = read_watch(message)
        mine = found.setdefault(heard.watch_id, [])
        mine += [word for word in ("created", "canceled") if getattr(heard, word)]
        events = [dict(fields(bytes(value))) for field, value in fields(message) if field == 11]
        mine += [(event.get(1, 0), plain_pair(bytes(event[2]))) for event in events]
    return found


# ---- and so it is the same


@pytest.mark.timeout(3600)
def test_random_requests_are_answered_alike_and_watchers_hear_the_same(sides: tuple[Real, Simulated]) -> None:
    real, simulated = sides
    chance = random.Random(1)
    refused: set[str] = set()
    for side in sides:
        for watch, (key, end) in enumerate(((b"a", b""), (b"b", b"c"), (b"b/2", b"")), 1):
            side.watch(watch_create(watch, key, end))
        side.hear(3)
    leases: list[int] = []
    for _ in range(1200 * ROUNDS):
        path, message = some_request(chance, leases)
        (status, answer), (other, mine) = (side.ask(path, message) for side in sides)
        assert status == other, (path, message)
        if status.code:
            refused.add(status.message)
            continue
        assert plain(path, answer) == plain(path, mine), (path, message)
        if path == requests.LEASE_GRANT:
            leases = [*leases, read_lease(answer).lease][-4:]
        elif path == requests.LEASE_REVOKE:
            leases = [one for one in leases if lease_id(one) != message]
    for side in sides:
        side.watch(watch_cancel(2))
        side.ask(requests.RANGE, range_of(b"a"))
    expected = plain_heard(simulated.heard)
    assert min(map(len, expected.values())) > 30
    while (told := plain_heard(real.heard)) != expected:
        assert all(one == expected[watch][: len(one)] for watch, one in told.items())
        real.hear(len(real.heard) + 1)
    assert len(refused) == 4, refused


def test_no_shorter_leases_are_given(sides: tuple[Real, Simulated]) -> None:
    granted = [side.ask(requests.LEASE_GRANT, number(1, 0) + number(2, 99)) for side in sides]
    assert [read_lease(answer).ttl for _, answer in granted] == [1, 1]
