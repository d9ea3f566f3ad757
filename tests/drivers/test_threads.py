"""Threads that are started while somebody is interrupted: Ctrl-C, a time limit."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from linecache import getline
from types import FrameType
from typing import Any

import pytest

from holdfast.drivers.threads import Threads

PATIENCE = 10.0


class Stop(BaseException):
    pass


class Work:
    """What a background thread was to do; it refers to what it is for."""

    def __init__(self) -> None:
        self.ran = threading.Event()
        self.ended = threading.Event()

    async def main(self) -> None:
        self.ran.set()
        self.ended.wait(PATIENCE)


def interrupted_at(line: int, work: Work) -> bool:
    """`spawn`, with an exception out of nothing at that line of the interpreter's `Thread.start`, and of what that calls."""
    seen = 0
    starting = False

    def lines(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal seen
        # A signal is not heard at the end of a `with`, before it has let go; a tracer is.
        if what == "line" and not getline(threading.__file__, frame.f_lineno).lstrip().startswith("with "):
            seen += 1
            if seen == line:
                raise Stop
        return lines

    def calls(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal starting
        starting = starting or frame.f_code is threading.Thread.start.__code__
        return lines if starting and frame.f_code.co_filename == threading.__file__ else None

    before = sys.gettrace()
    sys.settrace(calls)
    try:
        Threads().spawn(work.main, "interrupted")
    except Stop:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupted_start_runs_or_is_forgotten() -> None:
    line = forgotten = 0
    interrupted = True
    while interrupted:
        line += 1
        work = Work()
        gone = weakref.ref(work)
        ran = work.ran
        ended = work.ended
        interrupted = interrupted_at(line, work)
        del work
        gc.collect()
        if gone() is None:
            forgotten += 1
        else:
            assert ran.wait(PATIENCE), f"neither running nor forgotten, when interrupted at line {line}"
        ended.set()
    assert line > 10, "nothing was interrupted"
    assert forgotten > 5


def test_what_is_raised_in_the_work_is_seen() -> None:
    seen: list[BaseException | None] = []
    done = threading.Event()

    def hook(args: threading.ExceptHookArgs) -> None:
        seen.append(args.exc_value)
        done.set()

    async def fail() -> None:
        raise IndexError("mine")

    old, threading.excepthook = threading.excepthook, hook
    try:
        Threads().spawn(fail, "failing")
        assert done.wait(PATIENCE)
    finally:
        threading.excepthook = old
    assert repr(seen[0]) == "IndexError('mine')"


def test_no_thread_to_be_had_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("can't start new thread")

    for name in ("_start_new_thread", "_start_joinable_thread"):  # the latter since Python 3.13
        monkeypatch.setattr(threading, name, refuse, raising=False)
    with pytest.raises(RuntimeError, match="can't start"):
        try:
            raise KeyError("being handled")
        except KeyError:
            Threads().spawn(Work().main, "refused")
