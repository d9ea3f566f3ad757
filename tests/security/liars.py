"""Servers that answer as Redis, etcd and Consul do, but for what they get wrong: one answer or another is spoilt on its way.

What is real here is the client, over simulated streams and in virtual time: so a wait that has no end is found at once, and a
thousand conversations take a second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast.claim import MAX_TOKEN, Claim, Grant, Place, Snapshot, new_holder
from holdfast.drivers.base import Driver
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import SimulatedStream, Streams
from holdfast.drivers.world import World
from holdfast.errors import Misuse, Unavailable
from holdfast.stores.base import Store
from holdfast.stores.consul import open_store as consul
from holdfast.stores.etcd import open_store as etcd
from holdfast.stores.etcd.requests import data, number
from holdfast.stores.redis import open_store as redis

from ..simulation.scripted_consul import ScriptedConsul
from ..simulation.scripted_etcd import Line, ScriptedEtcd
from ..simulation.scripted_redis import Answer, ScriptedRedis

WITHIN = 1.0
SLACK = 0.6  # virtual seconds: a last word, and what is tried once more
WORDS: list[Any] = [
    *(None, True, False, 0, 1, -1, 3, 2**31, 2**53, 2**63, -(2**63), 10**30, 0.5, float("inf"), float("nan")),
    *("", "x", "²", "\ud800", "9" * 5000, "x" * 70_000, [], [[]], {}, {"KV": None}, [1, 2, 3], {"ID": 3}),
]


class Fate:
    """What becomes of answers. The same seed spoils the same ones in the same way."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.likely = self.chance.choice((0.15, 0.5, 1.0))

    def strikes(self) -> bool:
        return self.chance.random() < self.likely

    def bytes(self, honest: bytes) -> bytes:
        """Cut off, with letters changed, left out or put in, told twice, or something else altogether."""
        chance = self.chance
        at = chance.randrange(len(honest) + 1)
        kind = chance.randrange(7)
        if kind == 0:
            return honest[:at]
        if kind == 1:
            return honest[:at] + chance.randbytes(chance.randrange(1, 9)) + honest[at:]
        if kind == 2:
            return honest[:at] + honest[at + chance.randrange(1, 9) :]
        if kind == 3:
            return honest + honest
        if kind == 4:
            return chance.randbytes(chance.randrange(200))
        if kind == 5:
            return honest[:at] + b"\xff" * chance.randrange(1, 12) + honest[at + 1 :]
        spoilt = bytearray(honest)
        for _ in range(min(len(spoilt), chance.randrange(1, 4))):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        return bytes(spoilt)

    def value(self, honest: Any) -> Any:
        """Something in it replaced, left out or doubled, at any depth."""
        chance = self.chance
        if isinstance(honest, (list, dict)) and honest and chance.random() < 0.7:
            if isinstance(honest, list):
                at = chance.randrange(len(honest))
                kind = chance.randrange(4)
                if kind == 0:
                    return honest[:at] + honest[at + 1 :]
                if kind == 1:
                    return [*honest, honest[at]]
                return [*honest[:at], self.value(honest[at]), *honest[at + 1 :]]
            key = chance.choice(list(honest))
            rest = {one: value for one, value in honest.items() if one != key}
            return rest if chance.random() < 0.2 else {**rest, key: self.value(honest[key])}
        return chance.choice(WORDS)


class SpoilingStreams(Streams):
    """Bytes of the server are spoilt on their way."""

    def __init__(self, world: World, server: Process, fate: Fate | None) -> None:
        super().__init__(world)
        self._server = server
        self._fate = fate

    def _carry(self, sender: SimulatedStream, piece: bytes) -> None:
        if piece and self._fate is not None and sender.process is self._server and self._fate.strikes():
            piece = self._fate.bytes(piece)
        super()._carry(sender, piece)


class LyingRedis(ScriptedRedis):
    fate: Fate | None = None

    async def _answer(self, words: list[bytes], stream: SimulatedStream) -> Answer:
        try:
            honest = await super()._answer(words, stream)
        except AssertionError:  # what the scripted one does not know
            honest = [b"0", [b"hf:{x}"] if self.fate and self.fate.likely else []] if words[0] == b"SCAN" else 0
        if self.fate is None or not self.fate.strikes():
            return honest
        return _spoken(self.fate.value(honest))


def _spoken(value: Any) -> Answer:
    """As much of it as RESP can say."""
    if isinstance(value, list):
        return [_spoken(one) for one in value]
    if value is None or isinstance(value, (bytes, Exception)) or (type(value) is int and -(2**63) <= value < 2**63):
        return value
    return str(value).encode("utf-8", "replace")


class LyingConsul(ScriptedConsul):
    fate: Fate | None = None

    async def _answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        status, honest = await super()._answer(method, target, body)
        if self.fate is None or not self.fate.strikes():
            return status, honest
        if self.fate.chance.random() < 0.2:
            status = self.fate.chance.choice((200, 204, 304, 400, 403, 404, 409, 413, 500, 503))
        return status, self.fate.value(honest)


class LyingLine(Line):
    """A connection on which messages are spoilt."""

    fate: Fate | None = None

    def say(self, stream: int, message: bytes) -> None:
        if self.fate is not None and self.fate.strikes():
            message = self.fate.bytes(message)
        super().say(stream, message)

    def end(self, stream: int, code: int = 0, why: bytes = b"") -> None:
        if self.fate is not None and self.fate.strikes() and self.fate.chance.random() < 0.2:
            code, why = self.fate.chance.randrange(20), self.fate.chance.choice((b"", b"%zz", b"lease not found"))
        super().end(stream, code, why)


class LyingEtcd(ScriptedEtcd):
    fate: Fate | None = None

    def _line(self, stream: SimulatedStream) -> Line:
        line = LyingLine(stream)
        line.fate = self.fate
        return line

    def _answer(self, line: Line, stream: int, message: bytes) -> None:
        if line.paths[stream].endswith(b"/Range"):  # which the scripted one does not know
            line.say(stream, self._header() + data(2, data(1, b"holdfast/@in/x\0") + number(2, 5)))
            line.end(stream)
        else:
            super()._answer(line, stream, message)


SERVERS: dict[str, tuple[type[Any], Callable[[str, Driver], Store], int]] = {
    "redis": (LyingRedis, redis, 6379),
    "etcd": (LyingEtcd, etcd, 2379),
    "consul": (LyingConsul, consul, 8500),
}
ASKED = ("claim", "claim", "wait", "renew", "inspect", "names", "evict", "watch", "release")


async def ask(store: Store, what: str, claim: Claim) -> None:
    """Whatever is answered is of the kind that was asked for."""
    if what == "claim":
        found = await store.claim(claim, WITHIN)
        assert isinstance(found, (Grant, Place))
        assert isinstance(found, Place) or 0 < found.token <= MAX_TOKEN, found
    elif what == "wait":
        await store.wait(Place(claim, claim.ttl), WITHIN)
    elif what == "renew":
        (verdict,) = await store.renew([Grant(claim, 5, claim.ttl)], WITHIN)
        assert verdict is None or isinstance(verdict, (Grant, Unavailable)), verdict
    elif what == "inspect":
        snapshot = await store.inspect(claim.name, WITHIN)
        assert isinstance(snapshot, Snapshot)
        assert all(type(one.token) is int and type(one.owner) is str for one in snapshot.holders), snapshot
        str(snapshot)
    elif what == "names":
        assert all(type(name) is str for name in await store.names())
    elif what == "evict":
        past = await store.evict(claim.name, 5, "me")
        assert past is None or type(past) is int
    elif what == "watch":
        await store.watch(claim.name, 5, WITHIN)
    else:
        assert await store.release(claim, WITHIN) in (True, False)


def converse(kind: str, seed: int, *, bytewise: bool, honest: bool = False) -> list[Exception]:
    """Some questions to a liar. What went wrong, which may be nothing but Unavailable and Misuse, naming the server, in time."""
    lying, open_store, port = SERVERS[kind]
    fate = Fate(seed)
    if honest:
        fate.likely = 0.0
    trouble: list[Exception] = []
    with World(seed, max_time=600) as world:
        server, process = Process(world, "server"), Process(world, "client")
        streams = SpoilingStreams(world, server, fate if bytewise else None)
        liar = lying(server, streams, ("liar", port))
        store = open_store(f"{kind}://liar:{port}?timeout={WITHIN:g}", process.driver)
        liar.fate = None if bytewise else fate
        capacity = fate.chance.choice((1, 1, 3, 2**31 - 1))
        claim = Claim("x", new_holder(), "me", 20.0, 1, capacity, queue=fate.chance.random() < 0.7)

        async def asked(question: Callable[[], Coroutine[Any, Any, None]], what: str, patience: float) -> None:
            began = world.time
            try:
                await question()
            except (Unavailable, Misuse) as error:
                trouble.append(error)
            took = world.time - began
            assert took <= patience, f"{what} took {took:.2f} s"
            for one in trouble:
                assert f"liar:{port}" in str(one) or isinstance(one, Misuse), f"{what}: {one!r} names no server"

        async def main() -> None:
            for _ in range(5):
                what = fate.chance.choice(ASKED)
                await asked(lambda what=what: ask(store, what, claim), what, _patience(what))  # type: ignore[misc]
            await asked(store.close, "close", 2.0)

        world.run(process.spawn(main, "main"))
        world.run_until(world.time + 20)  # what goes on in the background ends too, or is at least no worse
        died = [error for task, error in world.failures if task.process is process]
        assert not died, f"in the background: {died!r}"
    return trouble


def _patience(what: str) -> float:
    return 3 * WITHIN + SLACK if what in ("names", "evict") else WITHIN + SLACK
