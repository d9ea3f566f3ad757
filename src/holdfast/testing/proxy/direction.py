"""What happens to the bytes of one direction: the rule, apart from the sockets.

Rule 1: a chunk is what one recv() of the proxy returned: a request or a reply of a client that waits for its answers.
Rule 2: a mode judges a chunk once, on arrival. A held chunk has not arrived yet: the next command judges it anew.
Rule 3: order within a connection is kept whatever the mode: nothing overtakes a chunk that waits.
Rule 4: the end of a stream is no chunk. It waits its turn, is held and delayed with the rest, but is never dropped.
Rule 5: everything here runs on the proxy's thread, except the properties (one read each) and the waits (its lock).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Condition = Callable[[], bool]
Chunk = bytes
Predicate = Callable[[Chunk], bool]

DEADLINE = 10.0


class Count(NamedTuple):
    """How much has reached a point, since the proxy started."""

    chunks: int = 0
    bytes: int = 0

    def plus(self, data: Chunk) -> Count:
        return Count(self.chunks + 1, self.bytes + len(data))


class Verdict(NamedTuple):
    """The fate of a chunk: how many copies go on, and after how many seconds."""

    copies: int
    wait: float
    crumbs: bool = False  # and in pieces, of which the next one comes so long after the one before


FLOW = Verdict(1, 0.0)
HOLD = Verdict(1, math.inf)
DROP = Verdict(0, 0.0)
DUPLICATE = Verdict(2, 0.0)


@dataclass(frozen=True, slots=True)
class Mode:
    """A verdict, and whom it strikes: the next `chunks` for which `when` is true. None: all of them."""

    verdict: Verdict = FLOW
    chunks: int | None = None
    when: Predicate | None = None


class Control(Protocol):
    """What a direction needs of its proxy."""

    def run(self, action: Callable[[], None]) -> None:
        """Run on the proxy's thread; return when it is done."""

    def rejudge(self, direction: Direction) -> None:
        """The mode has changed: let it judge what is held."""

    def wait_until(self, condition: Condition, timeout: float, what: Callable[[], str]) -> None:
        """Wait for the condition, which is looked at whenever something happened."""


class Direction:
    """One way through the proxy. Commands take effect before they return and last until the next one.

    `chunks=n` limits a command to the next n chunks; `when=` to chunks for which it is true. `when` runs on the proxy's
    thread: it may give commands (so it can serve as a trigger), but must not wait.
    """

    def __init__(self, name: str, control: Control) -> None:
        self.name = name
        self._control = control
        self._mode = Mode()
        self._seen = self._caught = self._passed = Count()
        self._seen_at_command = self._caught_at_command = Count()

    def flow(self) -> None:
        """Back to normal; what was held goes on its way, in order."""
        self._command(Mode())

    def hold(self, *, chunks: int | None = None, when: Predicate | None = None) -> None:
        """Keep chunks back until the next command. Without limits it holds the end of the stream too: a partition."""
        self._command(Mode(HOLD, chunks, when))

    def drop(self, *, chunks: int | None = None, when: Predicate | None = None) -> None:
        """Swallow chunks without a trace: lost requests, lost replies."""
        self._command(Mode(DROP, chunks, when))

    def delay(self, seconds: float, *, chunks: int | None = None, when: Predicate | None = None) -> None:
        """Let each chunk through `seconds` after its arrival."""
        if not 0 <= seconds < math.inf:
            raise ValueError(
                f"a delay is a finite number of seconds from 0 up, not {seconds!r}; to wait for ever, hold()"
            )
        self._command(Mode(Verdict(1, seconds), chunks, when))

    def crumble(self, seconds: float) -> None:
        """Hand on each chunk line by line, or by a few bytes, with a pause after each: TCP promises no pieces."""
        self._command(Mode(Verdict(1, seconds, crumbs=True)))

    def duplicate(self, *, chunks: int | None = None, when: Predicate | None = None) -> None:
        """Send each chunk twice in a row."""
        self._command(Mode(DUPLICATE, chunks, when))

    @property
    def seen(self) -> Count:
        """What has reached the proxy in this direction."""
        return self._seen

    @property
    def caught(self) -> Count:
        """What a mode other than flow has struck."""
        return self._caught

    @property
    def passed(self) -> Count:
        """What has been handed on whole to the other side; a duplicated chunk counts as one of twice the length."""
        return self._passed

    def wait_for_bytes(self, n: int, timeout: float = DEADLINE) -> None:
        """Wait until n bytes have reached the proxy since the last command to this direction (or since the start)."""
        self._wait(lambda: self._seen.bytes - self._seen_at_command.bytes, n, timeout, "byte(s)")

    def wait_for_chunks(self, n: int, timeout: float = DEADLINE) -> None:
        """Wait until n chunks have reached the proxy since the last command to this direction (or since the start)."""
        self._wait(lambda: self._seen.chunks - self._seen_at_command.chunks, n, timeout, "chunk(s)")

    def wait_for_caught(self, n: int, timeout: float = DEADLINE) -> None:
        """Wait until the last command has struck n chunks: held, dropped, delayed or duplicated them."""
        self._wait(lambda: self._caught.chunks - self._caught_at_command.chunks, n, timeout, "caught chunk(s)")

    def arrived(self, data: bytes) -> Verdict:
        """A chunk came in: count it and judge it."""
        self._seen = self._seen.plus(data)
        return self.judge(data)

    def judge(self, data: bytes) -> Verdict:
        """What the present mode does with this chunk. Uses up one of the mode's chunks if it strikes."""
        mode = self._mode
        if mode.verdict is FLOW or mode.chunks == 0 or (mode.when is not None and not mode.when(data)):
            return FLOW
        self._caught = self._caught.plus(data)
        # `when` may itself have given a command: only the mode that judged is used up.
        if mode.chunks is not None and self._mode is mode:
            self._mode = Mode(mode.verdict, mode.chunks - 1, mode.when)
        return mode.verdict

    def judge_end(self) -> float:
        """How long the end of a stream has to wait; a mode for some chunks only does not concern it."""
        return self._mode.verdict.wait if self._mode.chunks is None and self._mode.when is None else 0.0

    def left(self, data: bytes) -> None:
        """A chunk has been handed on whole."""
        self._passed = self._passed.plus(data)

    def _command(self, mode: Mode) -> None:
        if mode.chunks is not None and mode.chunks < 1:
            raise ValueError(f"chunks={mode.chunks}: strike at least one chunk, or leave it out to strike all")

        def switch() -> None:
            self._seen_at_command, self._caught_at_command = self._seen, self._caught
            self._mode = mode
            self._control.rejudge(self)

        self._control.run(switch)

    def _wait(self, count: Callable[[], int], n: int, timeout: float, unit: str) -> None:
        self._control.wait_until(
            lambda: count() >= n,
            timeout,
            lambda: f"{n} {unit} {self.name} since the last command; there were {count()}",
        )
