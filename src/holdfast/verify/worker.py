"""A worker process, started by `clocks`. It is told all on standard input, so that no URL is seen by `ps`: what to do in a line
of JSON, then "clock" now and then, and "stop".

Standard input is its lifeline too: if the one who started it is gone, so is the worker.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .. import aio, sync
from ..drivers.base import finish
from ..testing.history import Recording
from . import clocks
from .journal import Journal
from .register import Place, Register
from .turns import Turns

STOP, CLOCK = "stop", "clock"
THREADS, ASYNCIO = "threads", "asyncio"


class Work:
    """What all lanes of a process share."""

    def __init__(self, locks: Any, told: dict[str, Any], stop: threading.Event) -> None:
        self.locks, self._told, self._stop = locks, told, stop
        self.journal = Journal(told["process"], Path(told["journal"]))
        self.failed: BaseException | None = None
        engine = locks._engine
        recording = Recording(engine.open_store(), self.journal, told["process"], time.monotonic)
        engine.store = engine.renewer._store = engine.leaving._store = recording

    async def lane(self, number: int) -> None:
        """One thread or task: a turn after the other."""
        told = self._told
        register = Register(Place(*told["register"]), told["fenced"])
        turns = Turns(self.locks, register, self.journal, number, told["prefix"], told["ttl"], told["patience"])
        try:
            while not self._stop.is_set():
                await turns.one(int((time.monotonic() - told["start"]) / told["era"]))
        except BaseException as error:
            self.failed = error
            self._stop.set()
            raise
        finally:
            register.close()


def in_threads(url: str, told: dict[str, Any], stop: threading.Event) -> None:
    work = Work(sync.connect(url, label=told["process"]), told, stop)
    lanes = [threading.Thread(target=lambda lane=lane: finish(work.lane(lane))) for lane in range(told["lanes"])]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    work.locks.close()
    work.journal.close()
    if work.failed is not None:
        raise work.failed


async def in_asyncio(url: str, told: dict[str, Any], stop: threading.Event) -> None:
    work = Work(aio.connect(url, label=told["process"]), told, stop)
    async with asyncio.TaskGroup() as group:
        for lane in range(told["lanes"]):
            group.create_task(work.lane(lane))
    await work.locks.close()
    work.journal.close()


def _listen(stop: threading.Event, ending: float) -> None:
    for line in sys.stdin:
        word, *numbers = line.split()
        if word == CLOCK:
            sys.modules[clocks.NAME].shift(*map(float, numbers))
        elif word == STOP:
            faulthandler.dump_traceback_later(ending, exit=True)  # a worker that hangs says where
            stop.set()
            return
    os._exit(1)


def _die_with_parent() -> None:
    """One that is paused hears no lifeline. Where there is no prctl(), it stays paused until somebody wakes it."""
    with suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    _die_with_parent()
    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # what is lost is in the history
    told = json.loads(sys.stdin.readline())
    stop = threading.Event()
    threading.Thread(target=_listen, args=(stop, told["ending"]), daemon=True).start()
    url = told.pop("url")
    if told["library"] is not None:
        from .libraries.turns import work

        work(url, told, stop)
    elif told["flavour"] == THREADS:
        in_threads(url, told, stop)
    else:
        asyncio.run(in_asyncio(url, told, stop))
