"""Connections that an interruption left behind are ended; nobody else's are."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from typing import Any

import pymysql
import pytest

import holdfast
from holdfast.errors import Unavailable
from holdfast.stores.mysql import connection_aio, ear
from holdfast.stores.mysql.conversation import Conversation
from holdfast.stores.mysql.url import parse
from holdfast.testing.network import Network
from holdfast.testing.servers.mariadb import MariaDB

from .admin import Admin, until

pytestmark = pytest.mark.server


def test_after_ctrl_c_and_a_restart_of_the_server_no_connection_of_others_is_ended(
    url: str, mariadb: MariaDB, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers of connections begin anew with the server: the one that we left behind may be anybody's by now."""

    def connect() -> Any:
        return pymysql.connect(host="127.0.0.1", port=mariadb.port, user="root", ssl_disabled=True)

    async def restarting(*_: object) -> None:
        raise Unavailable("it is restarting")

    for _ in range(
        100
    ):  # more than are needed to find out that the server is there again: the number must be free then
        connect().close()
    with holdfast.connect(f"{url}?timeout=2") as locks:
        locks.lock("warm", ttl=5).acquire().release()
        ((last,),) = admin.run("SELECT MAX(ID) FROM information_schema.PROCESSLIST")
        mariadb.pause()
        timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            locks.lock("x", ttl=5).acquire(timeout=30)
        timer.join()
        with monkeypatch.context() as patched:  # what goes on in the background must not come before the others
            patched.setattr(Conversation, "dial", restarting)
            mariadb.kill()
            mariadb.restart()
            others: list[Any] = []
            while not others or others[-1].thread_id() <= last:
                others.append(connect())
            assert others[0].thread_id() < last
        locks.lock("y", ttl=5).acquire(timeout=10).release()
        for one in others:
            with one.cursor() as cursor:
                assert cursor.execute("SELECT 1") == 1
            one.close()
    admin.reconnect()


def test_ctrl_c_in_a_claim_that_hangs_in_the_server_leaves_no_ghost(url: str, admin: Admin) -> None:
    with holdfast.connect(f"{url}?timeout=30") as locks, holdfast.connect(url) as others:
        locks.lock("x", ttl=60).acquire().release()
        admin.run("BEGIN")
        admin.run("SELECT 1 FROM holdfast_claims WHERE name = 'x' FOR UPDATE")
        interrupt = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        let_go = threading.Timer(1.0, lambda: admin.run("ROLLBACK"))
        interrupt.start()
        let_go.start()
        with pytest.raises(KeyboardInterrupt):
            locks.lock("x", ttl=60).acquire(timeout=30)
        interrupt.join()
        let_go.join()
        others.lock("x").acquire(timeout=0).release()


async def _as_in_mysql(*_: object) -> None:
    """Nobody keeps it quiet: it sleeps."""


@pytest.mark.parametrize("sleeps", [False, True], ids=["as in MariaDB", "as in MySQL"])
def test_closing_leaves_nothing_asleep_in_the_server(
    url: str, admin: Admin, monkeypatch: pytest.MonkeyPatch, sleeps: bool
) -> None:
    """A connection that sleeps is not looked at by the server: closed, it would sleep on, for seconds."""
    monkeypatch.setattr(ear, "_NAPS", 120)  # a minute: far longer than a busy machine takes to end it
    if sleeps:
        monkeypatch.setattr(ear.Ear, "_keep_quiet", _as_in_mysql)
    with holdfast.connect(url) as others, others.lock("x"):
        locks = holdfast.connect(url)
        began = time.monotonic()
        with pytest.raises(holdfast.NotAcquired):
            locks.lock("x").acquire(timeout=0.1)
        until(lambda: admin.run(_asleep(sleeps)))
        locks.close()
        left = began + 4.5 - time.monotonic()  # by itself the server looks five seconds after it fell asleep
        until(lambda: not admin.run(_asleep(sleeps)), within=max(left, 1.0))


def test_who_is_cut_off_has_no_bell_from_then_on(url: str, admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears it: whoever marks one that seems to listen would pass over those who do."""
    monkeypatch.setattr(ear, "_NAPS", 120)
    with (
        holdfast.connect(url) as others,
        others.lock("x"),
        Network(url) as network,
        holdfast.connect(network.url) as locks,
    ):
        with pytest.raises(holdfast.NotAcquired):
            locks.lock("x").acquire(timeout=0.1)
        until(lambda: admin.run(_asleep(False)))
        store: Any = locks._engine.store
        bell = f"SELECT IS_USED_LOCK('holdfast:line:{store._ear.name}')"
        assert admin.run(bell) != [(None,)]
        network.cut()
        until(lambda: admin.run(bell) == [(None,)], within=10.0)


def _asleep(sleeps: bool) -> str:
    state = "User sleep" if sleeps else "User lock"
    return f"SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = '{state}'"


def test_a_cancellation_in_the_moment_of_connecting_is_heard(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it broke: Python 3.11's wait_for, by which the driver dials, swallowed it, and the task waited on."""
    connected = connection_aio.connected
    caller: list[asyncio.Task[Any]] = []

    async def swallows(connection: Any) -> Any:
        made = await connected(connection)
        caller[0].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        return made

    async def main() -> None:
        caller.append(asyncio.create_task(connection_aio.dial(parse(url), 10)))
        with pytest.raises(asyncio.CancelledError):
            await caller[0]

    monkeypatch.setattr(connection_aio, "connected", swallows)
    asyncio.run(main())
