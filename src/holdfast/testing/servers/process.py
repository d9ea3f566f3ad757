"""Processes of servers: started so that none can outlive the tests, and signalled together with their children."""

from __future__ import annotations

import itertools
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.testing.servers import watcher

SECONDS = 10.0
_STOPPED, _DEAD = "Tt", "ZX"


class Nest:
    """The folder of this test process in which all its servers work, and the watcher over it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-")).resolve()
        self.folder.chmod(0o711)  # a server that runs as another user must reach its own folder below
        self._numbers = itertools.count(1)  # safe between threads
        self._watch()

    def new_folder(self, kind: str) -> Path:
        folder = self.folder / f"{kind}-{next(self._numbers)}"
        folder.mkdir()
        folder.chmod(0o711)
        return folder

    def _watch(self) -> None:
        """posix_spawn, not Popen: nobody waits for the watcher, and a Popen that nobody waits for complains."""
        ours, self._lifeline = os.pipe()
        command = [sys.executable, "-I", watcher.__file__, str(self.owner), str(self.folder)]
        null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        files = [(os.POSIX_SPAWN_DUP2, ours, 0), *null]
        os.posix_spawn(sys.executable, command, os.environ, file_actions=files, setsid=True)
        os.close(ours)


_nest: Nest | None = None
_nest_lock = threading.Lock()


def nest() -> Nest:
    """This process's own; a forked child that starts servers gets another."""
    global _nest
    with _nest_lock:
        if _nest is None or _nest.owner != os.getpid():
            _nest = Nest()
        return _nest


def spawn(
    command: Sequence[str], folder: Path, log: Path, environ: Mapping[str, str], user: str | None
) -> subprocess.Popen[bytes]:
    """Start a server in a session of its own, so that a Ctrl-C at the terminal reaches the tests only.

    `folder`, where it works, lies in the nest: that is how the watcher knows it.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environ},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
        )


def family(pid: int) -> list[int]:
    """A process and its descendants. Not its process group: PostgreSQL's backends each lead their own."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        fields = _stat(folder)
        if fields:
            children.setdefault(int(fields[1]), []).append(int(folder.name))
    members = [pid]
    for member in members:
        members += children.get(member, [])
    return members


def pause(pid: int) -> None:
    """SIGSTOP the family; return when every thread of it has come to a stand."""
    deadline = time.monotonic() + SECONDS
    while True:
        members = family(pid)  # anew each time: a member may have forked before its signal came
        for member in members:
            _signal(member, signal.SIGSTOP)
        if all(standing(member) for member in members) and family(pid) == members:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} did not stop within {SECONDS} s of SIGSTOP; does it wait for a disk?")
        time.sleep(0.001)


def resume(pid: int) -> None:
    """SIGCONT the family, the children first: a parent may act on what it believes of them."""
    for member in reversed(family(pid)):
        _signal(member, signal.SIGCONT)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 the family; return when none of it runs."""
    members = family(process.pid)
    for member in members:
        _signal(member, signal.SIGKILL)
    process.wait(SECONDS)
    deadline = time.monotonic() + SECONDS
    while any(running(member) for member in members):
        if time.monotonic() > deadline:
            raise TimeoutError(f"of the processes {members} some still run {SECONDS} s after SIGKILL")
        time.sleep(0.001)


def running(pid: int) -> bool:
    fields = _stat(Path(f"/proc/{pid}"))
    return bool(fields) and fields[0] not in _DEAD


def standing(pid: int) -> bool:
    tasks = [_stat(folder) for folder in Path(f"/proc/{pid}/task").glob("*")]
    return all(not fields or fields[0] in _STOPPED + _DEAD for fields in tasks)


def _stat(folder: Path) -> list[str]:
    """State, parent and so on: what follows the name, which may itself contain spaces and brackets. Empty if gone."""
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    """Safe against a reused pid: the first of a family is our child, not yet waited for; the rest were just seen."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
