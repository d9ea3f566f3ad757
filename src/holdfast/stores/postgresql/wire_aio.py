"""The connections of a store in asyncio: one that all tasks share, one for renewals, one ear."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from ...errors import Unavailable
from . import replies
from .ear_aio import LoopEar
from .greeting import Greeting
from .lane import Lane, dialled
from .line import Line
from .replies import ServerError
from .statements import Params, Row, Statement
from .url import Target

LaneFactory = Callable[[Line, float], Lane]


class AioWire:
    def __init__(self, target: Target, greeting: Greeting) -> None:
        self.target = target
        self.where = target.where
        self.greeting = greeting
        self.ear = LoopEar(self, target.schema)
        self._shared: Lane | None = None
        self._renewing: Lane | None = None
        self._dialling = asyncio.Lock()

    async def ask(self, statement: Statement, params: Params) -> list[Row]:
        lane = self._shared
        if lane is None or not lane.open or lane.loop is not asyncio.get_running_loop():
            lane = await self._connected()
        return await lane.ask(statement, params)

    async def _connected(self) -> Lane:
        async with self._dialling:
            lane = self._shared
            if lane is None or not lane.open or lane.loop is not asyncio.get_running_loop():
                lane = self._shared = await self.open(Lane, self.target.timeout)
            return lane

    async def ask_apart(self, statement: Statement, params: Params, within: float) -> list[Row]:
        """On a connection that user work cannot keep busy."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        try:
            async with asyncio.timeout_at(deadline):
                lane = self._renewing
                if lane is None or not lane.open or lane.loop is not loop:
                    lane = self._renewing = await self.open(Lane, within)
                return await lane.ask(statement, params, max(0.001, deadline - loop.time()))
        except TimeoutError as error:
            if self._renewing is not None:
                self._renewing.fail(Unavailable("given up"))
            raise Unavailable(f"PostgreSQL at {self.where} did not answer a renewal within {within:g} s") from error

    async def dial(self, factory: LaneFactory, timeout: float) -> Lane:
        """A bare connection, logged in."""
        deadline = asyncio.get_running_loop().time() + timeout
        line: Line | None = None
        try:
            async with asyncio.timeout_at(deadline):
                line = Line.begin(self.target, await _addresses(self.target))
            await dialled(line, deadline)
        except TimeoutError as error:
            _close(line)
            raise Unavailable(f"cannot connect to PostgreSQL at {self.where} within {timeout:g} s") from error
        except Unavailable as error:
            _close(line)
            raise replies.not_connected(str(error), self.where) from None
        except BaseException:
            _close(line)
            raise
        return factory(line, timeout)

    async def open(self, factory: LaneFactory, timeout: float) -> Lane:
        """Connected, and agreed on the schema."""
        lane = await self.dial(factory, timeout)
        try:
            await self._set_up(lane)
        except ServerError as error:
            lane.fail(Unavailable("refused"))
            raise replies.explained(error, self.where, self.target.schema) from None
        except BaseException:
            lane.fail(Unavailable("given up"))
            raise
        return lane

    async def _set_up(self, lane: Lane) -> None:
        for known_before in (self.greeting.known, False):
            if not self.greeting.known:
                await self._greet(lane)
            if self.greeting.pooled:
                return
            try:
                await lane.tell(self.greeting.setting_up())
            except ServerError as error:
                if error.state not in replies.MISSING or not known_before:
                    raise
                self.greeting.known = False  # another server than last time: it has yet to learn the schema
            else:
                lane.line.prepared = True
                return

    async def _greet(self, lane: Lane) -> None:
        conversation = self.greeting.conversation(lane.line.pid)
        try:
            question = next(conversation)
            while True:
                try:
                    rows = await lane.tell(question)
                except ServerError as error:
                    question = conversation.throw(error)
                else:
                    question = conversation.send(rows)
        except StopIteration:
            return

    async def is_shared(self) -> bool:
        """See wire.py."""
        first = await self.dial(Lane, self.target.timeout)
        try:
            second = await self.dial(Lane, self.target.timeout)
            try:
                asked = "SELECT pg_catalog.pg_backend_pid()"
                for _ in range(3):
                    mine = await first.tell(asked)
                    await second.tell("BEGIN")
                    theirs = await second.tell(asked)
                    again = await first.tell(asked)
                    await second.tell("ROLLBACK")
                    if mine == theirs or mine != again:
                        return True
                return False
            except ServerError as error:
                raise replies.explained(error, self.where, self.target.schema) from None
            finally:
                second.fail(Unavailable("done"))
        finally:
            first.fail(Unavailable("done"))

    def reset(self) -> None:
        """The server is not what it was (a failover, an emptied schema): connect anew."""
        self.greeting.known = False
        for lane in (self._shared, self._renewing):
            if lane is not None:
                lane.fail(Unavailable("the server is not what it was"))
        self.ear.lose()

    def forked(self) -> None:
        for lane in (self._shared, self._renewing):
            if lane is not None:
                lane.disown()
        self._shared = self._renewing = None
        self._dialling = asyncio.Lock()
        self.ear.forked()

    async def close(self) -> None:
        self.reset()


def _close(line: Line | None) -> None:
    if line is not None:
        line.close()


async def _addresses(target: Target) -> str:
    """libpq would look hosts up by itself, and the whole loop would wait for that."""
    if target.has_address or any(not host or host.startswith(("/", "@")) for host in target.hosts):
        return ""
    loop = asyncio.get_running_loop()
    found = []
    for host in target.hosts:
        try:
            ((*_, address), *_) = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Unavailable(f"the host {host!r} is not known: {error}") from None
        found.append(str(address[0]))
    return ",".join(found)
