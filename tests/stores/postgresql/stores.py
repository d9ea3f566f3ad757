"""A store without an engine: what is asked is asked once, and a verdict is the store's own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any

from holdfast.claim import Claim, Grant, Place, Snapshot, Verdict
from holdfast.drivers.aio import Asyncio
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.postgresql import open_store

LONG = 60.0


class Stored:
    def __init__(self, url: str, asynchronous: bool) -> None:
        self._loop = asyncio.new_event_loop() if asynchronous else None
        if self._loop is not None:
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        self.store: Any = open_store(url, Asyncio() if asynchronous else Threads())

    def begin(self, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Future[Any]:
        """In the background."""
        if self._loop is not None:
            return asyncio.run_coroutine_threadsafe(ask(self.store), self._loop)
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(finish(ask(self.store)))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def do(self, ask: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return finish(ask(self.store)) if self._loop is None else self.begin(ask).result(LONG)

    def claim(self, claim: Claim, within: float = LONG) -> Grant | Place:
        answer: Grant | Place = self.do(lambda store: store.claim(claim, within))
        return answer

    def grant(self, claim: Claim) -> Grant:
        answer = self.claim(claim)
        assert isinstance(answer, Grant)
        return answer

    def release(self, claim: Claim, within: float = LONG) -> bool:
        return self.do(lambda store: store.release(claim, within)) is True

    def renew(self, grants: Sequence[Grant], within: float) -> list[Verdict]:
        return list(self.do(lambda store: store.renew(grants, within)))

    def inspect(self, name: str) -> Snapshot:
        found: Snapshot = self.do(lambda store: store.inspect(name, LONG))
        return found

    def holders(self, name: str) -> list[int]:
        return [one.token for one in self.inspect(name).holders]

    def close(self) -> None:
        self.do(lambda store: store.close())
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(LONG)
            self._loop.close()


OpenStore = Callable[..., Stored]


def seconds(action: Callable[[], object]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started
