"""A second pair of eyes: a small process that kills the command if `holdfast run` no longer can.

It is told until when the lock is certain, again with every renewal. It kills the command's process group when that time
comes without a word (`holdfast run` was stopped, or starved of CPU), and at once when the pipe closes without a goodbye
(`holdfast run` was killed with -9).

Why not PR_SET_PDEATHSIG: it reaches the child but not the grandchildren, does nothing while we are merely stopped, is
dropped when the command is set-uid, exists only on Linux, and Python reaches it only through ctypes. This costs one fork of
a process that has neither threads nor a connection yet: 1 ms.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import NoReturn

from ..drivers.base import boot_time

_RECORD = 20  # bytes: far below PIPE_BUF, so records arrive whole
_GOODBYE = -1.0
_BLINK = 1.0  # s: timers stand still while the machine is suspended, so look at the clock that does not this often


class Watch:
    def __init__(self, group: int) -> None:
        there, here = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _keep(group, there, here)
        os.close(there)
        self._pipe = here

    def until(self, kill_at: float) -> None:
        """Kill at `kill_at`, unless told otherwise before."""
        with contextlib.suppress(OSError):  # somebody killed the watch: the command is then only as safe as we are
            os.write(self._pipe, f"{kill_at:>19.6f}\n".encode())

    def close(self) -> None:
        """The command has ended: go home."""
        self.until(_GOODBYE)
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)  # not left to init, which in many a container reaps nobody


def _keep(group: int, pipe: int, ours: int) -> NoReturn:
    try:
        os.close(ours)  # our own copy of the end whose closing is the alarm
        os.setsid()  # out of reach of the terminal's signals
        for signum in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(signum, signal.SIG_IGN)
        pipe = os.dup2(pipe, 3, inheritable=False) if pipe != 3 else 3
        os.closerange(4, 1024)  # a script's fd 9 is not ours to keep open
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        _look(group, pipe)
    finally:
        os._exit(0)


def _look(group: int, pipe: int) -> None:
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    kill_at = float("inf")
    while kill_at != _GOODBYE:
        left = kill_at - boot_time()
        if poll.poll(min(max(left, 0.0), _BLINK) * 1000 + 1 if left < float("inf") else None):
            record = os.read(pipe, _RECORD)
            if not record:
                break
            kill_at = float(record)
        elif left <= 0:
            break
    else:
        return
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)
