"""The simulated Redis Cluster sends people away as the real one does: before, while and after a slot moves."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.drivers.base import finish
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import SimulatedStream, Streams
from holdfast.drivers.world import World
from holdfast.stores.redis.keys import SLOTS, slot
from holdfast.testing import servers
from holdfast.testing.simulation.servers.redis import ClusterNode
from holdfast.testing.simulation.servers.redis.server import Client

from .test_redis_like_the_real_one import Real

pytestmark = pytest.mark.server

NUMBER = slot(b"{moving}")
OWNER = NUMBER * 3 // SLOTS
SOURCE, TARGET, THIRD = OWNER, (OWNER + 1) % 3, (OWNER + 2) % 3
KEYS = [b"{moving}:%d" % number for number in range(3)]
COUNT = b"return #KEYS"

Ask = Callable[[int, list[list[bytes]]], Any]


def questions() -> list[tuple[int, list[list[bytes]]]]:
    """Of every node, with and without ASKING, for one key or more, of which some are there."""
    asked = []
    some = [keys for size in (1, 2, 3) for keys in itertools.combinations(KEYS, size)]
    for node, keys, asking in itertools.product((SOURCE, TARGET, THIRD), some, (False, True)):
        question = [b"EVAL", COUNT, b"%d" % len(keys), *keys]
        asked.append((node, [[b"ASKING"], question] if asking else [question]))
    return asked


def told(ask: Ask) -> list[Any]:
    return [ask(node, words) for node, words in questions()]


def of_the_real_one() -> list[list[Any]]:
    with servers.cluster("redis-cluster", 3) as cluster:
        members = cluster.members
        wires = [Real(member) for member in members]
        numbers = {f"127.0.0.1:{member.port}": str(at) for at, member in enumerate(members)}
        names = [str(member.execute("CLUSTER", "MYID"), "ascii") for member in members]  # type: ignore[arg-type]

        def ask(node: int, words: list[list[bytes]]) -> Any:
            reply = wires[node].ask_all(words)[-1]
            return " ".join(numbers.get(word, word) for word in reply.split(" ")) if isinstance(reply, str) else reply

        members[SOURCE].execute("SET", KEYS[0].decode(), "x")
        members[SOURCE].execute("SET", KEYS[1].decode(), "x")
        answers = [told(ask)]
        members[TARGET].execute("CLUSTER", "SETSLOT", NUMBER, "IMPORTING", names[SOURCE])
        members[SOURCE].execute("CLUSTER", "SETSLOT", NUMBER, "MIGRATING", names[TARGET])
        answers.append(told(ask))
        for key in KEYS[:2]:
            members[SOURCE].execute("MIGRATE", "127.0.0.1", members[TARGET].port, key.decode(), 0, 5000)
            answers.append(told(ask))
        for at in (TARGET, SOURCE, THIRD):
            members[at].execute("CLUSTER", "SETSLOT", NUMBER, "NODE", names[TARGET])
        answers.append(told(ask))
        for wire in wires:
            wire.close()
        return answers


def of_the_simulated_one() -> list[list[Any]]:
    with World(1) as world:
        streams = Streams(world)
        nodes = [ClusterNode(Process(world, f"{at}"), streams, (f"n{at}", 1), (f"r{at}", 1)) for at in range(3)]
        clients = [Client(SimulatedStream(streams, node.process, "")) for node in nodes]
        for node, client in zip(nodes, clients, strict=True):
            node.nodes, client.is_in = nodes, True
        numbers = {f"n{at}:1": str(at) for at in range(3)}

        def ask(node: int, words: list[list[bytes]]) -> Any:
            for one in words:
                reply = finish(nodes[node]._answered(clients[node], one)).decode().strip()
            if reply.startswith(":"):
                return int(reply[1:])
            return " ".join(numbers.get(word, word) for word in f"!{reply[1:]}".split(" "))

        for key in KEYS[:2]:
            nodes[SOURCE].space.put(key, b"x", None)
        answers = [told(ask)]
        nodes[SOURCE].hand_over(NUMBER, nodes[TARGET], 3.0, lambda: None, together=False)
        for until in (0.5, 1.5, 2.5, 9.0):
            world.run_until(until)
            answers.append(told(ask))
        return answers


def test_whoever_asks_for_keys_of_a_slot_that_moves_is_told_the_same() -> None:
    real, simulated = of_the_real_one(), of_the_simulated_one()
    for when, (one, other) in enumerate(zip(real, simulated, strict=True)):
        for question, right, ours in zip(questions(), one, other, strict=True):
            assert ours == right, f"at stage {when}: {question}"
    kinds = {str(answer).split(" ")[0] for answers in real for answer in answers}
    assert {"!MOVED", "!ASK", "!TRYAGAIN", "1", "2"} <= kinds
