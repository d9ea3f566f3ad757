"""A connection that is reset right after the server's last words, in every kind of loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from holdfast import LeaseLost, aio
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.postgresql import PostgreSQL

from ..hands import SOON
from .hands import BACKENDS

pytestmark = pytest.mark.server

every_loop = pytest.mark.parametrize("new_loop", [None, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
NewLoop = Callable[[], asyncio.AbstractEventLoop] | None


def end_it(postgresql: PostgreSQL, proxy: Proxy) -> None:
    """While the loop does nothing else: it is told of the last words and of the reset together, and by uvloop only once."""
    before = proxy.to_client.passed.chunks
    postgresql.query(BACKENDS)
    proxy.wait_until(lambda: proxy.to_client.passed.chunks > before)
    proxy.cut(reset=True)
    proxy.flow()


@every_loop
def test_who_waits_for_an_answer_asks_again_at_once(postgresql: PostgreSQL, proxy: Proxy, new_loop: NewLoop) -> None:
    async def main() -> float:
        async with aio.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres") as locks:
            await (await locks.lock("x").acquire()).release()
            proxy.to_server.hold()
            asking = asyncio.create_task(locks.lock("x").acquire(timeout=SOON))
            await asyncio.to_thread(proxy.to_server.wait_for_caught, 1)
            end_it(postgresql, proxy)
            started = time.monotonic()
            await (await asking).release()
            return time.monotonic() - started

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) < 2, "the reset was not noticed before its time was over"


@every_loop
def test_a_session_lock_that_is_lost_is_told_at_once(postgresql: PostgreSQL, proxy: Proxy, new_loop: NewLoop) -> None:
    async def main() -> float:
        async with aio.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/postgres?mode=session") as locks:
            lease = await locks.lock("x", ttl=300).acquire()
            end_it(postgresql, proxy)
            started = time.monotonic()
            await asyncio.wait_for(lease.lost.wait(), SOON)
            with pytest.raises(LeaseLost):
                lease.check()
            return time.monotonic() - started

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(main()) < 1
