"""What it costs to be seen."""

from __future__ import annotations

import statistics
import sys
import time

from prometheus_client import CollectorRegistry

import holdfast
from holdfast.observe import Observers
from holdfast.observe.prometheus import Prometheus

from .measure import Verdict, report


def beyond(observers: Observers, names: int = 1) -> float:
    """Microseconds that an acquire and a release take longer with these; the memory store, so that nothing hides it."""
    seen = holdfast.connect("memory://seen", observe=observers)
    unseen = holdfast.connect("memory://unseen", observe=[])
    tasks = {
        "seen": [seen.lock(f"invoice:{n}") for n in range(names)],
        "unseen": [unseen.lock(f"invoice:{n}") for n in range(names)],
    }

    def use(which: str) -> None:
        for lock in tasks[which]:
            lock.acquire().release()

    beyond = []
    for _ in range(100):  # in turns, and of CPU: whoever else works on this machine is not part of the price
        taken = {}
        for which in tasks:
            start = time.thread_time()
            for _ in range(200 // names):
                use(which)
            taken[which] = time.thread_time() - start
        beyond.append(taken["seen"] - taken["unseen"])
    return 1e6 * statistics.median(beyond) / 200


def main() -> bool:
    prometheus = Prometheus(registry=CollectorRegistry())
    return report(
        "Observing",
        [
            Verdict("prometheus: acquire + release, beyond what they take unseen", beyond([prometheus]), 10, "µs"),
            Verdict("prometheus: the same, over 100 names", beyond([prometheus], 100), 10, "µs"),
        ],
    )


if __name__ == "__main__":
    sys.exit(not main())
