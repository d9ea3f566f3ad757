"""So many connections and no more, for threads; whoever waits for one is served in the order of coming."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    def close(self) -> None: ...


AnyLine = TypeVar("AnyLine", bound=Closable)
NOTHING: Any = object()  # of what may be taken: none is there


class _Turn:
    """One who waits."""

    __slots__ = ("bell", "given")

    def __init__(self) -> None:
        self.given = NOTHING
        self.bell = threading.Lock()
        self.bell.acquire()


class Pool(Generic[AnyLine]):
    """What lies here may be taken: a connection, or None, which is leave to open one. The last put back is taken first."""

    def __init__(self, size: int) -> None:
        self._lying: list[AnyLine | None] = [None] * size
        self._line_up: deque[_Turn] = deque()
        self._mutex = threading.Lock()

    def take(self) -> Any:
        """NOTHING if all are in use, or others wait already."""
        if self._line_up:
            return NOTHING
        try:
            return self._lying.pop()
        except IndexError:
            return NOTHING

    def take_over(self) -> AnyLine | None:
        """A connection for good, if one lies here; in its place there is leave to open another."""
        one: AnyLine | None = self.take()
        if one is NOTHING:
            return None
        self.put_back(None)
        return one

    def wait(self, timeout: float, too_late: Callable[[float], Exception]) -> Any:
        """Whoever puts one back looks for us after that, and we for it after saying that we wait."""
        began = time.monotonic()
        turn = _Turn()
        try:
            self._line_up.append(turn)
            self._serve()
            turn.bell.acquire(timeout=max(0.0, timeout))
            with self._mutex:
                if turn.given is NOTHING:
                    raise too_late(time.monotonic() - began)
            return turn.given
        except BaseException:
            with self._mutex:
                if turn in self._line_up:
                    self._line_up.remove(turn)
            if turn.given is not NOTHING:
                self.put_back(turn.given)
            raise

    def put_back(self, one: AnyLine | None) -> None:
        if one is None:
            self._lying.insert(0, None)
        else:
            self._lying.append(one)
        if self._line_up:
            self._serve()

    def _serve(self) -> None:
        with self._mutex:
            while self._line_up and self._lying:
                turn = self._line_up.popleft()
                turn.given = self._lying.pop()
                turn.bell.release()

    def idle(self) -> list[AnyLine]:
        return [one for one in self._lying if one is not None]

    def close_idle(self) -> None:
        for _ in range(len(self._lying)):
            try:
                one = self._lying.pop()
            except IndexError:
                return
            self._lying.insert(0, None)
            if one is not None:
                one.close()
