"""The command: found, started in its own process group, signalled as a group, and ended as a group."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import time
from collections.abc import Mapping

from . import exits
from .foreground import Foreground

_STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


class NotStarted(Exception):
    """The command cannot be run: 126 or 127, as in timeout(1)."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def find(command: str) -> str:
    """The file that would be executed. Looked for before the lock is asked for: a typo should not wait an hour in line."""
    if "/" in command:
        candidates = [command]
    else:
        candidates = [os.path.join(folder or ".", command) for folder in os.get_exec_path()] if command else []
    refused = ""
    for path in candidates:
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = refused or f"{error.strerror}"
            continue
        if stat.S_ISREG(mode) and os.access(path, os.X_OK):
            return path
        refused = refused or ("it is a folder" if stat.S_ISDIR(mode) else "it is not executable")
    if refused:
        raise NotStarted(exits.NOT_EXECUTABLE, f"cannot execute {command!r}: {refused}")
    raise NotStarted(exits.NOT_FOUND, f"cannot find {command!r}")


class Child:
    def __init__(self, path: str, argv: list[str], environment: Mapping[str, str]) -> None:
        self.code: int | None = None  # what to exit with, once it has ended
        self.signalled = 0  # the signal that ended it
        self._terminal = Foreground()
        # Not fork: the renewer's thread is running. And posix_spawn says in so many words why an exec failed.
        try:
            self.group = os.posix_spawn(
                path,
                argv,
                environment,
                setpgroup=0,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores these, which the command must not inherit
            )
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            why = "no such file, or its interpreter is missing" if missing else error.strerror
            if error.errno == errno.ENOEXEC:
                why = "neither a program nor a script that begins with #!"
            code = exits.NOT_FOUND if missing else exits.NOT_EXECUTABLE
            raise NotStarted(code, f"cannot execute {argv[0]!r}: {why}") from None
        if self._terminal.wanted_at_once():
            self._terminal.lend(self.group)

    def send(self, signum: int) -> None:
        """To the whole group."""
        if self.code is None:
            with contextlib.suppress(OSError):
                os.killpg(self.group, signum)

    def look(self) -> int:
        """What has become of it. Returns the signal that stopped it, if it stopped and we should stop too."""
        while self.code is None:
            try:
                pid, status = os.waitpid(self.group, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:  # somebody set SIGCHLD to be ignored, and the kernel reaped it
                self.code = exits.TROUBLE
                return 0
            if pid == 0:
                return 0
            if os.WIFSTOPPED(status):
                signum = os.WSTOPSIG(status)
                if signum in (signal.SIGTTIN, signal.SIGTTOU) and self._terminal.lend(self.group):
                    self.send(signal.SIGCONT)  # it wanted the terminal, and has it now
                elif signum in _STOPS or self._terminal.lent:
                    return signum
            elif os.WIFSIGNALED(status):
                self.signalled = os.WTERMSIG(status)
                self.code = exits.SIGNALLED + self.signalled
            else:
                self.code = os.WEXITSTATUS(status)
        return 0

    def stop_with(self, signum: int) -> None:
        """Let the shell see its job stopped; returns when it is continued. The command is not continued here."""
        had = self._terminal.lent
        self._terminal.take_back()
        before = signal.signal(signum, signal.SIG_DFL)
        # The whole group, as Ctrl-Z would. In a group without a shell above it the kernel ignores this, and we go on.
        os.killpg(os.getpgrp(), signum)
        signal.signal(signum, before)
        if had:
            self._terminal.lend(self.group)

    def leave_nothing(self, grace: float) -> None:
        """End what the command left behind in its group: without the lock it has no business any more."""
        self._terminal.take_back()
        give_up = time.monotonic() + grace
        signum = signal.SIGTERM
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while True:
                os.killpg(self.group, signum)
                if signum == signal.SIGKILL:
                    return
                os.killpg(self.group, signal.SIGCONT)
                while time.monotonic() < give_up and _works(self.group):
                    time.sleep(0.005)
                    os.killpg(self.group, 0)
                signum = signal.SIGKILL


def _works(group: int) -> bool:
    """Is anybody of the group still alive? kill(2) counts the dead too, until init has reaped them: in many containers, never."""
    try:
        pids = [entry for entry in os.listdir("/proc") if entry.isdigit()]
    except OSError:
        return True
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
            state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in (b"Z", b"X"):
                return True
    return not pids
