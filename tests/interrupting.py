"""An exception out of nothing, where a signal handler could raise one: at every such place in turn.

The interpreter looks for signals when a function begins, after a call, and when a loop goes round; nowhere else. A tracer that
raised at every line would also raise where no signal is heard: at the end of a `with` before it has let go, or between
an exception and the `except` that catches it. An exception that comes with a call is caught by whoever catches what that call
raises; the tracer's comes one step later, where a `with` may already be leaving. So such a place is passed over.
"""

from __future__ import annotations

import dis
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

import holdfast

_TRACED = (os.path.dirname(holdfast.__file__) + os.sep, threading.__file__)
_HEARD = ("CALL", "RESUME", "JUMP_BACKWARD")


class Stop(BaseException):
    """What the signal handler raises."""


@cache
def _opcodes(code: CodeType) -> dict[int, str]:
    return {one.offset: one.opname for one in dis.get_instructions(code)}


@cache
def _caught(code: CodeType) -> list[tuple[int, int, int]]:
    """From where to where (in bytes), and by whom."""
    return [(one.start, one.end, one.target) for one in dis._parse_exception_table(code)]  # type: ignore[attr-defined]


def _catcher(code: CodeType, at: int) -> int:
    return next((target for start, end, target in _caught(code) if start <= at < end), -1)


class Interruption:
    """Raised once, at the n-th place in our code, or in `threading`, from `begin` on; `where` says where that was, if it was."""

    def __init__(self, n: int, begin: Callable[[CodeType], bool], spared: Callable[[CodeType], bool]) -> None:
        self._left = n
        self._begin = begin
        self._spared = spared  # it is not heard where these begin
        self._begun = False
        self._before: dict[FrameType, tuple[str, int]] = {}
        self._seen: set[tuple[CodeType, int]] = set()  # a loop is interrupted once
        self.where = ""

    def __enter__(self) -> Interruption:
        self._old = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._old)
        self._before.clear()

    def _call(self, frame: FrameType, what: str, _: Any) -> Any:
        if self.where or not frame.f_code.co_filename.startswith(_TRACED):
            return None
        self._begun = self._begun or self._begin(frame.f_code)
        if not self._begun:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._before[frame] = "RESUME", frame.f_lasti
        return self._step

    def _step(self, frame: FrameType, what: str, _: Any) -> Any:
        if what in ("return", "exception"):  # a call that raises is not followed by a look
            self._before.pop(frame, None)
        if what != "opcode" or self.where:
            return self._step
        code, here = frame.f_code, frame.f_lasti
        before, at = self._before.get(frame, ("", here))
        self._before[frame] = _opcodes(code)[here], here
        place = code, here
        if place in self._seen or not before.startswith(_HEARD) or (before == "RESUME" and self._spared(code)):
            return self._step
        if before != "RESUME" and _catcher(code, at) != _catcher(code, here):
            return self._step
        self._seen.add(place)
        self._left -= 1
        if self._left < 0:
            self.where = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_name}"
            self._before.clear()
            raise Stop
        return self._step
