"""Signals that interrupt system calls, over and over, and do nothing else."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def alarms(every: float) -> Iterator[list[int]]:
    """In the main thread; what is yielded grows with every signal. Not SIGALRM: by that, pytest-timeout ends what hangs."""
    heard: list[int] = []
    over = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    main = threading.main_thread().ident
    assert main is not None

    def ring() -> None:
        while not over.wait(every):
            signal.pthread_kill(main, signal.SIGUSR1)

    ringing = threading.Thread(target=ring, daemon=True)
    ringing.start()
    try:
        yield heard
    finally:
        over.set()
        ringing.join()
        signal.signal(signal.SIGUSR1, before)
