"""The command: found, started in its own process group, signalled as a group, and ended as a group."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import time
from collections.abc import Mapping
from typing import NoReturn

from . import exits
from .foreground import Foreground

_SETTLE = 0.5  # s: a daemon's first process ends before its second has left the group
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
    """Forked at once, while there are no threads that a fork would leave behind; executes the command when told to.

    So its process group is known, and watched, before the command can do anything at all: there is no moment at which
    `holdfast run` could be killed and leave it running.
    """

    def __init__(self, path: str, argv: list[str]) -> None:
        self.code: int | None = None  # what to exit with, once it has ended
        self.signalled = 0  # the signal that ended it
        self._terminal = Foreground()
        self._command = argv[0]
        go, self._go = os.pipe()
        self._failure, failure = os.pipe()
        self.group = os.fork()
        if self.group == 0:
            os.close(self._go)
            _become(path, argv, go, failure)
        with contextlib.suppress(OSError):  # there too, whoever comes first
            os.setpgid(self.group, self.group)
        os.close(go)
        os.close(failure)

    def start(self, environment: Mapping[str, str | None]) -> None:
        """Execute it, with these in its environment as well; and without those that are None."""
        if self._terminal.wanted_at_once():
            self._terminal.lend(self.group)
        added = b"\0".join(
            os.fsencode(key if value is None else f"{key}={value}") for key, value in environment.items()
        )
        with contextlib.suppress(BrokenPipeError):  # killed while it waited: that is found out like any other end
            os.write(self._go, added)
        os.close(self._go)
        self._go = -1
        if failure := os.read(self._failure, 16):  # nothing, when exec has closed it
            self._terminal.take_back()
            raise _why(int(failure), self._command)

    def dismiss(self) -> None:
        """It never started: let it go."""
        if self._go >= 0:
            os.close(self._go)
        if self.code is None:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.group, 0)

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
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if grace:
                self._let_go(_SETTLE)
                os.killpg(self.group, signal.SIGTERM)
                os.killpg(self.group, signal.SIGCONT)
                self._let_go(grace)
            os.killpg(self.group, signal.SIGKILL)

    def _let_go(self, seconds: float) -> None:
        """Until nobody works in the group any more, or so long. Raises ProcessLookupError when it is empty."""
        give_up = time.monotonic() + seconds
        os.killpg(self.group, 0)
        while _works(self.group) and time.monotonic() < give_up:
            time.sleep(0.01)
            os.killpg(self.group, 0)


def _become(path: str, argv: list[str], go: int, failure: int) -> NoReturn:
    """In the forked process: wait for the word, then be the command."""
    try:
        os.setpgid(0, 0)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        added = os.read(go, 65536)
        if added:
            for signum in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, which the command must not inherit
                signal.signal(signum, signal.SIG_DFL)
            environment = dict(os.environb)
            for key, given, value in (one.partition(b"=") for one in added.split(b"\0")):
                if given:
                    environment[key] = value
                else:
                    environment.pop(key, None)
            os.execve(path, argv, environment)
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(exits.TROUBLE)


def _why(number: int, command: str) -> NotStarted:
    if number in (errno.ENOENT, errno.ENOTDIR):
        return NotStarted(exits.NOT_FOUND, f"cannot execute {command!r}: no such file, or its interpreter is missing")
    why = "neither a program nor a script that begins with #!" if number == errno.ENOEXEC else os.strerror(number)
    return NotStarted(exits.NOT_EXECUTABLE, f"cannot execute {command!r}: {why}")


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
