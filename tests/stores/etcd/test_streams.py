"""How many calls a server takes at once, and calls that end with nothing: a server of h2's at the other end, in both worlds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import RequestReceived
from h2.settings import SettingCodes

from holdfast.drivers.aio import Asyncio
from holdfast.errors import Unavailable
from holdfast.stores.etcd.requests import LEASE_KEEP_ALIVE, lease_id, op_range, range_of, txn
from holdfast.stores.etcd.url import parse
from holdfast.stores.etcd.wire import Wire
from holdfast.testing import servers

from .hands import Scripted, in_world

RANGE = b"/etcdserverpb.KV/Range"
ANSWER = b"\x0a\x02\x10\x01"  # a header, as of every answer of etcd's


class Peer(Scripted):
    """A stream to a server that takes so many calls at once, refuses the others, and answers when it is listened to."""

    def __init__(self, most: int, answer: bytes | None, *, stubborn: bool = False) -> None:
        self.most = most
        self.answer = answer
        self.stubborn = stubborn  # refuses everything
        self.asked = 0
        self.refused = 0
        self._open: list[int] = []
        self._h2 = H2Connection(H2Configuration(client_side=False))
        self._h2.initiate_connection()
        self._h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: most})

    async def send(self, data: bytes, deadline: float) -> None:
        for event in self._h2.receive_data(data):
            if isinstance(event, RequestReceived):
                self.asked += 1
                if self.stubborn or len(self._open) >= self.most:
                    self.refused += 1
                    self._h2.reset_stream(event.stream_id, ErrorCodes.REFUSED_STREAM)
                else:
                    self._open.append(event.stream_id)

    async def receive(self, deadline: float) -> bytes:
        for number in self._open:
            self._h2.send_headers(number, [(":status", "200")])
            if self.answer is not None:
                self._h2.send_data(number, b"\0" + len(self.answer).to_bytes(4, "big") + self.answer)
            self._h2.send_headers(number, [("grpc-status", "0")], end_stream=True)
        self._open.clear()
        said = self._h2.data_to_send()
        if not said:
            raise TimeoutError
        return said


def run(world: str, peer: Peer, calls: int) -> tuple[list[Any], Any]:
    async def ask(driver: Any) -> tuple[list[Any], Any]:
        wire = Wire(parse("etcd://a:2379"), driver)
        outcomes = await wire.ask_apart([(RANGE, b"")] * calls, driver.now() + 5)
        wire.close()
        return outcomes, driver

    return in_world(world, lambda driver: peer, ask)


WORLDS = pytest.mark.parametrize("world", ["threads", "asyncio"])


@WORLDS
@pytest.mark.parametrize("most", [1, 2, 7, 100, 128])
def test_more_calls_than_a_server_takes_at_once_are_answered_on_one_connection(world: str, most: int) -> None:
    """Once, all of them failed together, or what was refused; and the connection was given up each time."""
    peer = Peer(most, ANSWER)
    outcomes, driver = run(world, peer, 250)
    assert outcomes == [ANSWER] * 250
    assert len(driver.streams) == 1
    assert peer.asked == 250 + peer.refused
    assert peer.refused <= 100, "it refuses no more than was asked before it had said how many it takes"


@WORLDS
def test_who_refuses_everything_is_not_asked_for_ever(world: str) -> None:
    peer = Peer(5, ANSWER, stubborn=True)
    outcomes, _ = run(world, peer, 20)
    assert {type(one) for one in outcomes} == {Unavailable}
    assert peer.asked == 40, "each once more"


@WORLDS
@pytest.mark.parametrize("answer", [None, b""])
def test_a_call_that_ends_well_and_with_nothing_is_no_answer(world: str, answer: bytes | None) -> None:
    """Once, a list of names was empty then."""
    outcomes, _ = run(world, Peer(100, answer), 2)
    assert {type(one) for one in outcomes} == {Unavailable}


@pytest.mark.server
@pytest.mark.parametrize("most", [1, 3])
def test_an_etcd_that_takes_few_calls_at_once_answers_all_of_a_renewal(most: int) -> None:
    reads = (b"/etcdserverpb.KV/Txn", txn([], [op_range(range_of(b"x", keys_only=True))]))
    keeps = (LEASE_KEEP_ALIVE, lease_id(1))

    async def ask(url: str) -> list[Any]:
        driver = Asyncio()
        wire = Wire(parse(url), driver)
        outcomes = await wire.ask_apart([reads, keeps] * 60, driver.now() + 20)
        wire.close()
        return outcomes

    with servers.start("etcd-new", f"--max-concurrent-streams={most}") as etcd:
        outcomes = asyncio.run(ask(etcd.url))
    assert {type(one) for one in outcomes} == {bytes}
