"""Processes that are stopped, as by a debugger, a full disk or a suspended machine: SIGSTOP, until a SIGCONT.

Not inside of a transaction of SQLite's. As long as that is open nobody else can write to the file: that is known, and would end
every test of what others do meanwhile.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time

from ..stores.sqlite import database
from .servers import process

SECONDS = 20.0


def stop_myself() -> None:
    """Another thread may be in a transaction just now: it has ended when this one stops, and none begins."""
    database._before_fork()
    try:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.01)  # the signal may have gone to another thread first, and this one a step further
    finally:
        database._after_fork()


def stop_another(pid: int, path: str) -> None:
    """One that uses the SQLite file `path`: stopped again if it was in the middle of a transaction."""
    deadline = time.monotonic() + SECONDS
    while True:
        os.kill(pid, signal.SIGSTOP)
        while not process.standing(pid) and time.monotonic() < deadline:
            time.sleep(0.001)
        if _is_free(path):
            return
        os.kill(pid, signal.SIGCONT)
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} has {path} locked whenever it is looked at")
        time.sleep(0.01)


def _is_free(path: str) -> bool:
    looking = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        looking.execute("BEGIN IMMEDIATE")
        looking.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        looking.close()
    return True
