"""A connection for asyncio, through asyncmy. Cancelled in the middle of an answer, it is closed: what comes next is not ours."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from weakref import ref

from ...drivers.aio import LoopBell, bury
from ...drivers.base import boot_time
from ...drivers.descriptors import another
from ...drivers.dialing import look_up
from ...drivers.loops import ends_with_this_loop, give_up_socket
from ...drivers.sockets import bear, has_failed, take_back, void
from ...errors import Misuse, NotInstalled, Unavailable
from ..kit.doubts import MOMENT
from .connections import PING, Connection, Doubted, Rows, connecting, greet, refused_logins, tls_context_of
from .faults import NONSENSE, ServerError, refusal
from .url import Target

try:
    from asyncmy.connection import Connection as Asyncmy
    from asyncmy.errors import MySQLError
    from asyncmy.protocol import MysqlPacket
except ImportError as error:
    raise NotInstalled("MySQL stores in asyncio need the package asyncmy: pip install 'holdfast[mysql]'") from error


_LENGTHS = (2, 3, 8, 0)
_NUMBERS = 13  # bytes
_NOBODY_THERE = 2003  # of the driver: nobody answers at this address
_AGAIN = 0.05  # seconds until a cancellation that was swallowed is repeated


class Wary(Asyncmy):  # type: ignore[misc, no-any-unimported, unused-ignore]  # it has no types
    """asyncmy's; but of a column's description it copies as many bytes as the server says, from wherever they are: a large number
    ends the process. So all of it has to be there. And it dials an address of the host, whose name it needs later, for TLS."""

    _encoding: str
    host_name = ""

    async def _get_server_information(self) -> Any:
        self._host = self.host_name
        return await super()._get_server_information()  # type: ignore[misc]  # it is not in the stubs

    async def read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        packet = await super().read_packet()  # type: ignore[no-untyped-call]
        if packet_type is MysqlPacket:
            return packet
        data: bytes = packet.get_all_data()
        check_description(data)
        return packet_type(data, encoding=self._encoding)


def check_description(data: bytes) -> None:
    """Six texts, each after its length, and numbers. ValueError, or IndexError: it is cut off."""
    at = 0
    for _ in range(6):
        length = data[at]
        at += 1
        if length > 251:  # it does not fit into a byte, and stands in these
            size = _LENGTHS[length - 252]
            length = int.from_bytes(data[at : at + size], "little")
            at += size
        elif length == 251:
            length = 0
        at += length
    if at + _NUMBERS > len(data):
        raise ValueError("a column is described by more than there is")


async def connected(connection: Any) -> Any:
    await connection.connect()
    return connection


async def _places(target: Target, deadline: float) -> list[dict[str, Any]]:
    """What to try in turn. asyncmy would look the name up in the loop's executor, and be held up by the first that is silent."""
    if target.socket:
        return [{"unix_socket": target.socket}]
    found = await look_up((target.host, target.port), LoopBell(), deadline)
    return [{"host": where[0], "port": where[1]} for *_, where in found]


async def dial(target: Target, within: float) -> Connection:
    deadline = boot_time() + within
    connection: Any = None
    with connecting(target, MySQLError):
        places = await _places(target, deadline)
        for left, place in zip(range(len(places), 0, -1), places, strict=True):
            wary = Wary(  # type: ignore[no-untyped-call]
                **place,
                user=target.user,
                password=target.password.plain,  # its frames are compiled, and have no variables to be recorded
                database=target.database,
                charset="utf8mb4",
                autocommit=True,
                auth_plugin_map=refused_logins(target),
                **({"ssl": tls_context_of(target)} if target.tls else {}),
            )
            wary.host_name = target.host
            try:
                connection = await _ended_in_time(connected(wary), max((deadline - boot_time()) / left, 0.001))
            except MySQLError as error:
                if left == 1 or error.args[0] != _NOBODY_THERE:
                    raise
            if connection is not None:
                break
    if connection is None:
        raise Unavailable(f"MySQL at {target.shown()} did not answer in time")
    made = AioConnection(connection, target)
    ends_with_this_loop(made, AioConnection.close_unless_watched)
    if target.tls and made.transport.get_extra_info("sslcontext") is None:
        made.close()
        raise Misuse(f"the connection to MySQL at {target.shown()} is not encrypted, though the URL asks for TLS")
    await greet(made, target, deadline)
    return made


async def _ended_in_time(connecting: Coroutine[Any, Any, Any], within: float) -> Any:
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
        try:
            if not wanted and not dialling.get_loop().is_closed():
                dialling.add_done_callback(_hang_up)
                _end(dialling)
                await asyncio.wait({dialling})  # before its place in the pool is another's
        finally:
            if dialling.get_loop().is_closed():
                bury(dialling)
                connecting.close()  # which it may not have begun
            elif dialling.done():
                connecting.close()


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
        self.doubted: ref[Doubted] | None = None
        self._doubting: asyncio.Task[None] | None = None
        self._open = True
        self._busy = False
        self._turn = asyncio.Lock()
        self._watching: socket.SocketType | None = None
        self._loop = asyncio.get_running_loop()

    async def ask(self, statement: str, within: float) -> list[Rows]:
        look: asyncio.TimerHandle | None = None
        if self.doubted is not None and within > MOMENT:
            look = self._loop.call_later(MOMENT, self._look, boot_time() + within)
        try:
            async with asyncio.timeout(max(within, 0.001)):
                return await self._in_turn(statement)
        except TimeoutError as error:
            self.close()
            raise Unavailable(f"MySQL at {self._target.shown()} did not answer within {within:.2g} s") from error
        finally:
            if look is not None:
                look.cancel()
            if self._doubting is not None:
                self._doubting.cancel()

    def _look(self, deadline: float) -> None:
        """Nothing has come for a moment: is it to blame for that?"""
        doubted = None if self.doubted is None else self.doubted()
        if doubted is not None and self._open and self._doubting is None:
            # Not by the loop's task factory: an eager one would run here.
            self._doubting = asyncio.Task(self._find_out(doubted, deadline), loop=self._loop, name="holdfast-doubt")
            self._doubting._log_destroy_pending = False  # type: ignore[attr-defined]

    async def _find_out(self, doubted: Doubted, deadline: float) -> None:
        try:
            while self._busy and (left := deadline - boot_time()) > 0:
                if await doubted(self, left):
                    self.close()
                    return
                await asyncio.sleep(MOMENT)
        finally:
            self._doubting = None

    async def speaks(self, within: float) -> bool:
        """Or ends: then nobody has to be told so. Who asked ends whoever asks about it."""
        await asyncio.sleep(within)
        return not self._open or not self._busy

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
            said = refusal(error)
            if said is None or self._ended():
                raise
            await connection.rollback()  # a procedure that failed half way leaves its transaction open
            raise said from None

    def ping(self) -> asyncio.Task[list[Rows]]:
        """In the background, without a limit: one that is late is no reason to hang up."""
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
        self._watching = watching = another(plug.fileno())
        watching.setblocking(False)

        def look() -> None:
            try:
                ended = watching.recv(1, socket.MSG_PEEK) == b"" or has_failed(watching)
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
        bear(self.transport.get_extra_info("socket"), seconds)

    def close_unless_watched(self) -> None:
        """Its loop is over. What is watched is a session, whose lock is held, by whoever comes next, until it is released."""
        if self._watching is None:
            self.close()

    def close(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._close()
        elif self._loop.is_closed():
            self._open = False
            give_up_socket(self.transport.get_extra_info("socket"), self._loop)
            void(self._watching)
        else:
            with contextlib.suppress(RuntimeError):  # closed meanwhile
                self._loop.call_soon_threadsafe(self._close)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._unwatch()
            if self._busy:
                take_back(self.transport.get_extra_info("socket").fileno())
            self.transport.abort()

    def disown(self) -> None:
        """The loop is the parent's too, so it is not touched: our copies of its sockets become nothing."""
        _inherited.append(self)
        self._open = False
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
