"""A connection for asyncio, through asyncmy. Cancelled in the middle of an answer, it is closed: what comes next is not ours."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...drivers.aio import LoopBell
from ...drivers.base import boot_time
from ...drivers.dialing import look_up
from ...drivers.sockets import void
from ...errors import Misuse, NotInstalled, Unavailable
from .connections import Connection, Rows
from .faults import NONSENSE, ServerError
from .url import Target

try:
    import asyncmy
    from asyncmy.errors import MySQLError
except ImportError as error:
    raise NotInstalled("MySQL stores in asyncio need the package asyncmy: pip install 'holdfast[mysql]'") from error


_AGAIN = 0.05  # seconds until a cancellation that was swallowed is repeated


async def dial(target: Target, within: float) -> Connection:
    from .connection import connecting, greet, refused_logins, tls_context_of

    deadline = boot_time() + within
    options = {"unix_socket": target.socket} if target.socket else {"host": target.host, "port": target.port}
    with connecting(target, MySQLError):
        if not target.socket:  # else the driver would have the loop's executor do it, and asyncio.run() wait for that
            await look_up((target.host, target.port), LoopBell(), deadline)
        connection = await _ended_in_time(
            asyncmy.connect(
                **options,
                user=target.user,
                password=target.password.plain,  # its frames are compiled, and have no variables to be recorded
                database=target.database,
                charset="utf8mb4",
                autocommit=True,
                auth_plugin_map=refused_logins(target),
                **({"ssl": tls_context_of(target)} if target.tls else {}),
            ),
            max(deadline - boot_time(), 0.001),
        )
    if connection is None:
        raise Unavailable(f"MySQL at {target.shown()} did not answer in time")
    made = AioConnection(connection, target)
    if target.tls and made.transport.get_extra_info("sslcontext") is None:
        made.close()
        raise Misuse(f"the connection to MySQL at {target.shown()} is not encrypted, though the URL asks for TLS")
    await greet(made, target, deadline)
    return made


async def _ended_in_time(connecting: Awaitable[Any], within: float) -> Any:
    """In a task of its own, cancelled until it has ended, and waited for. None: not in time.

    asyncmy dials by asyncio.wait_for, which in Python 3.11 swallows a cancellation that comes in its last moment; then it would
    wait for a silent server for ever.
    """

    async def connect() -> Any:
        return await connecting

    dialling = asyncio.create_task(connect())
    wanted = False
    try:
        await asyncio.wait({dialling}, timeout=within)
        if not dialling.done():
            return None
        wanted = True
        return dialling.result()
    finally:
        if not wanted:
            dialling.add_done_callback(_hang_up)
            _end(dialling)
            await asyncio.wait({dialling})  # before its place in the pool is another's


def _end(dialling: asyncio.Task[Any]) -> None:
    if dialling.cancel():
        dialling.get_loop().call_later(_AGAIN, _end, dialling)


def _hang_up(dialling: asyncio.Task[Any]) -> None:
    if not dialling.cancelled() and dialling.exception() is None:
        dialling.result().close()  # it was there after all, when nobody wanted it any more


class AioConnection:
    def __init__(self, connection: Any, target: Target) -> None:
        self._connection = connection
        self._target = target
        self.transport = connection._transport
        self.server: str = connection.get_server_info()
        self.name = os.urandom(16).hex()
        self._open = True
        self._busy = False
        self._turn = asyncio.Lock()
        self._watching: socket.socket | None = None
        self._loop = asyncio.get_running_loop()

    async def ask(self, statement: str, within: float) -> list[Rows]:
        try:
            async with asyncio.timeout(max(within, 0.001)):
                return await self._in_turn(statement)
        except TimeoutError as error:
            self.close()
            raise Unavailable(f"MySQL at {self._target.shown()} did not answer within {within:.2g} s") from error

    async def _in_turn(self, statement: str) -> list[Rows]:
        async with self._turn:  # a session lock's connection is renewed by one task and released by another
            if not self._open:
                raise Unavailable(f"the connection to MySQL at {self._target.shown()} was closed")
            self._busy = True
            try:
                answers = await self._ask(statement)
            except ServerError:
                self._busy = False
                raise
            except (MySQLError, OSError, RuntimeError, ValueError, EOFError, *NONSENSE) as error:
                self.close()
                raise Unavailable(f"MySQL at {self._target.shown()} did not answer: {error!s:.200}") from error
            except BaseException:
                self.close()
                raise
            self._busy = False
            return answers

    async def _ask(self, statement: str) -> list[Rows]:
        # Not by a cursor: those ask for every warning, and print it.
        connection = self._connection
        answers: list[Rows] = []
        try:
            await connection.query(statement)
            while True:
                result = connection._result
                if result.description is not None:
                    answers.append(list(result.rows))
                if not result.has_next:
                    return answers
                await connection.next_result()
        except MySQLError as error:
            code = error.args[0] if error.args and type(error.args[0]) is int else 0
            if not (0 < code < 2000 or code > 2999) or self._ended():
                raise
            await connection.rollback()  # a procedure that failed half way leaves its transaction open
            raise ServerError(code, str(error.args[1]) if len(error.args) > 1 else "") from None

    def ping(self) -> asyncio.Task[list[Rows]]:
        """In the background, without a limit: one that is late is no reason to hang up."""
        from .connection import PING

        task = self._loop.create_task(self._in_turn(PING))
        task.add_done_callback(_look_at)
        return task

    def _ended(self) -> bool:
        protocol = self._connection._proto
        return not self._open or protocol.eof or protocol.exc is not None or self.transport.is_closing()

    def alive(self) -> bool:
        return not self._busy and not self._loop.is_closed() and not self._ended()

    def watch(self, on_end: Callable[[], None]) -> None:
        plug = self.transport.get_extra_info("socket")
        self._watching = watching = socket.socket(fileno=os.dup(plug.fileno()))
        watching.setblocking(False)

        def look() -> None:
            try:
                ended = watching.recv(1, socket.MSG_PEEK) == b""
            except BlockingIOError:
                return
            except OSError:
                ended = True
            if ended:
                self._unwatch()
                on_end()

        self._loop.add_reader(watching.fileno(), look)

    def _unwatch(self) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            self._loop.remove_reader(watching.fileno())
            watching.close()

    def bear(self, seconds: float) -> None:
        from .connection import bear

        bear(self.transport.get_extra_info("socket"), seconds)

    def close(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._close()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._unwatch()
            self.transport.abort()

    def disown(self) -> None:
        """The loop is the parent's too, so it is not touched: our copies of its sockets become nothing."""
        self._open = False
        _inherited.append(self)
        void(self.transport.get_extra_info("socket"))
        void(self._watching)


_inherited: list[AioConnection] = []  # kept, so that collecting them does not touch the parent's loop


def _look_at(task: asyncio.Task[list[Rows]]) -> None:
    if not task.cancelled():
        task.exception()


async def ping_all(connections: Sequence[Any], within: float) -> list[bool | Unavailable]:
    """A word on every connection at once. True: answered. False: it has ended. Unavailable: not in time; it may yet answer."""
    tasks = [connection.ping() for connection in connections]
    done, _ = await asyncio.wait(tasks, timeout=within)
    return [
        Unavailable(f"no answer within {within:.2g} s")
        if task not in done
        else not task.cancelled() and task.exception() is None
        for task in tasks
    ]
