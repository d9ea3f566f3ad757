"""A small process that outlives the test process by a moment, to kill its servers and remove their folders.

A test process that is killed with -9 cannot clean up. PR_SET_PDEATHSIG looks like the remedy, but it fires when the
*thread* that started the server ends, is forgotten when the server changes its user (PostgreSQL, MariaDB), does not
reach grandchildren, and needs a preexec_fn, which is unsafe beside threads. So this script waits on a pidfd instead.

It finds its victims by their working folder, which lies in the one folder that all servers of the test process share.
Not by remembered pids, which may by then belong to someone else; not by a variable in their environment, which Redis
and PostgreSQL overwrite with their titles. No message has to be sent when a server starts, so none can be lost.

Runs as a script, without imports from holdfast: `python -I watcher.py PID FOLDER`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
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


def working_in(folder: str) -> list[int]:
    """The processes whose working folder lies in this one, even if it has been removed already."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            cwd = os.readlink(process / "cwd")
        except OSError:
            continue  # it has ended, or it is not ours
        if cwd.startswith(f"{folder}/"):
            found.append(int(process.name))
    return found


def release_shared_memory(data: Path) -> None:
    """A postmaster killed with -9 leaves a small System V segment behind, named in the seventh line of its pid file."""
    try:
        words = (data / "postmaster.pid").read_text().splitlines()[6].split()
    except (OSError, IndexError):
        return
    subprocess.run(["ipcrm", "-m", words[1]], check=False, capture_output=True, timeout=SECONDS)


def main(pid: int, folder: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    wait_for_end(pid)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        victims = working_in(folder)
        for victim in victims:
            with contextlib.suppress(
                ProcessLookupError
            ):  # it may end on its own: PostgreSQL's do, without their parent
                os.kill(victim, signal.SIGKILL)
        for data in Path(folder).glob("postgresql-*/data"):
            release_shared_memory(data)
        shutil.rmtree(folder, ignore_errors=True)
        if not victims and not Path(folder).exists():
            return
        time.sleep(0.02)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
