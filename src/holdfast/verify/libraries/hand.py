"""A process that does with a library what it is told, a line of JSON each, and answers with one. See `probes`."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

from .adapters import Adapter, adapter

_ANSWER = 90.0


class Hand:
    """The process, from outside."""

    def __init__(self, library: str, url: str, ttl: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", __name__, library, str(ttl)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            process_group=0,
            text=True,
        )
        self.say(url=url)
        self.hear()

    def take(self, name: str, timeout: float) -> bool:
        return bool(self.ask("take", name=name, timeout=timeout)["got"])

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.say(do=do, **more)
        return self.hear()

    def say(self, **told: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(told)}\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], _ANSWER)[0]:
            raise TimeoutError(f"no answer within {_ANSWER:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionError("it has ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def signal(self, number: int) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # with its children: those of some libraries never end
        self._process.wait(_ANSWER)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.signal(signal.SIGCONT)
        self.kill()


# ---- inside


class _Doing:
    def __init__(self, library: Adapter) -> None:
        self._library = library
        self._held: Any = None

    def take(self, name: str, timeout: float) -> dict[str, Any]:
        since = time.monotonic()
        self._held = self._library.take(name, timeout)
        return {"got": self._held is not None, "seconds": time.monotonic() - since}

    def look(self) -> dict[str, Any]:
        return {"held": self._library.look(self._held)}

    def give(self) -> dict[str, Any]:
        self._library.give(self._held)
        return {}

    def cancelled(self, name: str, after: float) -> dict[str, Any]:
        return {"taken": self._library.cancelled(name, after)}

    def fork(self) -> dict[str, Any]:
        """A child that does nothing, and ends as programs end."""
        if (child := os.fork()) == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.exit(0)
        os.waitpid(child, 0)
        return {}

    def turns(self, name: str, seconds: float, hold: float) -> dict[str, Any]:
        """Again and again; how long each took to be had."""
        waits = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            since = time.monotonic()
            held = self._library.take(name, 30.0)
            if held is not None:
                waits.append(time.monotonic() - since)
                time.sleep(hold)
                self._library.give(held)
        return {"waits": waits}


def main(library: str, ttl: str) -> None:
    doing = _Doing(adapter(library)(json.loads(sys.stdin.readline())["url"], float(ttl)))
    _answer({})
    for line in sys.stdin:
        told = json.loads(line)
        try:
            _answer(getattr(doing, told.pop("do"))(**told))
        except (Exception, KeyboardInterrupt) as error:
            _answer({"got": False, "error": f"{type(error).__name__}: {error}"[:200]})


def _answer(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
