"""What the tests of faults share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from holdfast.claim import Claim, new_holder
from holdfast.sync import Locks

SOON = 10.0
Connect = Callable[..., Locks]


def until(condition: Callable[[], bool], within: float = SOON) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, f"did not come true within {within:g} s"
        time.sleep(0.005)


def claim_of(name: str, ttl: float = 30.0) -> Claim:
    return Claim(name, new_holder(), "somebody", ttl)


def in_background(action: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread
