"""Redis, etcd and Consul that say something wrong now and then: nothing but our own errors, by name and in time, and no token
that no store gives."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import Streams
from holdfast.drivers.world import World
from holdfast.errors import Unavailable
from holdfast.stores.base import Store
from holdfast.stores.etcd import looking
from holdfast.stores.etcd import open_store as etcd
from holdfast.stores.etcd.requests import data, number

from ..properties import examples, given, st
from ..simulation.scripted_etcd import Line
from .liars import SERVERS, LyingEtcd, converse

seeds = st.integers(0, 2**32 - 1)


@pytest.mark.parametrize("kind", SERVERS)
@examples(15)
@given(seed=seeds)
def test_an_answer_that_says_something_else_is_unavailable(kind: str, seed: int) -> None:
    converse(kind, seed, bytewise=False)


@pytest.mark.parametrize("kind", SERVERS)
@examples(8)
@given(seed=seeds)
def test_bytes_that_were_spoilt_on_their_way_are_unavailable(kind: str, seed: int) -> None:
    converse(kind, seed, bytewise=True)


# Each of these escaped once: a token of 0 or past the end, an answer of another kind, an id that is none, a number without end.
@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        *(("redis", seed) for seed in (0, 5, 10, 107)),
        *(("etcd", seed) for seed in (10, 17, 20, 26, 27, 30)),
        *(("consul", seed) for seed in (22, 33, 62, 147, 577, 580)),
    ],
)
def test_what_escaped_once_does_not_again(kind: str, seed: int) -> None:
    converse(kind, seed, bytewise=False)


class Circular(LyingEtcd):
    """It has always more names, and always the same; and whoever is to be put out has just moved."""

    def _answer(self, line: Line, stream: int, message: bytes) -> None:
        pair = data(2, data(1, b"holdfast/@in/x\0w") + number(2, 5) + number(3, 5))
        if line.paths[stream].endswith(b"/Range"):
            line.say(stream, self._header() + pair + number(3, 1))
        elif line.paths[stream].endswith(b"/Txn"):
            line.say(stream, self._header() + data(3, data(1, self._header() + pair)))
        else:
            line.say(stream, self._header() + number(2, 7) + number(3, 100_000))
        line.end(stream)


class Endless(LyingEtcd):
    """It has always more names, and always others: 12 kB of them at a time, which are one frame."""

    pages = 0

    def _answer(self, line: Line, stream: int, message: bytes) -> None:
        Endless.pages += 1
        pairs = [
            data(
                2,
                data(1, b"holdfast/@in/%09d%03d%b\0w" % (Endless.pages, at, b"x" * 400)) + number(2, 5) + number(3, 5),
            )
            for at in range(28)
        ]
        line.say(stream, self._header() + b"".join(pairs) + number(3, 1))
        line.end(stream)


def _ask_circular(question: Callable[[Store], Coroutine[Any, Any, Any]], whom: type[LyingEtcd] = Circular) -> None:
    with World(1, max_steps=1000) as world:
        process = Process(world, "client")
        whom(Process(world, "server"), Streams(world), ("liar", 2379))
        store = etcd("etcd://liar:2379", process.driver)
        with pytest.raises(Unavailable, match="liar:2379"):
            world.run(process.spawn(lambda: question(store), "main"))


def test_names_that_go_round_in_circles_come_to_an_end() -> None:
    _ask_circular(lambda store: store.names("y"))


def test_names_without_an_end_come_to_one() -> None:
    """Ten pages, and not ten thousand: in the two minutes that it may take, they would have been gigabytes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(looking, "MOST_LISTED", 100_000)
        patched.setattr(Endless, "pages", 0)
        _ask_circular(lambda store: store.names(), Endless)
        assert Endless.pages < 20


def test_who_cannot_be_put_out_is_told_so() -> None:
    _ask_circular(lambda store: store.evict("x", 5, "me"))


def test_the_liars_do_lie_and_what_is_honest_is_believed() -> None:
    for kind in SERVERS:
        assert sum(len(converse(kind, seed, bytewise=seed % 2 == 0)) for seed in range(12)) > 3, kind
        assert converse(kind, 1, bytewise=False, honest=True) == [], kind
