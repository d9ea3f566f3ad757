"""A connection for asyncio, through asyncmy. Cancelled in the middle of an answer, it is closed: what comes next is not ours."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from ...errors import Misuse, Unavailable, Unsupported
from .faults import ServerError, explained
from .pool import Line, Rows
from .url import Target

try:
    import asyncmy
    from asyncmy.errors import MySQLError
except ImportError as error:
    raise Unsupported("MySQL stores in asyncio need the package asyncmy: pip install 'holdfast[mysql]'") from error


async def dial(target: Target, within: float) -> Line:
    from .line import greeting, not_connected, tls_context

    options = {"unix_socket": target.socket} if target.socket else {"host": target.host, "port": target.port}
    try:
        async with asyncio.timeout(within):
            connection = await asyncmy.connect(
                **options,
                user=target.user,
                password=target.password,
                database=target.database,
                charset="utf8mb4",
                autocommit=True,
                **({"ssl": tls_context(target)} if target.tls else {}),
            )
    except MySQLError as error:
        raise not_connected(error, target) from error
    except TimeoutError as error:
        raise Unavailable(f"MySQL at {target.shown()} did not answer in time") from error
    except (ValueError, OSError, RuntimeError) as error:
        kind = Unavailable if isinstance(error, OSError) else Misuse
        raise kind(f"no connection to MySQL at {target.shown()}: {error}; see the options tls, ca, cert") from error
    line = AioLine(connection, target)
    try:
        await line.ask(greeting(line.server, target.timeout), within)
    except BaseException as error:
        line.close()
        if isinstance(error, ServerError):
            raise explained(error, target.shown(), target.database) from error
        raise
    return line


class AioLine:
    def __init__(self, connection: Any, target: Target) -> None:
        self._connection = connection
        self._target = target
        self._transport = getattr(connection, "_transport", None) or connection._writer.transport
        self.server: str = connection.get_server_info()
        self.connection_id: int = connection.thread_id()
        self._open = True
        self._turn = asyncio.Lock()
        self._watching: socket.socket | None = None
        self._loop = asyncio.get_running_loop()

    async def ask(self, statement: str, within: float) -> list[Rows]:
        async with self._turn:  # a session lock's line is renewed by one task and released by another
            return await self._ask_within(statement, within)

    async def _ask_within(self, statement: str, within: float) -> list[Rows]:
        if not self._open:
            raise Unavailable(f"the connection to MySQL at {self._target.shown()} was closed")
        try:
            async with asyncio.timeout(max(within, 0.001)):
                return await self._ask(statement)
        except ServerError:
            raise
        except TimeoutError as error:
            self.close()
            raise Unavailable(f"MySQL at {self._target.shown()} did not answer within {within:g} s") from error
        except (MySQLError, OSError, RuntimeError, AttributeError, EOFError, IndexError) as error:
            self.close()
            raise Unavailable(f"MySQL at {self._target.shown()} did not answer: {error!s:.200}") from error
        except BaseException:
            self.close()
            raise

    async def _ask(self, statement: str) -> list[Rows]:
        answers: list[Rows] = []
        cursor = self._connection.cursor()
        try:
            await cursor.execute(statement)
            while True:
                if cursor.description is not None:
                    answers.append(list(await cursor.fetchall()))
                if not await cursor.nextset():
                    return answers
        except MySQLError as error:
            code = error.args[0] if error.args and type(error.args[0]) is int else 0
            if not (0 < code < 2000 or code > 2999) or not self.alive():
                raise
            await self._connection.rollback()  # a procedure that failed half way leaves its transaction open
            raise ServerError(code, str(error.args[1]) if len(error.args) > 1 else "") from None

    def alive(self) -> bool:
        protocol = getattr(self._connection, "_proto", None) or self._connection._reader
        ended = protocol.at_eof() if hasattr(protocol, "at_eof") else protocol.eof or protocol.exc is not None
        return self._open and not ended and not self._transport.is_closing()

    def watch(self, on_end: Callable[[], None]) -> None:
        plug = self._transport.get_extra_info("socket")
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

    def close(self) -> None:
        if self._open:
            self._open = False
            self._unwatch()
            self._transport.abort()

    def disown(self) -> None:
        """The loop is the parent's too, so it is not touched: our copies of its sockets become nothing."""
        self._open = False
        _inherited.append(self)
        for plug in (self._transport.get_extra_info("socket"), self._watching):
            if plug is not None and plug.fileno() >= 0:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, plug.fileno())
                os.close(nothing)


_inherited: list[AioLine] = []  # kept, so that collecting them does not touch the parent's loop
