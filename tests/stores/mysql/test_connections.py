"""What becomes of a connection that is in mid-conversation: given up, or inherited."""

from __future__ import annotations

import os
import stat
import warnings
from typing import Any

import pytest

from holdfast import Unavailable
from holdfast.claim import Grant
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.mariadb import MariaDB

from .worlds import WORLDS, beside, claim, run

pytestmark = pytest.mark.server
LONG = 60.0


@pytest.mark.parametrize("world", WORLDS)
def test_a_connection_whose_answer_did_not_come_in_time_is_closed(world: str, url: str, mariadb: MariaDB) -> None:
    with Proxy(mariadb.address) as proxy:

        async def scenario(store: Any) -> None:
            grant = await store.claim(claim())
            (line,) = store._server._everything
            proxy.to_client.hold()
            with pytest.raises(Unavailable):
                await store.claim(claim("y"), 0.3)
            assert not line.alive()
            assert store._server._pool._lying == [None]
            proxy.flow()
            assert isinstance(await store.claim(grant.claim, LONG), Grant)

        run(world, url.replace(f":{mariadb.port}", f":{proxy.port}") + "?pool=1&timeout=60", scenario)


@pytest.mark.parametrize("world", WORLDS)
def test_a_forked_child_lets_go_of_every_connection_also_of_those_that_are_in_use(
    world: str, url: str, mariadb: MariaDB
) -> None:
    with Proxy(mariadb.address) as proxy:

        async def scenario(store: Any) -> None:
            grant = await store.claim(claim())
            await store.renew([grant], LONG)
            proxy.to_client.hold()
            claims = await beside(world, lambda: store.claim(claim("y"), LONG))
            while not proxy.to_client.caught.chunks:
                await store._driver.sleep(0.005)
            plugs = [_plug(line) for line in store._server._everything]
            assert len(plugs) == 2
            assert _sockets_in_a_child(store, plugs) == 0
            proxy.flow()
            assert isinstance(await claims(LONG), Grant)

        run(world, url.replace(f":{mariadb.port}", f":{proxy.port}") + "?pool=2&timeout=60", scenario)


def _sockets_in_a_child(store: Any, plugs: list[int]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other threads there are
        pid = os.fork()
    if pid == 0:
        try:
            store.forked()
            os._exit(sum(map(_is_socket, plugs)))
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _is_socket(number: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(number).st_mode)
    except OSError:
        return False  # closed


def _plug(line: Any) -> int:
    number: int = line.fileno() if hasattr(line, "fileno") else line.transport.get_extra_info("socket").fileno()
    return number
