"""To dial in asyncio, at a server that takes the call and says nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable
from typing import Any

import pytest

from holdfast.errors import Unavailable
from holdfast.stores.mysql.connection_aio import dial
from holdfast.stores.mysql.url import parse


def test_a_cancellation_that_the_driver_swallows_does_not_make_it_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As asyncio.wait_for of Python 3.11 does, if the connection stands in the moment in which the time is up."""
    swallowed = []

    async def wait_for(connecting: Awaitable[Any], timeout: float | None) -> Any:
        connected = await connecting
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            swallowed.append(True)
        return connected

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            target = parse(f"mysql://root@127.0.0.1:{silent.getsockname()[1]}/holdfast")
            with monkeypatch.context() as patched:
                patched.setattr(asyncio, "wait_for", wait_for)
                with pytest.raises(Unavailable, match="did not answer in time"):
                    await dial(target, 0.1)
                ours = asyncio.current_task()
                others = asyncio.all_tasks() - {ours}
                for task in others:
                    with contextlib.suppress(asyncio.CancelledError):
                        async with asyncio.timeout(10):
                            await asyncio.shield(task)
            assert swallowed
            assert all(task.done() for task in others)
            caller, _ = silent.accept()
            with caller:
                caller.settimeout(10)
                assert caller.recv(1) == b""  # it hung up

    asyncio.run(main())
