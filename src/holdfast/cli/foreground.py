"""The terminal is lent to the command's process group, and taken back.

A process group of its own is in the background, where the terminal answers a read with SIGTTIN. So the command gets the
terminal: from the start, when it was plainly started from a shell's prompt; else when it first asks for it, by
stopping with SIGTTIN or SIGTTOU. Until then Ctrl-C goes to our group, where a script or a pipe's other end also hears it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat


class Foreground:
    def __init__(self) -> None:
        self.lent = False
        try:
            self._tty = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
        except OSError:
            self._tty = -1  # cron, systemd: nothing to lend

    @property
    def ours(self) -> bool:
        with contextlib.suppress(OSError):
            return self._tty >= 0 and os.tcgetpgrp(self._tty) == os.getpgrp()
        return False

    def wanted_at_once(self) -> bool:
        """Started by an interactive shell, alone: we lead our group, we are in front, and no pipe follows us."""
        return self.ours and os.isatty(0) and os.getpgrp() == os.getpid() and not _is_pipe(1)

    def lend(self, group: int) -> bool:
        if not self.ours:
            return False
        with contextlib.suppress(OSError):  # the group is gone already
            os.tcsetpgrp(self._tty, group)
            self.lent = True
        return self.lent

    def take_back(self) -> None:
        if not self.lent:
            return
        self.lent = False
        # We are in the background now, where taking the terminal would stop us: except with SIGTTOU blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self._tty, os.getpgrp())
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _is_pipe(fd: int) -> bool:
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
