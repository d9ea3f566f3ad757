"""The connections of a store where tasks are cheap: one that all of them share, one for renewals, one ear.

Written once, for asyncio and over the streams of any other driver. So the simulator runs what asyncio runs, but for the
connection itself: pipe.py, or stream_pipe.py.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakMethod

from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Misuse, Unavailable
from ..kit.doubts import Doubts
from ..kit.turns import Turns
from ..kit.url import tls_context
from .connection import ANYBODY, WITHOUT_TLS, Disconnected, no_tls, stuck
from .dialing import dial
from .replies import Reply, check_greeting, greeting, is_missing_script
from .shared_ear import SharedEar
from .url import Address, Target, show
from .wiring import Answers, DoubtedPipe, Listener, OpenPipe

_LONGER = 600.0  # seconds: a renewal has a deadline of its own
_MOST_SLOW = 16  # connections for what the server takes its time for; who comes then waits for one of them


class SharedWire:
    """The connections of one store."""

    def __init__(self, target: Target, driver: Driver, open_pipe: OpenPipe) -> None:
        self.target = target
        self.where = target.shown()
        self._driver = driver
        self._now = driver.now
        self._open_pipe = open_pipe
        self._timeout = target.timeout
        self._shared: DoubtedPipe | None = None
        self._renewing: DoubtedPipe | None = None
        self._slow: list[DoubtedPipe] = []  # at rest, for what the server takes its time for
        self._inherited: list[DoubtedPipe] = []  # kept, so that collecting them does not touch the parent's loop
        self._dialing = Turns(driver)
        self._herd: dict[Bell, None] = {}  # of those who wait for it
        self._slowly = Turns(driver, _MOST_SLOW)
        self._doubts = Doubts(driver)
        self._doubted: set[DoubtedPipe] = set()  # of whom it is being found out whether they are to blame
        self._known = False
        self._closed = False
        self.ear = SharedEar(self, driver, target.prefix)

    @property
    def reached(self) -> bool:
        return self._known

    def ready(self) -> DoubtedPipe | None:
        """The shared connection, if it is there to be used."""
        pipe = self._shared
        return pipe if pipe is not None and pipe.is_good() else None

    def ask(self, request: bytes, within: float) -> Awaitable[Reply]:
        pipe = self._shared
        if within < self._timeout or pipe is None or not pipe.is_good():
            return self.ask_once(request, within)
        return pipe.ask(request)  # as it is: another coroutine around it would only cost time

    def post(self, request: bytes, answered: Callable[[bool | None], None]) -> bool:
        """Ask, and do not wait: the answer is read when it comes. None: nobody knows."""
        pipe = self.ready()
        if pipe is None:
            return False
        pipe.put(request, Posted(answered))
        return True

    async def ask_once(self, request: bytes, within: float) -> Reply:
        deadline = self._now() + min(within, self._timeout)
        return await self.answer(await self._connected(deadline, within), request, deadline, within)

    async def ask_all(self, requests: Sequence[bytes], within: float, *, once: bool = False) -> list[Reply]:
        """In order, on one connection; nothing of others in between."""
        deadline = self._now() + within
        try:
            return await self._converse(requests, within)
        except Disconnected:
            left = deadline - self._now()
            if once or left <= 0:
                raise
        return await self._converse(requests, left)

    async def _converse(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        deadline = self._now() + min(within, self._timeout)
        pipe = await self._connected(deadline, within)
        pipe.expect_long(len(requests))
        return await self._answers(pipe, requests, deadline, within)

    async def ask_slowly(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """On a connection that is nobody else's meanwhile: until WAIT is over, the server answers nothing on it."""
        deadline = self._now() + min(within, self._timeout)
        turn = self._slowly.turn()
        try:
            if not await turn.come(deadline):
                raise self._late(within)
            pipe = None
            while self._slow and (pipe is None or not pipe.is_good()):
                pipe = self._slow.pop()
            if pipe is None or not pipe.is_good():
                pipe = await self.dial(deadline, self._timeout)
            try:
                replies = await self._answers(pipe, requests, deadline, within)
            except BaseException:
                pipe.fail(Disconnected("its answer is not waited for any more"))
                raise
            self._slow.append(pipe)
            return replies
        finally:
            turn.over()

    async def answer(self, pipe: DoubtedPipe, request: bytes, deadline: float, within: float = 0.0) -> Reply:
        (reply,) = await self._answers(pipe, [request], deadline, within or deadline - self._now())
        return reply

    async def _answers(
        self, pipe: DoubtedPipe, requests: Sequence[bytes], deadline: float, within: float
    ) -> list[Reply]:
        answers = Answers(len(requests), self._driver.bell())
        for request in requests:
            pipe.put(request, answers)
        if not await answers.are_there(self._driver, deadline):
            raise self._late(within)
        for reply in answers.replies:
            if isinstance(reply, HoldfastError):
                raise reply
        return answers.replies

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """On a connection that user work cannot keep busy. For a request that got no answer: why not."""
        deadline = self._now() + within
        replies = await self._ask_apart(requests, deadline)
        if isinstance(replies[-1], Disconnected) and self._now() < deadline:
            replies = await self._ask_apart(requests, deadline)
        return replies

    async def _ask_apart(self, requests: Sequence[bytes], deadline: float) -> list[Reply]:
        within = deadline - self._now()
        try:
            pipe = self._renewing
            if pipe is None or not pipe.is_good():
                pipe = await self.dial(deadline, _LONGER)
                pipe.doubted = WeakMethod(self._doubt)
                left, self._renewing = self._renewing, pipe
                if left is not None:
                    left.fail(Disconnected("another was opened at the same time, or in another event loop"))
        except HoldfastError as error:
            return [error] * len(requests)
        answers = Answers(len(requests), self._driver.bell())
        for request in requests:
            pipe.put(request, answers)
        if not await answers.are_there(self._driver, deadline):
            pipe.fail(self._late(within))
        return answers.replies

    @staticmethod
    async def ask_each_apart(asked: Sequence[tuple[Any, Sequence[bytes]]], within: float) -> list[list[Reply]]:
        """The same of many wires, all at once: trouble of one is its own."""
        if len(asked) == 1:
            return [await wire.ask_apart(requests, within) for wire, requests in asked]
        driver: Driver = asked[0][0]._driver
        told: list[list[Reply]] = [[]] * len(asked)
        all_told = Answers(len(asked), driver.bell())

        async def one(at: int, wire: SharedWire, requests: Sequence[bytes]) -> None:
            late: list[Reply] = [wire._late(within)] * len(requests)
            try:
                late = await wire.ask_apart(requests, within)
            finally:
                told[at] = late
                all_told.set_result(at)

        for at, (wire, requests) in enumerate(asked):
            driver.spawn(partial(one, at, wire, requests), "holdfast-part")
        while not await all_told.are_there(driver, driver.now() + within):
            pass  # each ends by itself
        return told

    def _late(self, within: float) -> Unavailable:
        time_given = f"within {max(0.0, min(within, self._timeout)):.3g} s"
        hint = WITHOUT_TLS if self.target.tls and not self._known else ""  # it has never answered
        return Unavailable(f"Redis at {self.where} did not answer {time_given}{hint}")

    async def _connected(self, deadline: float, within: float) -> DoubtedPipe:
        """One dials; all others, there may be thousands, wait for that, and only the next one looks if it has failed."""
        while (pipe := self.ready()) is None:
            now = self._now()
            if now >= deadline:
                raise self._late(within)
            before = self._dialing.first()
            bell = self._driver.bell()
            turn = self._dialing.turn()
            try:
                if before is not None and before.is_alive(now):
                    self._herd[bell] = None
                    await bell.wait(min(deadline, before.until) - now + 0.001)
                elif await turn.come(deadline) and self.ready() is None:
                    fresh = await self.dial(deadline, self._timeout)
                    fresh.doubted = WeakMethod(self._doubt)
                    left, self._shared = self._shared, fresh
                    if left is not None:  # in a loop that runs elsewhere, which has to end it: a collector may not
                        left.fail(Disconnected("another event loop has opened another"))
                    for other in list(self._herd):
                        other.ring()
            finally:
                self._herd.pop(bell, None)
                turn.over()
                if self.ready() is None and not self._dialing:  # whoever dials tells them
                    for other in list(self._herd)[:1]:
                        other.ring()
        return pipe

    # ---- one that is silent

    def _doubt(self, pipe: DoubtedPipe) -> None:
        if pipe not in self._doubted and not self._doubts.rest:
            self._doubted.add(pipe)
            self._driver.spawn(partial(self._find_out, pipe), "holdfast-doubt")

    async def _find_out(self, pipe: DoubtedPipe) -> None:
        """Is it alone with its silence? Then another takes its place, and all who wait there ask again."""
        heard = pipe.heard

        async def answers(within: float) -> DoubtedPipe | None:
            deadline = self._now() + within
            fresh = await self.dial(deadline, pipe.timeout)
            is_well = False
            try:
                is_well = is_missing_script(await self.answer(fresh, ANYBODY, deadline))
            finally:
                if not is_well:
                    fresh.close()
            return fresh if is_well else None

        async def speaks(within: float) -> bool:
            await self._driver.sleep(within)
            return pipe.heard != heard or not pipe.is_good()

        try:
            another = await self._doubts.instead(answers, speaks, self._timeout)
            if another is None:
                return
            another.doubted = WeakMethod(self._doubt)
            if self._shared is pipe:
                self._shared = another
            elif self._renewing is pipe:
                self._renewing = another
            else:
                another.close()
            pipe.give_up(stuck(self.where))
        finally:
            self._doubted.discard(pipe)

    async def pipe(self, within: float) -> DoubtedPipe:
        """One more, whoever uses it, and opens another when it breaks."""
        pipe = await self.dial(self._now() + within, self._timeout)
        pipe.doubted = WeakMethod(self._doubt)
        return pipe

    async def dial(self, deadline: float, timeout: float, listener: Listener | None = None) -> DoubtedPipe:
        """To the server, to any node of a cluster, or to the one that the Sentinels call master."""
        if self._closed:
            raise Misuse(f"this connection to Redis at {self.where} was closed")
        deadline = min(deadline, self._now() + self._timeout)
        dialler = Dialler(self, timeout, listener)
        pipe = await dial(self.target, deadline, self._now, dialler, known=self._known)
        self._known = True
        if self._closed:  # meanwhile
            pipe.fail(Unavailable("closed"))
        return pipe

    async def parts(self, within: float) -> Sequence[SharedWire]:
        return [self]

    def reset(self) -> None:
        """The server is not what it was (a failover): connect anew."""
        for pipe in (self._shared, self._renewing, *self._slow):
            if pipe is not None:
                pipe.fail(Disconnected("the server's role has changed"))
        self._slow.clear()
        self.ear.lose()

    def forked(self) -> None:
        for pipe in (self._shared, self._renewing, *self._slow):
            if pipe is not None:
                pipe.disown()
                self._inherited.append(pipe)
        self._shared = self._renewing = None
        self._slow.clear()
        self._dialing = Turns(self._driver)
        self._herd.clear()
        self._slowly = Turns(self._driver, _MOST_SLOW)
        self._doubts = Doubts(self._driver)
        self._doubted.clear()
        self.ear.forked()

    async def close(self) -> None:
        self._closed = True
        self.reset()
        await self._driver.sleep(0)  # a loop closes aborted sockets in its next turn


class Posted:
    """Told an answer that nobody waits for."""

    __slots__ = ("_answered",)

    def __init__(self, answered: Callable[[bool | None], None]) -> None:
        self._answered = answered

    def done(self) -> bool:
        return False

    def set_result(self, reply: Reply) -> None:
        self._answered(bool(reply) if type(reply) is int else None)

    set_exception = set_result


class Dialler:
    """How a pipe is opened and asked, before it is anybody's."""

    def __init__(self, wire: SharedWire, timeout: float, listener: Listener | None) -> None:
        self._wire = wire
        self._timeout = timeout
        self._listener = listener

    async def open(self, target: Target, address: Address, deadline: float, *, known: bool) -> DoubtedPipe:
        tls = tls_context(target.ca, target.cert, target.cert_key) if target.tls else None
        try:
            pipe = await self._wire._open_pipe(address, tls, self._timeout, self._listener, deadline)
        except ssl.SSLError as error:
            raise no_tls(error, address) from error
        except TimeoutError as error:
            hint = WITHOUT_TLS if target.tls else ""
            raise Unavailable(f"Redis at {show(address)} did not answer in time{hint}") from error
        except OSError as error:
            raise Unavailable(f"cannot connect to Redis at {show(address)}: {error}") from error
        try:
            words = greeting(target, known=known)
            if known:  # not waited for: see dialing.py
                for request in words:
                    pipe.put(request, Posted(lambda _: None))
            else:
                within = deadline - self._wire._now()
                check_greeting(target, address, await self._wire._answers(pipe, words, deadline, within))
        except BaseException:
            pipe.fail(Unavailable("given up"))
            raise
        return pipe

    async def ask(self, pipe: DoubtedPipe, request: bytes, deadline: float) -> Reply:
        return await self._wire.answer(pipe, request, deadline)

    def close(self, pipe: DoubtedPipe) -> None:
        pipe.fail(Unavailable("done"))
