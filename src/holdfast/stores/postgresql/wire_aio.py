"""The connections of a store in asyncio: one that all tasks share, a few for who waits for a row, one for renewals, one ear."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

from ...errors import Unavailable
from . import replies
from .ear_aio import LoopEar
from .greeting import SHARING, Greeting, is_lent
from .lane import NEVER, Lane, dialled
from .line import Broken, Line
from .released import Released
from .replies import ServerError
from .statements import Params, Row, Statement
from .url import Target

LaneFactory = Callable[[Line], Lane]
Question = TypeVar("Question")


class AioWire:
    shares = True

    def __init__(self, target: Target, greeting: Greeting, released: Released) -> None:
        self.target = target
        self.where = target.where
        self.greeting = greeting
        self.released = released
        self.ear = LoopEar(self, target.schema)
        self.closed = False
        self._fresh()

    def _fresh(self) -> None:
        self._shared: Lane | None = None
        self._renewing: Lane | None = None
        self._aside: list[Lane] = []
        self._turns: dict[bytes, tuple[asyncio.Lock, list[object]]] = {}
        self._room = asyncio.Semaphore(self.target.pool)
        self._dialling = asyncio.Lock()

    # ---- asking

    async def ask(self, statement: Statement, params: Params, within: float) -> list[Row]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        lane = self._shared
        for again in (statement.repeats, False):
            if lane is None or not lane.open or lane.loop is not loop:
                lane = await self._connected(deadline)
            try:
                return await lane.ask(statement, params, min(deadline, loop.time() + self.target.timeout))
            except Broken as error:
                if not again or loop.time() >= deadline:
                    raise Unavailable(str(error)) from None
                lane = self._shared
        raise AssertionError  # not reached

    async def _connected(self, deadline: float) -> Lane:
        loop = asyncio.get_running_loop()
        async with self.by(deadline), self._dialling:
            lane = self._shared
            if lane is None or not lane.open or lane.loop is not loop:
                lane = self._shared = await self.open(Lane, deadline)
            return lane

    async def ask_aside(self, statement: Statement, params: Params, within: float) -> list[Row]:
        """Those who wait for the same row take turns on one connection, so that one locked row does not use up all of them."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        async with self.by(deadline, "{} did not answer"), self._turn(params[0]), self._room:
            lane = self._aside.pop() if self._aside else None
            if lane is None or not lane.open or lane.loop is not loop:
                lane = await self.open(Lane, deadline)
            try:
                rows = await lane.ask(statement, params, deadline)
            except ServerError:
                self._aside.append(lane)
                raise
            except BaseException as error:
                lane.fail(Unavailable("given up"))
                if isinstance(error, Broken):
                    raise Unavailable(str(error)) from None
                raise
            self._aside.append(lane)
            return rows

    @asynccontextmanager
    async def _turn(self, name: bytes) -> AsyncIterator[None]:
        lock, users = self._turns.setdefault(name, (asyncio.Lock(), []))
        me = object()
        users.append(me)
        try:
            async with lock:
                yield
        finally:
            users.remove(me)
            if not users:
                self._turns.pop(name, None)

    async def ask_apart(self, statement: Statement, params: Params, within: float) -> list[Row]:
        """On a connection that user work cannot keep busy: theirs at first, since there may be no time to open another."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        for again in (True, False):
            lane = self._renewing
            if (lane is None or not lane.open) and self._shared is not None and self._shared.sent == NEVER:
                lane, self._shared = self._shared, None
                self._renewing = lane
            if fresh := lane is None or not lane.open or lane.loop is not loop:
                lane = self._renewing = await self.open(Lane, deadline)
            assert lane is not None
            try:
                return await lane.ask(statement, params, deadline)
            except Broken as error:
                if fresh or not again or loop.time() >= deadline:
                    raise Unavailable(str(error)) from None
        raise AssertionError  # not reached

    # ---- connecting

    @asynccontextmanager
    async def by(self, deadline: float, trouble: str = "cannot connect to {}") -> AsyncIterator[None]:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(deadline):
                yield
        except TimeoutError:
            told = trouble.format(f"PostgreSQL at {self.where}")
            raise Unavailable(f"{told} within {max(0.0, deadline - began):.3g} s") from None

    async def dial(self, factory: LaneFactory, deadline: float) -> Lane:
        """A bare connection, logged in: to the first host that lets us in within its share of the time."""
        now = asyncio.get_running_loop().time
        deadline = min(deadline, now() + self.target.timeout)
        told: list[str] = []
        hosts = self.target.of_each_host()
        for at, host in enumerate(hosts):
            try:
                return factory(await _dial_one(host, (deadline - now()) / (len(hosts) - at)))
            except Unavailable as error:
                told.append(str(error))
        raise replies.not_connected(told, self.where)

    async def open(self, factory: LaneFactory, deadline: float) -> Lane:
        """Connected, and agreed on the schema."""
        self.released.doubtful |= any(not lane.open for lane in self._lanes())
        lane = await self.dial(factory, deadline)
        try:
            await self._set_up(lane, deadline)
            await _hold(self.released.again(), lambda asked: lane.ask(*asked, deadline))
        except ServerError as error:
            lane.fail(Unavailable("refused"))
            raise replies.explained(error, self.where, self.target.schema) from None
        except BaseException as error:
            lane.fail(Unavailable("given up"))
            if isinstance(error, Broken):
                raise Unavailable(str(error)) from None
            raise
        if self.closed:  # meanwhile, when there was nothing to close yet
            lane.fail(Unavailable("closed"))
            raise Unavailable("this connection was closed")
        return lane

    async def _set_up(self, lane: Lane, deadline: float) -> None:
        for known_before in (self.greeting.known, False):
            if not self.greeting.known:
                await _hold(self.greeting.conversation(lane.line.pid), lambda sql: lane.tell(sql, deadline))
            if self.greeting.pooled:
                return
            try:
                await lane.tell(self.greeting.setting_up(), deadline)
            except ServerError as error:
                if error.state not in replies.MISSING or not known_before:
                    raise
                self.greeting.known = False  # another server than last time: it has yet to learn the schema
            else:
                lane.line.prepared = True
                return

    async def is_shared(self, within: float) -> bool:
        """See greeting.py."""
        deadline = asyncio.get_running_loop().time() + within
        lanes: list[Lane] = []
        try:
            for _ in range(2):
                lanes += [await self.dial(Lane, deadline)]
            return is_lent([await lanes[which].tell(sql, deadline) for which, sql in SHARING])
        except ServerError as error:
            raise replies.explained(error, self.where, self.target.schema) from None
        except Broken as error:
            raise Unavailable(str(error)) from None
        finally:
            for lane in lanes:
                lane.fail(Unavailable("done"))

    # ---- the end

    def _lanes(self) -> list[Lane]:
        return [lane for lane in (self._shared, self._renewing, *self._aside) if lane is not None]

    def reset(self) -> None:
        """The server is not what it was (a failover, an emptied schema): connect anew."""
        self.greeting.known = False
        for lane in self._lanes():
            lane.fail(Unavailable("the server is not what it was"))
        self._aside.clear()
        self.ear.lose()

    def forked(self) -> None:
        for lane in self._lanes():
            lane.disown()
        self._fresh()
        self.released.forget()
        self.ear.forked()

    async def close(self) -> None:
        self.closed = True
        self.reset()


async def _hold(
    conversation: Generator[Question, list[Row], None], ask: Callable[[Question], Awaitable[list[Row]]]
) -> None:
    try:
        question = next(conversation)
        while True:
            try:
                rows = await ask(question)
            except ServerError as error:
                question = conversation.throw(error)
            else:
                question = conversation.send(rows)
    except StopIteration:
        return


async def _dial_one(host: Target, share: float) -> Line:
    """At each of its addresses in turn: a server may listen at one of them only."""
    deadline = asyncio.get_running_loop().time() + share
    try:
        async with asyncio.timeout_at(deadline):
            found = await _addresses(host)
    except TimeoutError:
        raise host.late(share) from None
    for at, addresses in enumerate(found):
        left = (deadline - asyncio.get_running_loop().time()) / (len(found) - at)
        line = Line.begin(host, addresses)
        try:
            async with asyncio.timeout(left):
                await dialled(line)
            return line
        except BaseException as error:
            line.close()
            if isinstance(error, TimeoutError | Unavailable) and at < len(found) - 1:
                continue
            if isinstance(error, TimeoutError):
                raise host.late(share) from None
            raise
    raise host.late(share)


async def _addresses(target: Target) -> list[str]:
    """What to try in turn. libpq would look hosts up by itself, and the whole loop would wait for that."""
    if target.has_address or any(not host or host.startswith(("/", "@")) for host in target.hosts):
        return [""]
    loop = asyncio.get_running_loop()
    each: list[list[str]] = []
    for host in target.hosts:
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise Unavailable(f"the host {host!r} is not known: {error}") from None
        each.append(list(dict.fromkeys(str(address[0]) for *_, address in found)))
    # Of several hosts that libpq is to choose from, the first address each.
    return each[0] if len(each) == 1 else [",".join(some[0] for some in each)]
