"""A terminal to run things in: a pty whose other side is the controlling terminal of a session of its own."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence

from .conftest import PATIENCE

_LEAD = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class Screen:
    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, echo: bool = False) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (30, 100))
        if not echo:  # else what we type would be found where answers are looked for
            modes = termios.tcgetattr(theirs)
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(theirs, termios.TCSANOW, modes)
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _LEAD, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={"TERM": "xterm", **environment},
            start_new_session=True,
        )
        os.close(theirs)
        self.text = ""
        self._read = 0

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def expect(self, pattern: str) -> re.Match[str]:
        """Wait until `pattern` appears after what was found before."""
        give_up = time.monotonic() + PATIENCE
        while not (found := re.compile(pattern).search(self.text, self._read)):
            assert self._more(give_up - time.monotonic()), (
                f"{pattern!r} did not appear; only {self.text[self._read :]!r}"
            )
        self._read = found.end()
        return found

    def end(self) -> int:
        """Read to the end."""
        give_up = time.monotonic() + PATIENCE
        while self._more(give_up - time.monotonic()):
            pass
        return self.process.wait(PATIENCE)

    def _more(self, timeout: float) -> bool:
        if timeout <= 0 or not select.select([self._ours], [], [], timeout)[0]:
            return False
        try:
            more = os.read(self._ours, 65536)
        except OSError:  # Linux: nobody has the other side open any more
            return False
        self.text += more.decode(errors="replace")
        return bool(more)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)
