"""A dashboard on a port of its own, in this process, and stores for it to look at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import uvicorn

import holdfast
from holdfast.dashboard import asgi
from holdfast.testing.ports import LOOPBACK, shared_socket

PATIENCE = 20.0


class Served:
    """Served at `url` until left. `again()` ends it and starts another one on the same port."""

    def __init__(self, *urls: str, **settings: Any) -> None:
        mounted = "allow_evict" in settings and "token" not in settings  # as behind a login of one's own
        self._urls, self._settings = urls, {"mounted": mounted, "interval": 0.05, **settings}
        self.port = 0
        self._start()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def _start(self) -> None:
        self.app = asgi(*self._urls, **self._settings)
        socket = shared_socket()
        socket.bind((LOOPBACK, self.port))
        self.port = socket.getsockname()[1]
        config = uvicorn.Config(self.app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([socket],), daemon=True)
        self._thread.start()
        until(lambda: self._server.started, "the dashboard to start")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def again(self) -> None:
        self.stop()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def until(condition: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.01)


@contextmanager
def churning(locks: holdfast.Locks, many: int, events: int) -> Iterator[Callable[[], int]]:
    """So many names, of which some go and come again: so many events a second. Yields how many there were."""
    leases = [locks.lock(f"n:{number:04}", ttl=600).acquire() for number in range(many)]
    end, changed = threading.Event(), 0

    def churn() -> None:
        nonlocal changed
        due = time.monotonic()
        while not end.is_set():  # out and in again: two events
            at = changed % many
            leases[at].release()
            leases[at] = locks.lock(f"n:{at:04}", ttl=600).acquire()
            changed += 1
            due += 2 / events
            time.sleep(max(0.0, due - time.monotonic()))

    working = threading.Thread(target=churn)
    working.start()
    try:
        yield lambda: 2 * changed
    finally:
        end.set()
        working.join()
        for lease in leases:
            lease.release()
