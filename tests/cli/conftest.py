"""Real processes: the installed console script, a real SQLite file, children that report through pipes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast

HOLDFAST = os.path.join(sysconfig.get_path("scripts"), "holdfast")
PATIENCE = 20.0


def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for something that only shows when one looks."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, f"not within {PATIENCE:g} s: {what or condition}"
        time.sleep(0.003)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


class Job:
    """A `holdfast` that is running."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.pid = process.pid
        self._buffer = b""

    def line(self) -> str:
        """The next line that it, or its command, writes to standard output."""
        assert self.process.stdout is not None
        give_up = time.monotonic() + PATIENCE
        while b"\n" not in self._buffer:
            left = give_up - time.monotonic()
            assert left > 0, f"no line came; only {self._buffer!r}"
            if select.select([self.process.stdout], [], [], left)[0]:
                more = os.read(self.process.stdout.fileno(), 4096)
                assert more, f"ended without a line: {self.end()}"
                self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def send(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


class Commands:
    """Runs `holdfast` with a store of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.environment = {**os.environ, "HOLDFAST_URL": url, "PYTHONWARNINGS": "error"}
        self._jobs: list[Job] = []

    def __call__(self, *words: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HOLDFAST, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE * 2,
            env={**self.environment, **environment},
        )

    def start(self, *words: str, command: tuple[str, ...] = ()) -> Job:
        pipe = subprocess.PIPE
        # In a process group of its own, as a shell would start it: ours may be orphaned (in CI), and then the kernel lets
        # nobody in it be stopped by SIGTSTP.
        process = subprocess.Popen(
            [*command, HOLDFAST, *words],
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            env=self.environment,
            process_group=0,
        )
        self._jobs.append(Job(process))
        return self._jobs[-1]

    def hold(self, name: str, *options: str) -> Job:
        """Somebody who has the lock until a line is typed."""
        job = self.start("run", name, *options, "--", "sh", "-c", "echo $$; read line")
        job.line()
        return job

    def clean(self) -> None:
        for job in self._jobs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(job.pid, signal.SIGCONT)
            job.process.kill()  # its watch ends the command
            job.process.wait()
            for pipe in (job.process.stdin, job.process.stdout, job.process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def run(url: str) -> Iterator[Commands]:
    commands = Commands(url)
    yield commands
    commands.clean()


@pytest.fixture
def locks(url: str) -> Iterator[holdfast.Locks]:
    with holdfast.connect(url, label="the test") as connected:
        yield connected


def python(source: str) -> tuple[str, ...]:
    """A small Python as the command; without site, which a test need not wait for."""
    return (sys.executable, "-S", "-E", "-c", source)
