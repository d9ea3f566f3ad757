"""Whoever keeps a thread may be interrupted while it is started: before it runs, or when it does already."""

from __future__ import annotations

import ast
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.drivers.base import finish
from holdfast.drivers.starting import start
from holdfast.drivers.threads import Threads
from holdfast.lockfree.mailbox import crew
from holdfast.lockfree.mailbox.crew import Crew
from holdfast.observe import dashboard
from holdfast.stores.also import errands
from holdfast.stores.also.errands import Errands
from holdfast.stores.zookeeper import sessions
from holdfast.stores.zookeeper.sessions import Sessions

SOURCE = Path(holdfast.__file__).parent
TOOLS = ("testing", "verify")  # nobody's program: they run alone, and their end is the end of all
PATIENCE = 10.0


class Stop(BaseException):
    pass


def bare_threads() -> Iterator[str]:
    for file in sorted(SOURCE.rglob("*.py")):
        where = file.relative_to(SOURCE)
        if where.parts[0] in TOOLS or where == Path("drivers/starting.py"):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("Thread", "Timer"):
                yield f"{where}:{node.lineno}"


def test_threads_are_started_in_one_way() -> None:
    assert not list(bare_threads()), "use drivers.starting.start"


@pytest.fixture(params=["before it runs", "when it runs"])
def interrupted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """The next start in that module."""

    def at(module: Any) -> None:
        def interruption(work: Callable[[], None], name: str) -> threading.Thread:
            monkeypatch.setattr(module, "start", start)
            if request.param == "when it runs":
                start(work, name)
            raise Stop

        monkeypatch.setattr(module, "start", interruption)

    return at


def of_name(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == name]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.002)


def test_a_crew_has_as_many_as_it_should(interrupted: Callable[[Any], None]) -> None:
    workers = Crew(1, "interrupted crew")
    together, most, done = [0], [0], threading.Semaphore(0)
    mutex = threading.Lock()

    def work() -> None:
        with mutex:
            together[0] += 1
            most[0] = max(most[0], together[0])
        time.sleep(0.01)
        with mutex:
            together[0] -= 1
        done.release()

    interrupted(crew)
    with pytest.raises(Stop):
        workers.submit(work)
    for _ in range(5):
        workers.submit(work)
    for _ in range(6):
        assert done.acquire(timeout=PATIENCE), "nobody works"
    assert most == [1]


def test_sessions_of_zookeeper_have_one_who_minds_them(interrupted: Callable[[Any], None]) -> None:
    before = of_name("holdfast-zookeeper")
    nothing: Any = None
    minded = Sessions(nothing, Threads(), lambda name: name)
    session: Any = _Session()
    minded._open[1.0] = session
    interrupted(sessions)
    with pytest.raises(Stop):
        minded._mind(0.0)
    minded._mind(0.0)
    until(lambda: session.looked_at)
    until(lambda: len(of_name("holdfast-zookeeper")) == len(before) + 1)
    minded._open.clear()
    minded._mind(0.0)
    until(lambda: minded._housekeeper is None)


class _Session:
    used = float("inf")
    suspended = None
    looked_at = 0

    @property
    def dead(self) -> bool:
        self.looked_at += 1
        return False


def test_errands_are_run_by_one(interrupted: Callable[[Any], None]) -> None:
    before = of_name("holdfast-also")
    runs = Errands(Threads(), "a test", lambda holder: None)
    interrupted(errands)
    with pytest.raises(Stop):
        finish(runs.do(lambda: 1, PATIENCE))
    assert finish(runs.do(lambda: 2, PATIENCE)) == 2
    until(lambda: len(of_name("holdfast-also")) <= len(before) + 1)
    finish(runs.close(lambda: None, PATIENCE))
    until(lambda: len(of_name("holdfast-also")) <= len(before))


def test_events_are_told_to_the_dashboard_by_one(interrupted: Callable[[Any], None]) -> None:
    told = dashboard.Dashboard("http://127.0.0.1:9")
    before = of_name("holdfast-to-dashboard")
    interrupted(dashboard)
    with pytest.raises(Stop):
        told._begin()
    with suppress(Stop):
        told._begin()
    until(lambda: len(of_name("holdfast-to-dashboard")) == len(before) + 1)
    assert told._thread in of_name("holdfast-to-dashboard")


def test_what_was_to_be_done_is_forgotten_at_once_when_the_start_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here it broke: two exceptions that knew of each other kept it, and so a lock that nobody had, until the next collection."""

    class Work:
        def __call__(self) -> None:
            raise AssertionError

    def leave(*args: object) -> None:
        raise RuntimeError("release unlocked lock")

    def interrupted(self: threading.Thread) -> None:
        """As it does when it is interrupted while it waits for the thread to begin: in mid-`with`, whose end knows of it."""
        try:
            raise Stop
        finally:
            leave(sys.exc_info()[1])

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    work = Work()
    known = weakref.ref(work)
    gc.collect()
    gc.disable()
    try:
        with suppress(Stop):
            start(work, "never")
        del work
        assert known() is None
    finally:
        gc.enable()
