"""A cluster as one wire: where a slot was found is remembered, so that one node in trouble is no other's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from holdfast.drivers.base import finish
from holdfast.errors import Unavailable
from holdfast.stores.redis.cluster import MOST_NODES, ClusterWire
from holdfast.stores.redis.keys import SLOTS, pack, slot
from holdfast.stores.redis.replies import Reply, ReplyError
from holdfast.stores.redis.url import Target, parse

PORTS = (1, 2, 3)


class Node:
    """Has a third of the slots."""

    down = False
    ear: Any = None

    def __init__(self, target: Target) -> None:
        self.port = target.addresses[0][1]
        self.where = target.shown()
        _NODES[self.port] = self

    def answer(self, request: bytes) -> Reply:
        if self.down:
            return Unavailable(f"cannot connect to Redis at {self.where}")
        home = PORTS[slot(request) * len(PORTS) // SLOTS]
        return b"yes" if home == self.port else ReplyError(f"MOVED {slot(request)} 127.0.0.1:{home}")

    async def ask(self, request: bytes, within: float) -> Reply:
        if isinstance(reply := self.answer(request), Unavailable):
            raise reply
        return reply

    async def ask_all(self, requests: Sequence[bytes], within: float, *, once: bool = False) -> list[Reply]:
        return [once] * len(requests)

    def reset(self) -> None:
        """Somebody else finds out about a node in this very moment."""
        _found_meanwhile()

    async def close(self) -> None:
        _found_meanwhile()

    @staticmethod
    async def ask_each_apart(asked: Sequence[tuple[Any, Sequence[bytes]]], within: float) -> list[list[Reply]]:
        return [[node.answer(request) for request in requests] for node, requests in asked]


_NODES: dict[int, Node] = {}
_found_meanwhile: Callable[[], object] = lambda: None  # noqa: E731


def request_of(name: str) -> bytes:
    return pack("EVALSHA", "0" * 40, 1, f"hf:{{{name}}}")


def home_of(name: str) -> int:
    return PORTS[slot(request_of(name)) * len(PORTS) // SLOTS]


def test_a_lease_found_on_the_first_node_that_was_asked_is_not_looked_for_on_one_that_is_down() -> None:
    wire = ClusterWire(parse("redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in PORTS)), Node)  # type: ignore[arg-type]  # as much of a wire as is asked
    names = {home_of(name): request_of(name) for name in (f"n{number}" for number in range(30))}
    assert [finish(wire.ask(names[port], 1.0)) for port in PORTS] == [b"yes"] * 3
    _NODES[2].down = True
    for _ in range(len(PORTS) + 1):  # whichever is asked first next time
        first, second, third = finish(wire.ask_apart([names[port] for port in PORTS], 1.0))
        assert (first, third) == (b"yes", b"yes")
        assert isinstance(second, Unavailable)


def test_what_may_be_asked_only_once_is_asked_once_of_a_node_that_is_just_getting_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A release that is repeated unseen would find nothing, and be told as a loss."""
    wire = ClusterWire(parse("redis+cluster://127.0.0.1:1"), Node)  # type: ignore[arg-type]  # as much of a wire as is asked
    monkeypatch.setattr(Node, "answer", lambda *_: ReplyError("ASK 5 127.0.0.1:2"))
    assert finish(wire.ask(request_of("x"), 1.0)) is True


@pytest.mark.parametrize("what", ["reset", "close"])
def test_a_node_that_another_thread_finds_meanwhile_breaks_nothing(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it broke: "dictionary changed size during iteration"."""
    wire = ClusterWire(parse("redis+cluster://127.0.0.1:1"), Node)  # type: ignore[arg-type]  # as much of a wire as is asked
    found = iter(range(2, 100))

    def find() -> None:
        monkeypatch.setattr(wire, "_closed", False)
        wire._wire(("127.0.0.1", next(found)))

    find()
    monkeypatch.setitem(globals(), "_found_meanwhile", find)
    wire.reset() if what == "reset" else finish(wire.close())
    assert next(found) > 3


@pytest.mark.parametrize("how", ["MOVED 5", "MOVED {}", "ASK 5"])
def test_a_cluster_that_sends_us_to_ever_new_nodes_does_not_fill_the_memory(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = ClusterWire(parse("redis+cluster://127.0.0.1:1"), Node)  # type: ignore[arg-type]  # as much of a wire as is asked
    places = iter(range(2, 60_000))

    def elsewhere(*_: object) -> Reply:
        number = next(places)
        return ReplyError(f"{how.format(number)} 127.0.0.1:{number}")

    monkeypatch.setattr(Node, "answer", elsewhere)
    for number in range(5 * MOST_NODES):
        finish(wire.ask_apart([request_of(f"n{number}")], 1.0))
        assert len(wire._wires) <= MOST_NODES
    monkeypatch.undo()
    _NODES.clear()
    for name in ("a", "b", "c", "d"):  # in its right mind again: it is asked again, and answers
        (found,) = finish(wire.ask_apart([request_of(name)], 1.0))
        if found == b"yes":
            break
    else:
        pytest.fail(f"it is never asked again: {found!r}")
