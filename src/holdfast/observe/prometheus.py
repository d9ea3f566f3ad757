"""Metrics for Prometheus, by prometheus_client. `holdfast observe alerts` and `… grafana` print what goes with them.

>>> import holdfast
>>> from prometheus_client import REGISTRY
>>> with holdfast.connect("memory://", observe=["prometheus"]) as locks, locks.lock("invoice:42"):
...     labels = {"lock_system": "memory", "lock_kind": "mutex", "lock_name": "invoice:{n}"}
...     REGISTRY.get_sample_value("lock_held", labels)
1.0

Labels: `lock_system`, `lock_kind`, `lock_name` (a template), `outcome` where there is one. Under several processes of one
server (PROMETHEUS_MULTIPROC_DIR) all of them are added up, but for the two ages, which are only known to their process.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections import Counter as Counted
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric

from ..events import Event
from . import Subscribable
from .book import BUCKETS, Exporter, Hold, Labels, Meters, Wait
from .naming import LIMIT, template

ENOUGH = 256  # put aside, before they are counted without being asked for
_LABELS = ("lock_system", "lock_kind", "lock_name")


class Prometheus(Exporter["_Meters"]):
    """`name` makes a template of a lock's name, `limit` is how many are told apart, `registry` one of your own."""

    def __init__(
        self,
        name: Callable[[str], str] = template,
        limit: int = LIMIT,
        registry: CollectorRegistry = REGISTRY,
    ) -> None:
        super().__init__(name, limit)
        # Who holds and waits is in the book anyway; where several processes are added up, a file must be told each time.
        self.counted_at_scrape = not _several_processes()

        def histogram(metric: str, what: str, *labels: str) -> _Histogram:
            return _Histogram(metric, what, (*_LABELS, *labels), buckets=BUCKETS, registry=registry)

        def counter(metric: str, what: str, *labels: str) -> Counter:
            return Counter(metric, what, (*_LABELS, *labels), registry=registry)

        def gauge(metric: str, what: str) -> Gauge:
            return Gauge(metric, what, _LABELS, registry=registry, multiprocess_mode="livesum")

        self.acquire = histogram("lock_acquire_duration_seconds", "The whole of an acquire, by its outcome", "outcome")
        self.wait = histogram("lock_wait_duration_seconds", "Time in line, of those who had to wait")
        self.hold = histogram("lock_hold_duration_seconds", "From entering to leaving, by how it ended", "outcome")
        self.held = gauge("lock_held", "Held by this process now")
        self.waiting = gauge("lock_waiting", "Waited for by this process now")
        self.oldest_hold = gauge("lock_oldest_hold_seconds", "How long the oldest of those held has been held")
        self.oldest_wait = gauge("lock_oldest_wait_seconds", "How long the oldest of those who wait has waited")
        self.contentions = counter("lock_contentions", "Acquires that had to wait")
        self.renewals = counter("lock_renewals", "Renewals: renewed, late (a third of the ttl left), failed", "outcome")
        self.margin = histogram(
            "lock_renewal_margin_seconds", "What was left of a lease when its renewal was confirmed"
        )
        self.losses = counter("lock_losses", "Locks lost while they were held")
        self.release_failures = counter("lock_release_failures", "Releases that the store never answered")
        self.store_errors = counter("lock_store_errors", "Conversations with the store that failed", "operation")
        self.refusals = Counter(
            "lock_fence_refusals", "Stale tokens that storage refused", ("lock_name",), registry=registry
        )

    def make(self, labels: Labels) -> _Meters:
        return _Meters(self, labels)

    def refused(self, name: str) -> None:
        self.refusals.labels(name).inc()

    def forked(self) -> None:
        super().forked()
        if not self.counted_at_scrape:  # by now the child's own files are written to
            for meters in self._by_labels.values():
                meters.held.set(0)
                meters.waiting.set(0)


def _several_processes() -> bool:
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ


class _Histogram(Histogram):
    """One that is told much more often than it is read: what it is told is put aside, and counted when it is read."""

    _asides: tuple[_Aside, ...] = ()

    def often(self, *labels: str) -> Callable[[float], None]:
        child = self.labels(*labels)
        if _several_processes():  # others read it, from a file
            return child.observe
        aside = _Aside(child)
        self._asides = (*self._asides, aside)
        return aside

    def collect(self) -> Iterable[Metric]:
        for aside in self._asides:
            aside.count()
        return super().collect()


class _Aside:
    __slots__ = ("_child", "_values")

    def __init__(self, child: Histogram) -> None:
        self._child = child
        self._values: deque[float] = deque()

    def __call__(self, value: float) -> None:
        self._values.append(value)
        if len(self._values) >= ENOUGH:
            self.count()

    def count(self) -> None:
        """All at once: a bucket is told how many have come, rather than of each. Each value is popped once, by one thread."""
        child: Any = self._child
        bounds, total = child._upper_bounds, 0.0
        counts: Counted[int] = Counted()
        while self._values:
            try:
                value = self._values.popleft()
            except IndexError:  # another thread was faster
                break
            total += value
            counts[bisect_left(bounds, value)] += 1
        if counts:
            child._sum.inc(total)
            for at, count in counts.items():
                child._buckets[at].inc(count)


class _Meters(Meters):
    """The children of one set of labels. Those that an alert reads are there from the start, at 0: see `increase()`."""

    def __init__(self, of: Prometheus, labels: Labels) -> None:
        super().__init__()
        self._of = of
        self._labels = labels
        self.held = of.held.labels(*labels)
        self.waiting = of.waiting.labels(*labels)
        self._files = not of.counted_at_scrape
        if of.counted_at_scrape:
            self.held.set_function(lambda: len(self.holds))
            self.waiting.set_function(lambda: len(self.line))
        of.oldest_hold.labels(*labels).set_function(self.oldest_hold)
        of.oldest_wait.labels(*labels).set_function(self.oldest_wait)
        self._acquired = of.acquire.often(*labels, "acquired")
        self._released = of.hold.often(*labels, "released")
        self._waited = of.wait.labels(*labels)
        self._contentions = of.contentions.labels(*labels)
        self._renewals = {outcome: of.renewals.labels(*labels, outcome) for outcome in ("renewed", "late", "failed")}
        self._margin = of.margin.labels(*labels)
        self._losses = of.losses.labels(*labels)
        self._release_failures = of.release_failures.labels(*labels)
        for operation in ("claim", "renew", "release"):
            of.store_errors.labels(*labels, operation)

    def joined(self, event: Event, wait: Wait) -> None:
        if self._files:
            self.waiting.inc()
        self._contentions.inc()

    def _over(self, event: Event, wait: Wait | None) -> None:
        if wait is not None:
            if self._files:
                self.waiting.dec()
            self._waited.observe(event.seconds)

    def entered(self, event: Event, hold: Hold, wait: Wait | None) -> None:
        self._acquired(event.took)
        if self._files:
            self.held.inc()
        if wait is not None:
            self._over(event, wait)

    def gave_up(self, event: Event, outcome: str, wait: Wait | None) -> None:
        self._of.acquire.labels(*self._labels, outcome).observe(event.seconds)
        self._over(event, wait)

    def left(self, hold: Hold, seconds: float, outcome: str) -> None:
        if self._files:
            self.held.dec()
        if outcome == "released":
            self._released(seconds)
        else:
            self._of.hold.labels(*self._labels, outcome).observe(seconds)

    def renewed(self, event: Event, outcome: str) -> None:
        self._renewals[outcome].inc()
        if outcome != "failed":
            self._margin.observe(event.seconds)

    def lost(self, event: Event) -> None:
        self._losses.inc()

    def release_failed(self, event: Event) -> None:
        self._release_failures.inc()

    def store_failed(self, operation: str) -> None:
        self._of.store_errors.labels(*self._labels, operation).inc()


_default: list[Any] = []


def observe(locks: Subscribable) -> Callable[[], None]:
    """What `observe=["prometheus"]` means: the default registry, and one exporter for all connections."""
    if not _default:
        _default.append(Prometheus())
    stop: Callable[[], None] = _default[0](locks)
    return stop
