"""What the tests of etcd share."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from holdfast.claim import Claim
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.etcd.store import EtcdStore
from holdfast.sync import Locks
from holdfast.testing.servers import wire
from holdfast.testing.servers.etcd import Etcd

T = TypeVar("T")


def store_of(locks: Locks) -> EtcdStore:
    store = locks._engine.store
    assert isinstance(store, EtcdStore)
    return store


def begin_with(store: EtcdStore, port: int) -> None:
    """Its next conversation is with this member, on a new connection."""
    pool = store._wire.pool
    while pool._idle:
        pool._idle.pop().stream.close()
    pool._members.serves(("127.0.0.1", port))


def ask(locks: Locks, claim: Claim) -> Any:
    return finish(store_of(locks).claim(claim))


def leases_of(locks: Locks) -> list[int]:
    """The sessions of a connection, as etcd numbers them."""
    return [session.lease for session in store_of(locks)._sessions._sessions.values()]


def admin(member: Etcd, path: str, **body: Any) -> Any:
    """As an operator would, through the JSON gateway."""
    return wire.http_json(member.address, "POST", path, body)


def base64(data: bytes) -> str:
    return b64encode(data).decode()


async def by_the_hundred(actions: Sequence[Awaitable[T]]) -> list[T]:
    """At once, but no more than a slow machine gets done in the time that each has."""
    done: list[T] = []
    for at in range(0, len(actions), 100):
        done += await asyncio.gather(*actions[at : at + 100])
    return done


# ---- wires to no server


class Scripted:
    """A stream to no server: what it says, a test says, in `receive`."""

    async def send(self, data: bytes, deadline: float) -> None: ...

    def is_stale(self) -> bool:
        return False

    def hang_up(self) -> None: ...

    def close(self) -> None: ...

    def give_up(self) -> None: ...

    def disown(self) -> None: ...


class _Dials:
    """Of a driver: all its connections are what `dial` makes of it."""

    def __init__(self, dial: Callable[[Any], Any]) -> None:
        super().__init__()
        self.streams: list[Any] = []
        self._dial = dial

    async def connect(self, *_: object) -> Any:
        self.streams.append(self._dial(self))
        return self.streams[-1]


class _InThreads(_Dials, Threads):
    pass


class _InAsyncio(_Dials, Asyncio):
    pass


def in_world(world: str, dial: Callable[[Any], Any], work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
    """What comes of the work, with a driver of that world that dials so."""

    async def run() -> T:
        return await work((_InThreads if world == "threads" else _InAsyncio)(dial))

    return asyncio.run(run()) if world == "asyncio" else finish(run())
