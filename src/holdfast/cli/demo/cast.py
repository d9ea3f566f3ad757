"""The worker processes, as the director sees them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from ...errors import HoldfastError

TTL = 1.2  # of the lock: how long the audience waits for a paused holder to lose it
PATIENCE = 15.0  # on the most loaded of machines; a worker that takes longer ends the demo


class Failed(HoldfastError):
    """The demo itself broke down: says nothing about locks."""


class Actor:
    """One worker process, and what it is doing right now, in words."""

    def __init__(self, name: str, bank: str, url: str) -> None:
        self.name = name
        self.doing = "starting"
        self.paused = False
        self._buffer = b""
        command = [sys.executable, "-m", "holdfast.cli.demo.worker", name, bank, url, str(TTL)]
        # In a process group of its own: Ctrl-C is for us, and we end the worker.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, process_group=0
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout.fileno()

    def tell(self, words: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{words}\n".encode())
        except BrokenPipeError:
            raise Failed(f"worker {self.name} has died") from None

    def answer(self, tick: Callable[[], None]) -> list[str]:
        """The next line it says. `tick` is called while we wait, to keep the picture moving."""
        return first_answer([self], tick)[1]

    def _listen(self) -> list[str] | None:
        if b"\n" not in self._buffer:
            more = os.read(self._pipe, 4096)
            if not more:
                raise Failed(f"worker {self.name} has died")
            self._buffer += more
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        return line.decode().split()

    def pause(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)
        self.paused = False

    def end(self) -> None:
        self._process.kill()  # reaches a stopped process as well
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def first_answer(actors: list[Actor], tick: Callable[[], None]) -> tuple[Actor, list[str]]:
    """Whoever of them speaks first, and what it says."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        heard, _, _ = select.select([one._pipe for one in actors], [], [], 0.05)
        tick()
        for one in actors:
            if one._pipe in heard and (answer := one._listen()):
                return one, answer
    raise Failed(f"no answer from {', '.join(one.name for one in actors)} within {PATIENCE:g} s")
