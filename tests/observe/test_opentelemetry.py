"""What OpenTelemetry is told: metrics by their names, and spans that tell a wait from a hold."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import holdfast
from holdfast import Locks, NotAcquired
from holdfast.observe.opentelemetry import OpenTelemetry
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual, connect


class Collected:
    def __init__(self, spans: bool = True) -> None:
        self._reader = InMemoryMetricReader()
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader])
        self.exporter = OpenTelemetry(spans=spans, tracer_provider=self.tracers, meter_provider=self.meters)

    def spans(self, name: str = "") -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if not name or span.name == name]

    def points(self, metric: str) -> list[Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]

    def close(self) -> None:
        self.meters.shutdown()
        self.tracers.shutdown()


@pytest.fixture
def collected() -> Iterator[Collected]:
    made = Collected()
    yield made
    made.close()


@pytest.fixture
def driver() -> Manual:
    return Manual()


@pytest.fixture
def locks(driver: Manual, collected: Collected) -> Locks:
    made = connect(driver)
    collected.exporter(made)
    return made


def token(span: ReadableSpan) -> int:
    found = (span.attributes or {})["lock.token"]
    assert isinstance(found, int)
    return found


MUTEX = {"lock.system": "memory", "lock.kind": "mutex", "lock.name": "invoice:{n}"}


def test_a_life_is_measured_under_the_names_of_the_convention(
    driver: Manual, locks: Locks, collected: Collected
) -> None:
    lease = locks.lock("invoice:42", ttl=30).acquire()
    (held,) = collected.points("lock.held")
    assert (held.value, dict(held.attributes)) == (1, MUTEX)
    driver.pass_time(15)
    lease.release()
    (held,) = collected.points("lock.held")
    assert held.value == 0
    (hold,) = collected.points("lock.hold.duration")
    assert hold.sum == pytest.approx(15)
    assert dict(hold.attributes) == {**MUTEX, "outcome": "released"}
    assert hold.explicit_bounds[0] == 1e-4
    assert hold.explicit_bounds[-1] == 600
    (renewals,) = collected.points("lock.renewals")
    assert renewals.attributes["outcome"] == "renewed"
    assert collected.points("lock.renewal.margin")[0].sum == pytest.approx(20, abs=0.1)


def test_trouble_is_counted(driver: Manual, locks: Locks, collected: Collected) -> None:
    hand = tamper(locks)
    lease = locks.lock("invoice:42", ttl=30).acquire()
    hand.fail("renew", times=10**6)
    driver.pass_time(31)
    assert not lease.held
    assert [point.value for point in collected.points("lock.losses")] == [1]
    assert collected.points("lock.store.errors")[0].attributes["operation"] == "renew"
    (hold,) = collected.spans("lock hold")
    assert hold.status.status_code is StatusCode.ERROR
    assert dict(hold.attributes or {})["outcome"] == "lost"


def test_a_wait_links_to_whoever_held_it_and_is_a_child_of_who_asked(collected: Collected) -> None:
    tracer = collected.tracers.get_tracer("test")
    with holdfast.connect("memory://", observe=[collected.exporter]) as locks:
        first = locks.lock("invoice:42").acquire()
        waiting = threading.Event()
        locks.subscribe(lambda event: waiting.set(), ["waiting"])

        def ask() -> None:
            with tracer.start_as_current_span("request"), locks.lock("invoice:42"):
                pass

        thread = threading.Thread(target=ask)
        thread.start()
        assert waiting.wait(60)
        first.release()
        thread.join(60)
    holds = sorted(collected.spans("lock hold"), key=token)
    acquires = sorted(collected.spans("lock acquire"), key=token)
    (request,) = collected.spans("request")
    waited = acquires[1]
    assert [event.name for event in waited.events] == ["waiting", "granted"]
    assert [link.context for link in waited.links] == [holds[0].context]
    assert waited.parent is not None
    assert request.context is not None
    assert waited.parent.span_id == request.context.span_id
    assert (waited.events[-1].attributes or {})["lock.token"] == token(holds[1])
    assert waited.start_time is not None
    assert waited.end_time is not None
    assert waited.start_time <= waited.events[0].timestamp <= waited.end_time
    assert not acquires[0].links


def test_who_did_not_get_it_has_a_span_that_says_so(locks: Locks, driver: Manual, collected: Collected) -> None:
    lease = locks.lock("x", ttl=600).acquire()
    other = connect(driver)
    collected.exporter(other)
    with pytest.raises(NotAcquired):
        other.lock("x").acquire(timeout=5)
    failed = collected.spans("lock acquire")[-1]
    assert failed.status.status_code is StatusCode.ERROR
    assert dict(failed.attributes or {})["outcome"] == "not_acquired"
    assert [point.value for point in collected.points("lock.waiting")] == [0]
    assert lease.held


def test_spans_can_be_left_out() -> None:
    made = Collected(spans=False)
    with holdfast.connect("memory://", observe=[made.exporter]) as locks, locks.lock("x"):
        pass
    assert not made.spans()
    assert made.points("lock.acquire.duration")
    made.close()


def test_without_an_sdk_nothing_happens_and_nothing_breaks() -> None:
    with holdfast.connect("memory://", observe=["opentelemetry"]) as locks, locks.lock("x") as lease:
        assert lease.held
