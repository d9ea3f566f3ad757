"""How tasks ask all nodes at once: by one connection to each, which all of them share, and which is read in the background."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from ...claim import ROUND
from ...drivers.base import Driver
from ...errors import HoldfastError, Unavailable
from ..redis.replies import Reply
from ..redis.url import Target
from ..redis.wiring import Pipe
from .fan import Asked, Fan, Node, Question, Round

_MOMENT = 0.005


class Wire(Protocol):
    @property
    def reached(self) -> bool: ...
    async def pipe(self, within: float) -> Pipe: ...
    def forked(self) -> None: ...
    async def close(self) -> None: ...


class Dialling:
    """A pipe, as far as one is asked, that is being opened: what is put into it follows when it is."""

    def __init__(self, node: SharedNode, driver: Driver, until: float) -> None:
        self._node = node
        self._bell = driver.bell()  # of the loop that opens it
        self._until = until
        self._unsent: list[tuple[bytes, Asked]] = []
        driver.spawn(self._dial, "holdfast-node")

    def is_good(self) -> bool:
        return not self._bell.gone and self._node.now() < self._until

    def put(self, request: bytes, reply: Asked) -> None:
        self._unsent.append((request, reply))

    def owed(self) -> Iterable[Asked]:
        return [reply for _, reply in self._unsent]

    async def _dial(self) -> None:
        node = self._node
        try:
            pipe = await node.wire.pipe(self._until - node.now())
        except HoldfastError as error:
            self._told(error, at=node.now())
            return
        except BaseException:  # everything is cancelled
            self.fail(Unavailable("given up"))
            raise
        if node.pipe is not self:  # given up, or it took too long
            pipe.fail(Unavailable("given up"))
            self._told(Unavailable("given up"), at=self._until)
            return
        node.pipe = pipe
        now = node.now()
        for request, reply in self._unsent:
            if reply.round.question.leaving or now < reply.round.ends:  # a majority may be enough, but all are asked
                pipe.put(request, reply)

    def fail(self, error: Unavailable) -> None:
        self._told(error, at=0.0)

    def _told(self, error: HoldfastError, *, at: float) -> None:
        """To all; but who came later, when whoever began had little time left, begins anew."""
        if self._node.pipe is self:
            self._node.pipe = None
        unsent, self._unsent = self._unsent, []
        for _, reply in unsent:
            if self._until - _MOMENT <= at < reply.round.ends - _MOMENT and not reply.round.over:
                self._node.ask(reply.round, at)
            else:
                reply.set_exception(error)

    def disown(self) -> None:
        """The task that dials is the parent's."""


class SharedNode(Node):
    def __init__(self, at: int, wire: Wire, target: Target, driver: Driver) -> None:
        super().__init__(at, target.shown(), driver.now)
        self.wire = wire
        self.pipe: Pipe | Dialling | None = None
        self._driver = driver

    @property
    def is_connected(self) -> bool:
        return self.pipe is not None and type(self.pipe) is not Dialling and self.pipe.is_good()

    def ask(self, asked: Round, now: float) -> None:
        pipe, told = self.pipe, Asked(self, asked)
        if pipe is None or not pipe.is_good():
            left, pipe = pipe, Dialling(self, self._driver, asked.ends)
            self.pipe = pipe
            if left is not None and type(left) is not Dialling:  # in a loop that runs elsewhere: see SharedWire
                left.fail(Unavailable("another event loop has opened another"))
        pipe.put(asked.question.request, told)

    @property
    def owes(self) -> bool:
        """An answer that somebody still wants."""
        owed = self.pipe.owed() if self.pipe is not None and self.pipe.is_good() else ()
        return any(isinstance(one, Asked) and one.round.is_wanted for one in owed)

    def forked(self) -> Pipe | Dialling | None:
        pipe, self.pipe = self.pipe, None
        self.rests_until = self.slow_until = 0.0
        if pipe is not None:
            pipe.disown()
        self.wire.forked()
        return pipe

    async def close(self) -> None:
        if self.pipe is not None:
            self.pipe.fail(Unavailable(f"the connection to Redis at {self.where} was closed"))
        await self.wire.close()


class SharedFan(Fan):
    def __init__(self, target: Target, driver: Driver, open_wire: Callable[[Target], Wire]) -> None:
        super().__init__(driver.now)
        # What is late is still an answer, and a connection that is slow is kept: those who ask have deadlines of their own.
        patient = target._replace(kind="redis", timeout=max(target.timeout, ROUND))
        targets = [patient._replace(addresses=(address,)) for address in target.addresses]
        self._driver = driver
        self._nodes = [SharedNode(at, open_wire(one), one, driver) for at, one in enumerate(targets)]
        self._renewing = [SharedNode(at, open_wire(one), one, driver) for at, one in enumerate(targets)]
        self._inherited: list[
            Pipe | Dialling | None
        ] = []  # kept, so that collecting them does not touch the parent's loop

    @property
    def reached(self) -> bool:
        # What is asked while a node is dialled follows when it is there, also when nobody waits for it any more.
        return any(node.wire.reached or node.pipe is not None for node in self._nodes)

    def ask(self, question: Question, share: float, within: float) -> Coroutine[Any, Any, list[Reply]]:
        return self._over(Round(self._nodes, question, self._now(), share, within, self._driver.bell()))

    def ask_apart(self, question: Question, share: float, within: float) -> Coroutine[Any, Any, list[Reply]]:
        return self._over(Round(self._renewing, question, self._now(), share, within, self._driver.bell()))

    async def settle(self, within: float = 0.0) -> None:
        deadline = self._now() + within
        while any(node.owes for node in self._nodes) and self._now() < deadline:
            await self._driver.sleep(_MOMENT)

    def forked(self) -> None:
        self._inherited += [node.forked() for node in (*self._nodes, *self._renewing)]

    async def _drop(self) -> None:
        for node in (*self._nodes, *self._renewing):
            await node.close()
