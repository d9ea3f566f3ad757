"""Threads that do whatever is ready. One that waits inside its work is made up for, so that waiting cannot stop all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...drivers.starting import start

IDLE = 5.0  # seconds until a thread without work ends

_mine = threading.local()


class Crew:
    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._ready: deque[Callable[[], None]] = deque()
        self._mutex = threading.Lock()
        self._wake = threading.Condition(self._mutex)
        self._threads: set[threading.Thread] = set()
        self._idle = 0

    def submit(self, work: Callable[[], None]) -> None:
        with self._mutex:
            self._ready.append(work)
            self._call_somebody()

    def _call_somebody(self) -> None:
        if self._idle:
            self._wake.notify()
        elif len(self._threads) < self._size:
            self._threads.add(start(self._run, self._name))

    def _run(self) -> None:
        _mine.crew = self
        me = threading.current_thread()
        while True:
            with self._mutex:
                if me not in self._threads:  # its start was interrupted
                    return
                while not self._ready:
                    self._idle += 1
                    woken = self._wake.wait(IDLE)
                    self._idle -= 1
                    if not woken and not self._ready:
                        self._threads.remove(me)
                        return
                if len(self._threads) > self._size:  # somebody waited, and is back
                    self._threads.remove(me)
                    self._wake.notify()
                    return
                work = self._ready.popleft()
            work()


@contextmanager
def waiting() -> Iterator[None]:
    """Around what blocks inside of a crew's work: meanwhile one more may work."""
    crew: Crew | None = getattr(_mine, "crew", None)
    if crew is None:
        yield
        return
    with crew._mutex:
        crew._size += 1
        if crew._ready:
            crew._call_somebody()
    try:
        yield
    finally:
        with crew._mutex:
            crew._size -= 1
