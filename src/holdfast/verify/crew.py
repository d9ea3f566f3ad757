"""The worker processes, from outside: started, followed by what they write down, paused, killed, stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..testing.history import ACQUIRE, CHECK, CRASHED, DONE, GRANTED, READ, RELEASE, STALE, WRITE, Note
from ..testing.servers.process import standing
from . import clocks
from .journal import Tail
from .plan import Plan
from .register import Place
from .turns import IN_THE_GAP
from .worker import ASYNCIO, CLOCK, STOP, THREADS

_STOPPING = 10.0
_FRAME = re.compile(r'^  File "(?:.*[\\/])?(.+)", line (\d+) in (.+)$')  # as faulthandler writes it
_FRAMES = 6  # of each thread that hangs, innermost first


class Worker:
    """One process."""

    def __init__(self, name: str, way: int, folder: Path, told: dict[str, Any]) -> None:
        self.name = name
        self.way = way
        self.journal = folder / f"{name}.jsonl"
        self.errors = folder / f"{name}.err"
        self.granted = 0
        self.updates = 0
        self.refused = 0
        self.worst_wait = 0.0
        self.last_granted = 0.0
        self._in_the_gap: dict[str, str] = {}  # the name, by holder
        self._tail = Tail(self.journal, _FOLLOWED, self._seen)
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", clocks.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                process_group=0,  # Ctrl-C is for the one who started them
            )
        self._say(json.dumps({**told, "process": name, "journal": str(self.journal)}))

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def code(self) -> int | None:
        return self._process.poll()

    def follow(self) -> None:
        self._tail.read()

    def in_the_gap(self) -> str | None:
        """A name that it has looked at for the last time before it writes, if it is just there."""
        self.follow()
        return next(iter(self._in_the_gap.values()), None)

    def pause(self) -> None:
        """It stands still, and writes nothing more, when this returns."""
        self._signal(signal.SIGSTOP)
        until = time.monotonic() + _STOPPING
        while self.alive and not standing(self._process.pid) and time.monotonic() < until:
            time.sleep(0.001)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def shift(self, wall: float, suspended: float) -> None:
        """Its clocks."""
        self._say(f"{CLOCK} {wall} {suspended}")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._hang_up()

    def ask_to_stop(self) -> None:
        self._say(STOP)

    def wait(self, until: float) -> bool:
        try:
            self._process.wait(max(0.05, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
        self._hang_up()
        return True

    def last_words(self) -> str:
        """Why it failed. Of one that hung: where each of its threads stood."""
        told = self.errors.read_text(errors="replace").strip()
        _, hung, stood = told.rpartition("Timeout (")
        if not hung:
            return " ".join(told.splitlines()[-1:]) or f"exit code {self.code}"
        threads: list[list[str]] = []
        for line in stood.splitlines():
            if frame := _FRAME.match(line):
                threads[-1].append("{}:{} {}".format(*frame.groups()))
            elif line:
                threads.append([])
        where = "; ".join(" < ".join(frames[:_FRAMES]) for frames in threads if frames)
        return f"it did not end when it was told to. Its threads stood in {where or 'no Python any more'}"

    def _seen(self, step: dict[str, Any]) -> None:
        kind, outcome = step.get("kind"), step.get("outcome")
        if kind == CHECK:
            if outcome == DONE:
                self._in_the_gap[step["holder"]] = step["name"]
        elif kind == ACQUIRE:
            if "returned" in step:
                self.worst_wait = max(self.worst_wait, step["returned"] - step["invoked"])
            if outcome == GRANTED:
                self.granted += 1
                self.last_granted = step["invoked"]
        elif kind in (READ, WRITE):
            self._in_the_gap.pop(step.get("holder", ""), None)
            self.refused += outcome == STALE
            self.updates += kind == WRITE and outcome == DONE
        elif kind == RELEASE:
            self._in_the_gap.pop(step.get("holder", ""), None)

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended, and its exit code tells

    def _hang_up(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            return

    def _signal(self, number: int) -> None:
        if self.alive:
            os.kill(self._process.pid, number)


_FOLLOWED = [f'"kind": "{kind}"'.encode() for kind in (ACQUIRE, READ, WRITE, RELEASE)] + [IN_THE_GAP.encode()]


class Crew:
    """All of them, those that were killed too."""

    def __init__(self, plan: Plan, ways: Sequence[str], place: Place, prefix: str, folder: Path) -> None:
        self._plan = plan
        self._ways = ways
        self._folder = folder
        self._told = {
            "register": [place.where, place.schema],
            "prefix": prefix,
            "fenced": plan.fenced,
            "ttl": plan.ttl,
            "era": plan.era,
            "lanes": plan.lanes,
            "library": plan.library,
            "patience": plan.patience,
            "ending": plan.ending,
            "start": time.monotonic(),
        }
        self.workers: list[Worker] = []
        self.notes: list[Note] = []

    @property
    def living(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive]

    def start(self) -> Worker:
        number = len(self.workers)
        way = number % len(self._ways)
        told = {
            **self._told,
            "url": self._ways[way],
            "flavour": (THREADS, ASYNCIO)[number // len(self._ways) % 2],
        }
        worker = Worker(f"w{number}", way, self._folder, told)
        self.workers.append(worker)
        return worker

    def kill(self, worker: Worker) -> None:
        worker.kill()
        self.notes.append(Note(time.monotonic(), worker.name, CRASHED))

    def follow(self) -> None:
        for worker in self.workers:
            worker.follow()

    def stop(self) -> list[str]:
        """Ask all to end, and wait; those that do not are killed. What went wrong with workers themselves."""
        until = time.monotonic() + self._plan.ending + _STOPPING
        wrong = []
        for worker in self.living:
            worker.resume()
            worker.ask_to_stop()
        crashed = {note.process for note in self.notes}
        for worker in self.workers:
            if not worker.wait(until):
                self.kill(worker)
                wrong.append(f"{worker.name} did not end when it was told to")
            elif worker.code and worker.name not in crashed:
                wrong.append(f"{worker.name} failed: {worker.last_words()}")
        return wrong

    def end(self) -> None:
        """At once, whatever they do."""
        for worker in self.living:
            worker.kill()
