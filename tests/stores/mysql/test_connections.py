"""What becomes of a connection that is in mid-conversation: given up, or inherited."""

from __future__ import annotations

import os
import queue
import select
import socket
import stat
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import Unavailable
from holdfast.claim import Grant
from holdfast.drivers.base import finish
from holdfast.stores.mysql import connection as blocking
from holdfast.stores.mysql.url import parse
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


def test_the_end_of_a_connection_is_heard_though_another_has_its_number_by_then(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is woken in poll() looks at what has that number then: the next connection, which was opened meanwhile."""
    connection: Any = finish(blocking.dial(parse(url), LONG))
    number = connection.fileno()
    told: queue.Queue[list[tuple[int, int]]] = queue.Queue()
    others = socket.socketpair()

    class Slow:
        def __init__(self) -> None:
            self._poll = select.poll()
            self.register = self._poll.register

        def poll(self) -> None:
            connection.close()
            os.dup2(others[0].fileno(), number)
            told.put(self._poll.poll(5000))

    monkeypatch.setattr(blocking, "select", SimpleNamespace(poll=Slow, POLLRDHUP=getattr(select, "POLLRDHUP", 0)))
    try:
        connection.watch(lambda: None)
        assert told.get(timeout=LONG) != []
    finally:
        os.close(number)
        for one in others:
            one.close()


def test_a_forked_child_keeps_nothing_of_a_connection_that_is_watched(url: str) -> None:
    connection: Any = finish(blocking.dial(parse(url), LONG))
    connection.watch(lambda: None)
    store = SimpleNamespace(forked=connection.disown)
    assert _sockets_in_a_child(store, [connection.fileno(), connection._watched.fileno()]) == 0
    connection.close()
