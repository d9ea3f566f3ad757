"""Interrupted at any line of ours: nothing is left behind, and no mutex stays taken.

A tracer raises at the n-th line that holdfast executes, for every n, as Ctrl-C and signal handlers that raise may. Only
threads: what interrupts a task is a cancellation, and those come at an await (interruption.py).
"""

from __future__ import annotations

import dis
import gc
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

import pytest

from ...errors import Unavailable
from .tampering import Interruption
from .world import World

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
TESTING = os.path.join(PACKAGE, "testing") + os.sep
MANY = 6000  # no call here has as many lines
SOON = 3.0


@cache
def unreachable(code: CodeType) -> frozenset[int]:
    """Where a tracer sees a line but no signal handler ever runs: at a bare `try:`, and between a `with`'s body and its __exit__.

    Python itself protects neither: raised there, an exception would pass by the enclosing `with`. The same goes for a tracer, not
    for a signal handler, where a comprehension goes back to its beginning (Python 3.12).
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE"]
    found = {step.offset for step in steps if step.opname in ("NOP", "JUMP_BACKWARD")}
    for at, step in enumerate(steps):
        if all(one.opname == "LOAD_CONST" and one.argval is None for one in steps[at : at + 3]):
            found.add(step.offset)
            for before in reversed(steps[:at]):  # with something to return, that is moved out of the way first
                if before.opname not in ("SWAP", "COPY", "POP_TOP", "NOP"):
                    break
                found.add(before.offset)
    return frozenset(found)


class Tracer:
    """Raises when the n-th line is about to be executed; afterwards `lines` says how many there were, and `where` it struck."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.lines = 0
        self.where = ""

    def run(self, action: Callable[[], None]) -> bool:
        """False: there was no such line."""
        sys.settrace(self._call)
        try:
            action()
        except Interruption:
            return True
        finally:
            sys.settrace(None)
        return False

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) or file.startswith(TESTING):
            return None
        caller: FrameType | None = frame
        while caller is not None and caller.f_code.co_name != "__del__":
            caller = caller.f_back
        return self._line if caller is None else None  # what is raised in a __del__ goes nowhere

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lasti not in unreachable(frame.f_code):
            self.lines += 1
            if self.lines > self._at and not self.where:
                self.where = f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno} {frame.f_code.co_name}"
                raise Interruption(self.where)
        return self._line


def acquire_and_release(locks: Any, name: str) -> None:
    lease = locks.lock(name, ttl=60).acquire(timeout=5)
    lease.release()


KEPT: list[
    Any
] = []  # as by a module, or a variable of a loop: what is left of an interrupted `with` is not just dropped


def body(locks: Any, name: str) -> None:
    KEPT.append(locks.lock(name, ttl=60, timeout=5))
    with KEPT[-1] as lease:
        KEPT.append(lease)


def several(locks: Any, name: str) -> None:
    KEPT.append(locks.all_of(f"{name}/a", f"{name}/b", ttl=60, timeout=5))
    with KEPT[-1] as leases:
        KEPT.append(leases)


def refused(locks: Any, name: str) -> None:
    for _ in range(5):
        try:
            assert locks.lock("taken").try_acquire() is None
            return
        except Unavailable:  # a busy machine: a try has a second
            continue


CALLS = {"acquire and release": acquire_and_release, "with": body, "all_of": several, "a try that fails": refused}


class Lines:
    lines_at_a_time = 1  # a slow store may try every n-th

    @pytest.mark.parametrize("what", CALLS)
    def test_interrupted_at_any_line_nothing_is_left_and_nothing_is_stuck(self, world: World, what: str) -> None:
        if world.asynchronous:
            return  # see interruption.py
        a, holder = world.actors("a", "holder")
        held = holder.do(lambda locks: locks.lock("taken").acquire())
        a.do(lambda locks: body(locks, "warm"))
        struck: dict[str, str] = {}
        with warnings.catch_warnings():
            # A lease that was let go, or a coroutine that was made and never begun, is how this may end.
            warnings.simplefilter("ignore")
            for at in range(0, MANY, self.lines_at_a_time):
                tracer = Tracer(at)
                name = f"x{at}"
                try:
                    if not a.do(lambda locks, name=name, tracer=tracer: tracer.run(lambda: CALLS[what](locks, name))):
                        break
                    struck[name] = tracer.where
                    a.do(lambda locks, name=name: body(locks, f"after {name}"), within=5 + world.slack)
                except Exception as error:
                    raise AssertionError(f"after an interruption at {tracer.where}: {error!r}") from error
            gc.collect()
            assert 20 < at < MANY - self.lines_at_a_time
            try:
                world.until(lambda: world.names() == ["taken"], within=SOON + world.slack)
            except AssertionError:
                left = {name: struck.get(name.split("/")[0]) for name in world.names() if name != "taken"}
                raise AssertionError(f"left behind, and where it was interrupted: {left}") from None
        KEPT.clear()
        assert world.waiters("taken") == []
        a.do(lambda locks: locks.close(), within=1 + world.slack)  # nobody is thought to be still at it
        holder.do(lambda _: held.release())
