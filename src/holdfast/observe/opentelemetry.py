"""Metrics and spans for OpenTelemetry. Only its API is imported: without an SDK in the process, all of this does nothing.

    holdfast.connect(url, observe=["opentelemetry"])
    holdfast.connect(url, observe=[OpenTelemetry(tracer_provider=mine, meter_provider=mine)])

Spans: `lock acquire` is the whole of an acquire, with the events `waiting` and `granted` and a link to the `lock hold` of
whoever of this process held it when the waiting began; `lock hold` is from entering to leaving. Both are children of the
span that was current where the lock was asked for.

Between processes, if you want it: with `context=True` every claim carries the W3C traceparent of that span in its note, where all
who may look at the store can see it; whoever has to wait looks once, and its span links to those of the holders. Nothing else
of the context is written (no tracestate, no baggage). A leader's note is its address, and a grant that is kept has its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..claim import CARRIED
from ..errors import Misuse
from ..events import Event, Hook
from . import Subscribable
from .book import BUCKETS, Exporter, Hold, Labels, Meters, Wait
from .naming import LIMIT, template

SCOPE = "holdfast"
_NANO = 1_000_000_000
_PROPAGATOR = TraceContextTextMapPropagator()


class OpenTelemetry(Exporter["_Meters"]):
    """`spans=False` for metrics alone; `context=True` for links between processes. Providers of your own, or those that
    were set for the process."""

    def __init__(
        self,
        name: Callable[[str], str] = template,
        limit: int = LIMIT,
        *,
        spans: bool = True,
        context: bool = False,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        super().__init__(name, limit)
        if context and not spans:
            raise Misuse("context=True is for links between spans, and spans=False makes none: say one of them")
        self._context = context
        self.tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider) if spans else None
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)

        def histogram(metric: str, what: str) -> metrics.Histogram:
            return meter.create_histogram(metric, "s", what, explicit_bucket_boundaries_advisory=BUCKETS)

        def counter(metric: str, what: str) -> metrics.Counter:
            return meter.create_counter(metric, "1", what)

        self.acquire = histogram("lock.acquire.duration", "The whole of an acquire, by its outcome")
        self.wait = histogram("lock.wait.duration", "Time in line, of those who had to wait")
        self.hold = histogram("lock.hold.duration", "From entering to leaving, by how it ended")
        self.held = meter.create_up_down_counter("lock.held", "1", "Held by this process now")
        self.waiting = meter.create_up_down_counter("lock.waiting", "1", "Waited for by this process now")
        self.contentions = counter("lock.contentions", "Acquires that had to wait")
        self.renewals = counter("lock.renewals", "Renewals: renewed, late (a third of the ttl left), failed")
        self.margin = histogram("lock.renewal.margin", "What was left of a lease when its renewal was confirmed")
        self.losses = counter("lock.losses", "Locks lost while they were held")
        self.release_failures = counter("lock.release.failures", "Releases that the store never answered")
        self.store_errors = counter("lock.store.errors", "Conversations with the store that failed")
        self.refusals = counter("lock.fence.refusals", "Stale tokens that storage refused")
        ages = {"lock.oldest.hold": Meters.oldest_hold, "lock.oldest.wait": Meters.oldest_wait}
        for metric, age in ages.items():
            meter.create_observable_gauge(metric, [self._ages(age)], "s", "The age of the oldest, in this process")

    def __call__(self, locks: Subscribable) -> Callable[[], None]:
        if not self._context:
            return super().__call__(locks)
        if not isinstance(locks, Hook):
            raise Misuse(
                "context=True is asked for when one connects: connect(url, observe=[OpenTelemetry(context=True)])"
            )
        end = super().__call__(locks)
        locks.carry = _traceparent

        def stop() -> None:
            locks.carry = None
            end()

        return stop

    def _ages(self, age: Callable[[Meters], float]) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [Observation(age(one), one.attributes) for one in list(self._by_labels.values())]

    def make(self, labels: Labels) -> _Meters:
        return _Meters(self, labels)

    def refused(self, name: str) -> None:
        self.refusals.add(1, {"lock.name": name})


class _Meters(Meters):
    def __init__(self, of: OpenTelemetry, labels: Labels) -> None:
        super().__init__()
        self._of = of
        self.attributes = {"lock.system": labels.system, "lock.kind": labels.lock, "lock.name": labels.name}
        self._outcomes: dict[str, dict[str, str]] = {}

    def _with(self, outcome: str) -> dict[str, str]:
        found = self._outcomes.get(outcome)
        if found is None:
            found = self._outcomes[outcome] = {**self.attributes, "outcome": outcome}
        return found

    def joined(self, event: Event, wait: Wait) -> None:
        self._of.waiting.add(1, self.attributes)
        self._of.contentions.add(1, self.attributes)
        if self._of.tracer is not None:
            holders = [hold.kept for hold in list(self.holds) if hold.name == event.name and hold.kept is not None]
            contexts = [span.get_span_context() for span in holders]
            here = {context.trace_id for context in contexts}  # what is known better than by a note
            contexts += [context for context in _contexts(event.detail) if context.trace_id not in here]
            wait.kept = time.time_ns(), [Link(context) for context in contexts]

    def _over(self, event: Event, wait: Wait | None) -> None:
        if wait is not None:
            self._of.waiting.add(-1, self.attributes)
            self._of.wait.record(event.seconds, self.attributes)

    def entered(self, event: Event, hold: Hold, wait: Wait | None) -> None:
        self._of.acquire.record(event.took, self._with("acquired"))
        self._of.held.add(1, self.attributes)
        self._over(event, wait)
        if self._of.tracer is not None:
            now = time.time_ns()
            self._asked(event, "acquired", wait, now, event.took, event.token)
            hold.kept = self._of.tracer.start_span(
                "lock hold", kind=SpanKind.INTERNAL, attributes=self._span(event, event.token), start_time=now
            )

    def gave_up(self, event: Event, outcome: str, wait: Wait | None) -> None:
        self._of.acquire.record(event.seconds, self._with(outcome))
        self._over(event, wait)
        if self._of.tracer is not None:
            self._asked(event, outcome, wait, time.time_ns(), event.seconds, 0)

    def _asked(self, event: Event, outcome: str, wait: Wait | None, now: int, took: float, token: int) -> None:
        """Made when it is over, with the times that it had: an acquire that is under way needs no object kept for it."""
        assert self._of.tracer is not None
        joined, links = wait.kept if wait is not None and wait.kept else (0, [])
        start = now - int(took * _NANO)
        span = self._of.tracer.start_span(
            "lock acquire",
            kind=SpanKind.CLIENT,
            attributes={**self._span(event, token), "outcome": outcome},
            links=links,
            start_time=min(start, joined) if joined else start,  # we may be told of the end a little late
        )
        if joined:
            span.add_event("waiting", timestamp=joined)
        if token:
            span.add_event("granted", {"lock.token": token}, timestamp=now)
        else:
            span.set_status(StatusCode.ERROR, event.detail or outcome)
        span.end(now)

    def _span(self, event: Event, token: int) -> dict[str, Any]:
        """A span may say which lock it was: unlike a series, it is one of many anyway."""
        known: dict[str, Any] = {**self.attributes, "lock.resource": event.name, "lock.owner": event.owner}
        return {**known, "lock.token": token} if token else known

    def left(self, hold: Hold, seconds: float, outcome: str) -> None:
        self._of.held.add(-1, self.attributes)
        self._of.hold.record(seconds, self._with(outcome))
        if hold.kept is not None:
            hold.kept.set_attribute("outcome", outcome)
            if outcome != "released":
                hold.kept.set_status(StatusCode.ERROR, outcome)
            hold.kept.end()

    def renewed(self, event: Event, outcome: str) -> None:
        self._of.renewals.add(1, self._with(outcome))
        if outcome != "failed":
            self._of.margin.record(event.seconds, self.attributes)

    def lost(self, event: Event) -> None:
        self._of.losses.add(1, self.attributes)

    def release_failed(self, event: Event) -> None:
        self._of.release_failures.add(1, self.attributes)

    def store_failed(self, operation: str) -> None:
        self._of.store_errors.add(1, {**self.attributes, "operation": operation})


def _traceparent() -> str:
    """Of the span that is current where the lock is asked for; "" if there is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return f"{CARRIED}{carrier[CARRIED[:-1]]}" if carrier else ""


def _contexts(carried: str) -> list[trace.SpanContext]:
    """Of what stands in notes, which anybody may have written: only what is plainly a context."""
    found = []
    for word in carried.split():
        if word.startswith(CARRIED):
            said = _PROPAGATOR.extract({CARRIED[:-1]: word[len(CARRIED) :]})
            found.append(trace.get_current_span(said).get_span_context())
    return [context for context in found if context.is_valid]


_default: list[OpenTelemetry] = []


def observe(locks: Subscribable) -> Callable[[], None]:
    """What `observe=["opentelemetry"]` means: the providers of the process, and one exporter for all connections."""
    if not _default:
        _default.append(OpenTelemetry())
    return _default[0](locks)
