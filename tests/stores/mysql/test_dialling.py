"""To dial in asyncio, at a server that takes the call and says nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable
from importlib.util import find_spec
from typing import Any

import pytest

from holdfast.errors import Unavailable
from holdfast.stores.mysql import connection_aio
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
                    async with asyncio.timeout(10):
                        await dial(target, 0.1)
                # Else there would be more connections than the pool has: its place there is given to the next now.
                assert asyncio.all_tasks() == {asyncio.current_task()}
            assert swallowed
            caller, _ = silent.accept()
            with caller:
                caller.settimeout(10)
                assert caller.recv(1) == b""  # it hung up

    asyncio.run(main())


@pytest.mark.skipif(not find_spec("uvloop"), reason="uvloop is not installed")
def test_a_server_that_hangs_up_at_once_is_no_mistake_of_the_user_on_uvloop_either() -> None:
    """There the driver finds no socket any more, and what it raises reads like a login that wants TLS."""
    import uvloop

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = listener.accept()
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                caller.close()  # with a reset

    async def main() -> None:
        for _ in range(20):
            with pytest.raises(Unavailable):
                await dial(target, 5.0)

    async def without_a_socket(_: Any) -> None:
        raise RuntimeError("Transport does not expose socket instance")  # what it says then, word for word

    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = parse(f"mysql://root@127.0.0.1:{listener.getsockname()[1]}/holdfast")
        threading.Thread(target=serve, daemon=True).start()
        uvloop.run(main())
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(connection_aio, "connected", without_a_socket)
            uvloop.run(main())
        listener.shutdown(socket.SHUT_RDWR)
