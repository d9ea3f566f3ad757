"""A worker process. It is told all on standard input, so that no URL is seen by `ps`: what to do in a line of JSON, then "stop".

Standard input is its lifeline too: if the one who started it is gone, so is the worker.
"""

from __future__ import annotations

import asyncio
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
from ..databases.wire import settle
from ..drivers.base import finish
from ..testing.history import Recording
from .journal import Journal
from .register import Register
from .turns import Turns

STOP = "stop"
THREADS, ASYNCIO = "threads", "asyncio"


async def work(locks: Any, told: dict[str, Any], stop: threading.Event) -> None:
    journal = Journal(told["process"], Path(told["journal"]))
    register = Register(Path(told["register"]), told["fenced"])
    engine = locks._engine
    recording = Recording(engine.open_store(), journal, told["process"], time.monotonic)
    engine.store = engine.renewer._store = engine.leaving._store = recording
    turns = Turns(locks, register, journal, told["prefix"], told["ttl"], told["patience"])
    while not stop.is_set():
        await turns.one(int((time.monotonic() - told["start"]) / told["era"]))
        await engine.driver.sleep(0.001)
    await settle(locks.close())
    register.close()
    journal.close()


def _listen(stop: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == STOP:
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
    threading.Thread(target=_listen, args=(stop,), daemon=True).start()
    url, label = told.pop("url"), told["process"]
    if told["flavour"] == THREADS:
        finish(work(sync.connect(url, label=label), told, stop))
        return

    async def connected() -> None:
        await work(aio.connect(url, label=label), told, stop)

    asyncio.run(connected())


if __name__ == "__main__":
    main()
