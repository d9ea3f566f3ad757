"""What the tests of all stores share; what is one store's own is in its folder."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.claim import Claim, new_holder
from holdfast.sync import Locks

SOON = 20.0
Connect = Callable[..., Locks]


def until(condition: Callable[[], object], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {within:g} s"
        time.sleep(0.005)


def claim_of(name: str, ttl: float = 30.0, **more: Any) -> Claim:
    return Claim(name, new_holder(), "host/1/somebody", ttl, **more)


class Background(threading.Thread):
    """Something that a thread does, and when it was done."""

    def __init__(self, action: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._action = action
        self._answer: Any = None
        self._error: BaseException | None = None
        self.ended_at = 0.0
        self.start()

    def run(self) -> None:
        try:
            self._answer = self._action()
        except BaseException as error:
            self._error = error
        self.ended_at = time.monotonic()

    def result(self, within: float = SOON) -> Any:
        self.join(within)
        assert not self.is_alive(), f"not done within {within:g} s"
        if self._error is not None:
            raise self._error
        return self._answer


def in_background(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread
