"""PostgreSQL and MariaDB that speak their protocol well and lie in the rows: nothing but our own errors, by name and in time, in
both worlds, and no token that no store gives."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast.claim import Claim, new_holder
from holdfast.connecting import open_store
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import Driver, finish
from holdfast.drivers.threads import Threads
from holdfast.errors import Misuse, Unavailable, Unsupported
from holdfast.secret import Secret
from holdfast.stores.base import Store
from holdfast.stores.postgresql.line import Line
from holdfast.testing import servers
from holdfast.testing.servers.base import Server

from .liars import ASKED, WITHIN, ask
from .lying_rows import SPEAKERS, Liar, between

pytestmark = pytest.mark.server
SEEDS = 12 * int(os.environ.get("HOLDFAST_EXAMPLES", "1"))
PATIENCE = 4 * WITHIN + 5.0  # seconds, on a busy machine: what is asked thrice, and a last word
WORLDS: dict[str, tuple[Callable[[], Driver], Callable[[Coroutine[Any, Any, Any]], Any]]] = {
    "threads": (Threads, finish),
    "asyncio": (Asyncio, asyncio.run),
}


@pytest.fixture(scope="module", params=SPEAKERS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with servers.start(request.param) as server:
        yield server


def reached_by(server: Server, port: int, mode: str) -> str:
    scheme, _, rest = server.url.partition("://")
    login, _, place = rest.rpartition("@")
    database = place.partition("/")[2].partition("?")[0]
    plain = "&sslmode=disable" if scheme == "postgresql" else ""
    return f"{scheme}://{login}@127.0.0.1:{port}/{database}?mode={mode}&timeout={WITHIN:g}{plain}"


async def converse(store: Store, liar: Liar, name: str) -> list[Exception]:
    """What came of some questions, if not an answer: nothing but errors of ours."""
    capacity = liar.chance.choice((1, 1, 3, 2**31 - 1))
    claim = Claim(name, new_holder(), "me", 20.0, 1, capacity, queue=liar.chance.random() < 0.7)
    liar.likely = liar.chance.choice((0.15, 0.5, 1.0))
    trouble: list[Exception] = []
    try:
        for _ in range(5):
            what = liar.chance.choice(ASKED)
            began = time.monotonic()
            try:
                await ask(store, what, claim)
            except (Unavailable, Misuse, Unsupported) as error:
                trouble.append(error)
            assert time.monotonic() - began < PATIENCE, what
    finally:
        await store.close()
    return trouble


@pytest.mark.parametrize("mode", ["lease", "session"])
@pytest.mark.parametrize("world", WORLDS)
def test_rows_of_another_shape_are_unavailable(server: Server, mode: str, world: str) -> None:
    died: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, died.append
    lies = 0
    trouble: list[Exception] = []
    make_driver, run = WORLDS[world]
    try:
        for seed in range(SEEDS):
            liar = Liar(seed)
            with between(server.address, server.kind, liar) as port:

                async def main(port: int = port, liar: Liar = liar, seed: int = seed) -> list[Exception]:
                    store = open_store(Secret(reached_by(server, port, mode)), make_driver())
                    return await converse(store, liar, f"{world} {mode} {seed}")

                trouble += run(main())
                lies += liar.lies
    finally:
        threading.excepthook = before
    assert not died, f"in the background: {died!r}"
    assert lies > SEEDS, "they do lie"
    assert len(trouble) > SEEDS, "and it matters"
    for error in trouble:
        named = "127.0.0.1:" in str(error) or f"{world} {mode}" in str(error)  # the server, or the lock
        assert named or not isinstance(error, Unavailable), repr(error)


def test_what_is_honest_is_believed(server: Server) -> None:
    with between(server.address, server.kind, Liar(0)) as port:
        for mode in ("lease", "session"):
            with holdfast.connect(reached_by(server, port, mode)) as locks:
                locks.lock("honest").acquire(timeout=0).release()


@pytest.mark.parametrize("token", [0, -1, 2**62])
def test_a_token_that_no_store_gives_is_refused(server: Server, token: int) -> None:
    wide = token.to_bytes(8, "big", signed=True)

    def lie(rows: list[list[bytes | None]]) -> list[list[bytes | None]]:
        return [[_changed(one, wide, token) for one in row] for row in rows]

    with between(server.address, server.kind, lie) as port:
        for mode in ("lease", "session"):
            with (
                holdfast.connect(reached_by(server, port, mode)) as locks,
                pytest.raises((Unavailable, holdfast.NotAcquired)),
            ):
                locks.lock(f"a token of {token} in {mode}").acquire(timeout=0)


def _changed(value: bytes | None, wide: bytes, token: int) -> bytes | None:
    """A token is a time in microseconds: no other number is that large."""
    if value is None:
        return None
    if len(value) == 8 and 2**50 < int.from_bytes(value, "big") < 2**53:
        return wide
    if value.isdigit() and 2**50 < int(value) < 2**53:
        return str(token).encode()
    return value


def test_a_ring_that_is_no_text_disturbs_nobody() -> None:
    """In asyncio it is heard by a callback of the loop, which nobody awaits."""
    rings = iter([SimpleNamespace(relname=b"\xff", extra=b"\xfe"), None])
    line = SimpleNamespace(pgconn=SimpleNamespace(notifies=lambda: next(rings)))
    assert Line.bells(line) == [("\ufffd", "\ufffd")]  # type: ignore[arg-type]
