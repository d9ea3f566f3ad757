"""A small process that outlives the test process by a moment, to kill its servers and remove their folders.

A test process that is killed with -9 cannot clean up. PR_SET_PDEATHSIG looks like the remedy, but it fires when the
*thread* that started the server ends, is forgotten when the server changes its user (PostgreSQL, MariaDB), does not
reach grandchildren, and needs a preexec_fn, which is unsafe beside threads. So this script waits on a pidfd instead.

It finds its victims by an environment variable that only they carry, never by a remembered pid, which may by then
belong to someone else. No message has to be sent when a server starts, so none can be lost.

Runs as a script, without imports from holdfast: `python -I watcher.py PID MARK FOLDER`.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path

SECONDS = 10.0


def wait_for_end(pid: int) -> None:
    """Return when the process has ended. Its end of our stdin tells the same, but a forked child may hold it open."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([process, sys.stdin], [], [])


def marked(mark: bytes) -> list[int]:
    """The processes that carry the mark in their environment. A dead one shows an empty environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if mark in environment.split(b"\0"):
            found.append(int(folder.name))
    return found


def main(pid: int, mark: str, folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wait_for_end(pid)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        victims = marked(os.fsencode(mark))
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        if not victims and not Path(folder).exists():
            return
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
