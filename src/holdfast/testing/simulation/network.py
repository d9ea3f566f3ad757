"""A network that delays, loses, repeats and reorders, between simulated processes and one server.

A call is a request, its execution by the server's clock, and a reply. Whoever gets no reply in time is told Unavailable,
although the server may have done it: that is all a client ever knows.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

from ...drivers.simulated import Bell, Process
from ...errors import Unavailable

T = TypeVar("T")

LOSE_REQUEST = "lose request"
LOSE_REPLY = "lose reply"
DELAY_REQUEST = "delay request"
DELAY_REPLY = "delay reply"
DUPLICATE = "duplicate"


class Faults(NamedTuple):
    """How likely what is, for each message; and how long messages take."""

    delay: tuple[float, float] = (0.0005, 0.01)
    slow: float = 0.0
    slow_by: tuple[float, float] = (0.05, 3.0)
    lose_request: float = 0.0
    lose_reply: float = 0.0
    duplicate: float = 0.0
    loses_only: str = ""  # messages of this operation are lost, and no others
    reset: float = 0.0  # the caller is told at once that the connection broke, whatever became of the request


CALM = Faults()
ROUGH = Faults(slow=0.04, lose_request=0.03, lose_reply=0.03, duplicate=0.03, reset=0.02)


class Scripted(NamedTuple):
    """A fault that is sure to happen, to the next calls that match."""

    what: str
    process: str = ""  # empty: anybody's
    operation: str = ""
    seconds: float = 0.0  # of a delay
    times: int = 1


class Unanswered(Unavailable):
    """Nothing came back in time."""


class _Exchange:
    """One call, as the caller sees it."""

    def __init__(self, bell: Bell) -> None:
        self.bell = bell
        self.answered = False
        self.answer: Any = None
        self.error: Exception | None = None


class Network:
    def __init__(self, server: Process, faults: Faults = CALM, *, timeout: float = 1.0) -> None:
        self.server = server
        self.faults = faults
        self.timeout = timeout
        self._world = server.world
        self._partitions: list[tuple[str, float, float]] = []
        self._script: list[Scripted] = []

    @property
    def round_trip(self) -> float:
        """How long a request and its reply may take when nothing is wrong."""
        return 2 * self.faults.delay[1] + 0.001

    def partition(self, process: str, start: float, end: float) -> None:
        """Between these times nothing passes between this process and the server. "*" is everybody."""
        self._partitions.append((process, start, end))

    def script(self, fault: Scripted) -> None:
        self._script.append(fault)

    def heal(self) -> None:
        """From now on messages only take their time. Those under way may still be late."""
        self.faults = CALM._replace(delay=self.faults.delay)
        self._partitions.clear()
        self._script.clear()

    async def call(
        self,
        process: Process,
        operation: str,
        execute: Callable[[], Coroutine[Any, Any, T]],
        timeout: float | None = None,
        *,
        on_duplicate: Callable[[], object] | None = None,
    ) -> T:
        """`execute` at the server. It is repeated only if `on_duplicate` is there to be told of it."""
        bell = process.driver.bell()
        bell.what = f"the answer to {operation}"
        exchange = _Exchange(bell)
        faults, chance = self.faults, self._world.random.random
        self._send(process, operation, exchange, execute)
        if on_duplicate is not None and (chance() < faults.duplicate or self._scripted(DUPLICATE, process, operation)):
            on_duplicate()
            self._send(process, operation, exchange, execute)
        if faults.reset and chance() < faults.reset:
            await process.driver.sleep(self._delay())
            raise Unavailable(f"the connection broke during {operation}")
        within = self.timeout if timeout is None else timeout
        await bell.wait(within)
        if not exchange.answered:
            raise Unanswered(f"no answer to {operation} within {within:g} s")
        if exchange.error is not None:
            raise exchange.error
        answer: T = exchange.answer
        return answer

    def _send(
        self, process: Process, operation: str, exchange: _Exchange, execute: Callable[[], Coroutine[Any, Any, Any]]
    ) -> None:
        lost = self._scripted(LOSE_REQUEST, process, operation) or self._lost(
            process, operation, self.faults.lose_request
        )
        if lost:
            return
        late = self._scripted(DELAY_REQUEST, process, operation)

        async def serve() -> None:
            answer, error = None, None
            try:
                answer = await execute()
            except Exception as raised:
                error = raised
            self._reply(process, operation, exchange, answer, error)

        def arrive() -> None:
            if not self._cut(process) and self.server.alive:
                self.server.spawn(serve, f"{operation} for {process.name}")

        self._world.after(self._delay() + (late.seconds if late else 0.0), arrive)

    def _reply(
        self, process: Process, operation: str, exchange: _Exchange, answer: object, error: Exception | None
    ) -> None:
        if self._scripted(LOSE_REPLY, process, operation) or self._lost(process, operation, self.faults.lose_reply):
            return
        late = self._scripted(DELAY_REPLY, process, operation)

        def arrive() -> None:
            if not exchange.answered and not self._cut(process):
                exchange.answered, exchange.answer, exchange.error = True, answer, error
                exchange.bell.ring()

        self._world.after(self._delay() + (late.seconds if late else 0.0), arrive)

    def _delay(self) -> float:
        return self._world.on_its_way(self.faults.delay, self.faults.slow, self.faults.slow_by)

    def _lost(self, process: Process, operation: str, probability: float) -> bool:
        if self._cut(process):
            return True
        concerned = self.faults.loses_only in ("", operation)
        return concerned and probability > 0 and self._world.random.random() < probability

    def _cut(self, process: Process) -> bool:
        if not self._partitions:
            return False
        now = self._world.time
        return any(who in ("*", process.name) and start <= now < end for who, start, end in self._partitions)

    def _scripted(self, what: str, process: Process, operation: str) -> Scripted | None:
        if not self._script:
            return None
        for index, fault in enumerate(self._script):
            if fault.what == what and fault.process in ("", process.name) and fault.operation in ("", operation):
                if fault.times > 1:
                    self._script[index] = fault._replace(times=fault.times - 1)
                else:
                    del self._script[index]
                return fault
        return None
