"""The simulated Consul answers as the real one does: random transactions, sessions and queries to both, over HTTP."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.drivers.base import finish
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.stores.consul.replies import Answer, Reader
from holdfast.testing import servers
from holdfast.testing.simulation.servers.consul import ConsulCluster
from holdfast.testing.simulation.servers.consul.cluster import answered

pytestmark = pytest.mark.server

ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "1"))  # `make soak` says more
KEYS = ["a", "b", "b/1", "b/2", "b/2:", "c%20d"]
PREFIXES = ["a", "b", "b/", "b/2", "z"]


class Side:
    def ask(self, method: str, target: str, body: bytes = b"") -> Answer:
        raise NotImplementedError


class Real(Side):
    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=60)

    def ask(self, method: str, target: str, body: bytes = b"") -> Answer:
        self._socket.sendall(
            f"{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        reader = Reader()
        while (answer := reader.feed(self._socket.recv(1 << 16))) is None:
            pass
        return answer

    def close(self) -> None:
        self._socket.close()


class Simulated(Side):
    def __init__(self, world: World) -> None:
        self._cluster = ConsulCluster(world, Streams(world), [("consul", 8500)])
        (self._member,) = self._cluster.members

    def ask(self, method: str, target: str, body: bytes = b"") -> Answer:
        answer = Reader().feed(answered(*finish(self._member._answer(method, target, body))))
        assert answer is not None
        return answer


Sides = tuple[Real, Simulated]


@pytest.fixture
def sides() -> Iterator[Sides]:
    with servers.start("consul") as one, contextlib.closing(Real(one.address)) as real, World(1) as world:
        yield real, Simulated(world)


class Same:
    """Indexes and sessions are each side's own: told alike, if they are the same one in the order in which they appeared."""

    def __init__(self) -> None:
        self.indexes: list[tuple[int, int]] = []
        self.sessions: list[tuple[str, str]] = []

    def both(self, side: int, word: Any) -> Any:
        """What a number in a request stands for on that side."""
        if isinstance(word, tuple):
            return word[side]
        if isinstance(word, dict):
            return {key: self.both(side, value) for key, value in word.items()}
        return [self.both(side, one) for one in word] if isinstance(word, list) else word

    def check(self, one: Answer, other: Answer) -> None:
        assert one.status == other.status, (one, other)
        if one.status == 404 or not one.body:
            return
        said, mine = (json.loads(answer.body) for answer in (one, other))
        if one.status == 409:
            assert said["Errors"][0]["OpIndex"] == mine["Errors"][0]["OpIndex"], (said, mine)
            told, my_words = (str(each["Errors"][0]["What"]) for each in (said, mine))
            for word in (
                "invalid session",
                "lock is already held",
                "isn't held",
                "exists",
                "doesn't exist",
                "modify index",
            ):
                assert (word in told) == (word in my_words), (told, my_words)
        elif isinstance(said, dict) and "Results" in said:
            self._pairs([one["KV"] for one in said["Results"] or ()], [one["KV"] for one in mine["Results"] or ()])
        elif isinstance(said, list) and said and "Key" in said[0]:
            self._pairs(said, mine)

    def _pairs(self, said: list[dict[str, Any]], mine: list[dict[str, Any]]) -> None:
        assert [self._plain(pair) for pair in said] == [self._plain(pair) for pair in mine]
        for one, other in zip(said, mine, strict=True):
            for field in ("CreateIndex", "ModifyIndex"):
                pair = one[field], other[field]
                assert all((pair[0] == known[0]) == (pair[1] == known[1]) for known in self.indexes[-40:]), (one, other)
                if pair not in self.indexes:
                    self.indexes.append(pair)
            session = one.get("Session", ""), other.get("Session", "")
            assert session == ("", "") or session in self.sessions

    @staticmethod
    def _plain(pair: dict[str, Any]) -> tuple[Any, ...]:
        return pair["Key"], pair["Value"] or None, pair["LockIndex"], pair["Flags"], "Session" in pair


def some_operation(chance: random.Random, same: Same) -> dict[str, Any]:
    key = chance.choice(KEYS)
    verb = chance.choice(
        ["set", "set", "lock", "lock", "unlock", "delete", "check-index", "check-not-exists", "get-tree"]
    )
    one: dict[str, Any] = {"Verb": verb, "Key": key if verb != "get-tree" else chance.choice(PREFIXES)}
    if verb in ("set", "lock", "unlock"):
        one["Value"] = base64.b64encode(b"%d" % chance.randint(0, 2)).decode()
    if verb in ("lock", "unlock"):
        one["Session"] = chance.choice(same.sessions[-3:])
    if verb == "check-index":
        one["Index"] = chance.choice([*same.indexes[-6:], (1, 1)])
    return {"KV": one}


@pytest.mark.timeout(3600)
def test_random_requests_are_answered_alike(sides: Sides) -> None:
    chance, same = random.Random(1), Same()
    statuses: dict[int, int] = {}

    def ask(method: str, target: Any, body: Any = None) -> list[Answer]:
        answers = []
        for at, side in enumerate(sides):
            content = b"" if body is None else json.dumps(same.both(at, body)).encode()
            answers.append(side.ask(method, "".join(map(str, same.both(at, target))), content))
        statuses[answers[0].status] = statuses.get(answers[0].status, 0) + 1
        same.check(*answers)
        return answers

    def open_session() -> None:
        wish = {"TTL": "1000s", "LockDelay": "0s", "Behavior": chance.choice(["delete", "delete", "release"])}
        one, other = ask("PUT", ["/v1/session/create"], {**wish, "Checks": [], "NodeChecks": []})
        same.sessions.append((json.loads(one.body)["ID"], json.loads(other.body)["ID"]))

    open_session()
    for _ in range(1000 * ROUNDS):
        what = chance.random()
        if what < 0.7:
            ask("PUT", ["/v1/txn"], [some_operation(chance, same) for _ in range(chance.randint(1, 4))])
        elif what < 0.85:
            recurse = chance.random() < 0.5
            key = quote(chance.choice(PREFIXES if recurse else KEYS), safe="/")
            ask("GET", [f"/v1/kv/{key}{'?recurse' if recurse else ''}"])
        elif what < 0.9:
            open_session()
        else:
            verb = chance.choice(["renew", "destroy"])
            ask("PUT", [f"/v1/session/{verb}/", chance.choice(same.sessions[-4:])])
    assert {200, 404, 409} <= set(statuses), statuses
    assert min(statuses.values()) > 10, statuses


def test_a_lock_delay_keeps_everybody_out(sides: Sides) -> None:
    for side in sides:
        sessions = []
        for _ in range(2):
            wish = {"TTL": "1000s", "LockDelay": "15s", "Behavior": "delete", "Checks": [], "NodeChecks": []}
            sessions.append(json.loads(side.ask("PUT", "/v1/session/create", json.dumps(wish).encode()).body)["ID"])
        locks = [
            json.dumps([{"KV": {"Verb": "lock", "Key": "delayed", "Session": one, "Value": ""}}]).encode()
            for one in sessions
        ]
        assert side.ask("PUT", "/v1/txn", locks[0]).status == 200
        assert side.ask("PUT", f"/v1/session/destroy/{sessions[0]}").status == 200
        refused = side.ask("PUT", "/v1/txn", locks[1])
        assert refused.status == 409
        assert b"lock delay" in refused.body


def test_a_query_says_from_where_to_go_on(sides: Sides) -> None:
    """What is asked for again with that index is not answered before there is news."""
    for side in sides:
        put = json.dumps([{"KV": {"Verb": "set", "Key": "there", "Value": "MQ=="}}]).encode()
        index = json.loads(side.ask("PUT", "/v1/txn", put).body)["Results"][0]["KV"]["ModifyIndex"]
        for target in ("/v1/kv/there", "/v1/kv/the?recurse"):
            assert side.ask("GET", target).at == index
        gone = json.dumps([{"KV": {"Verb": "delete", "Key": "there"}}]).encode()
        assert side.ask("PUT", "/v1/txn", gone).status == 200
        for target in ("/v1/kv/there", "/v1/kv/the?recurse"):
            answer = side.ask("GET", target)
            assert (answer.status, answer.at > index) == (404, True)
