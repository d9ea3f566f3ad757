"""One connection that all tasks of a loop share: while one conversation is under way, the next ones gather.

What has gathered is asked together, as one statement and one transaction, so many claims wait for the disk once. Within
it names are taken in the order of their bytes, as everywhere, so that no two transactions wait for each other.
"""

from __future__ import annotations

import asyncio
import select
from typing import Any

from ...errors import Unavailable
from .line import Line
from .replies import ServerError
from .statements import Params, Row, Statement

AT_ONCE = 128  # so that the first of a batch does not wait long for the last


class Lane:
    """Lives in one loop. A task that is cancelled leaves its answer behind; the conversation goes on to its end."""

    def __init__(self, line: Line, timeout: float) -> None:
        self.line = line
        self.loop = asyncio.get_running_loop()
        self.open = True
        self._timeout = timeout
        self._waiting: list[tuple[Statement | str, Params, asyncio.Future[list[Row]]]] = []
        self._flight: list[asyncio.Future[list[Row]]] = []
        self._found: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing = False
        self._number = line.fileno()  # libpq forgets it when the connection breaks, but the loop has to
        self.loop.add_reader(self._number, self._readable)

    def ask(self, statement: Statement, params: Params, timeout: float | None = None) -> asyncio.Future[list[Row]]:
        return self._add(statement, params, timeout)

    def tell(self, sql: str, timeout: float | None = None) -> asyncio.Future[list[Row]]:
        return self._add(sql, (), timeout)

    def _add(self, what: Statement | str, params: Params, timeout: float | None) -> asyncio.Future[list[Row]]:
        future: asyncio.Future[list[Row]] = self.loop.create_future()
        self._waiting.append((what, params, future))
        if timeout is not None:
            self._timeout = timeout
        if not self._flight:
            self._next()
        return future

    def _next(self) -> None:
        """Send what has gathered. Leaving first: it may be what others wait for.

        A claim cannot be overtaken by its own release: that is asked only when the claim was answered, or its task
        cancelled; and a cancelled claim is either dropped here, or on its way already.
        """
        asked = [one for one in self._waiting if not one[2].cancelled()]
        self._waiting = []
        if not asked:
            return
        leaving = [one for one in asked if isinstance(one[0], Statement) and one[0].name == b"holdfast_release"]
        what = (leaving or asked)[0][0]
        together = isinstance(what, Statement) and what.many is not None
        batch = [one for one in asked if one[0] is what][:AT_ONCE] if together else asked[:1]
        taken = {id(one) for one in batch}
        self._waiting = [one for one in asked if id(one) not in taken]
        if len(batch) > 1:
            batch.sort(key=lambda one: one[1][0])
        self._flight = [future for _, _, future in batch]
        self._found = []
        try:
            if isinstance(what, str):
                self.line.say(what)
            else:
                self.line.send(what, [params for _, params, _ in batch])
            self._flush()
        except Unavailable as error:
            self.fail(error)
            return
        self._timer = self.loop.call_later(self._timeout, self._late)

    def _flush(self) -> None:
        done = self.line.flushed()
        if done and self._writing:
            self.loop.remove_writer(self._number)
        elif not done and not self._writing:
            self.loop.add_writer(self._number, self._writable)
        self._writing = not done

    def _writable(self) -> None:
        try:
            self._flush()
        except Unavailable as error:
            self.fail(error)

    def _readable(self) -> None:
        try:
            self.line.take()
            if self._writing:
                self._flush()
            self.heard()
            if not self._flight:
                # Unasked: a notice, or a farewell, which the next read will find.
                return
            rows = self.line.rows(self._found)
        except Unavailable as error:
            self.fail(error)
            return
        except ServerError as error:
            self._landed()
            for future in self._flight:
                if not future.done():
                    future.set_exception(error)
            self._flight = []
        else:
            if rows is None:
                return
            self._landed()
            flight, self._flight = self._flight, []
            if len(flight) == 1:
                if not flight[0].done():
                    flight[0].set_result(rows)
            else:
                for future, row in zip(flight, rows, strict=True):
                    if not future.done():
                        future.set_result([row])
        if self._waiting:
            self._next()

    def heard(self) -> None:
        """What else came with it: an ear's bells."""

    def _landed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _late(self) -> None:
        self.fail(self.line.late(self._timeout))

    def fail(self, error: Unavailable) -> None:
        """Everybody who waits for an answer is told, and the connection closed."""
        if not self.open:
            return
        self.open = False
        self._landed()
        self.loop.remove_reader(self._number)
        if self._writing:
            self.loop.remove_writer(self._number)
        self.line.close()
        futures = [*self._flight, *(future for _, _, future in self._waiting)]
        self._flight, self._waiting = [], []
        for future in futures:
            if not future.done():
                future.set_exception(Unavailable(str(error)))
                future.exception()  # looked at: whoever was cancelled meanwhile will not

    def disown(self) -> None:
        """In a forked child, where the loop is the parent's: do not touch it."""
        self.open = False
        self.line.disown()


async def dialled(line: Line, deadline: float) -> None:
    """See it through its connecting."""
    loop = asyncio.get_running_loop()
    while (what := line.step()) is not None:
        ready = loop.create_future()
        number = line.fileno()
        wake = lambda: None if ready.done() else ready.set_result(None)  # noqa: E731, B023
        if what == select.POLLIN:
            loop.add_reader(number, wake)
        else:
            loop.add_writer(number, wake)
        try:
            async with asyncio.timeout_at(deadline):
                await ready
        finally:
            loop.remove_reader(number)
            loop.remove_writer(number)
