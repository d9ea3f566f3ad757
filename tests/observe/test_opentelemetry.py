"""What OpenTelemetry is told: metrics by their names, and spans that tell a wait from a hold."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode

import holdfast
from holdfast import Locks, Misuse, NotAcquired
from holdfast.events import Hook
from holdfast.observe.opentelemetry import OpenTelemetry
from holdfast.testing.conformance import tamper
from holdfast.testing.manual import Manual, connect


class Collected:
    def __init__(self, spans: bool = True, context: bool = False) -> None:
        self._reader = InMemoryMetricReader()
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._reader])
        self.exporter = OpenTelemetry(
            spans=spans, context=context, tracer_provider=self.tracers, meter_provider=self.meters
        )

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


# ---- between processes


class Traced:
    """A process of its own, as far as spans are concerned: what it holds, the other can only know by the store."""

    def __init__(self, url: str, context: bool = True) -> None:
        self.seen = Collected(context=context)
        self.locks = holdfast.connect(url, observe=[self.seen.exporter])
        self.span = self.seen.tracers.get_tracer("test").start_as_current_span

    def wait_for(self, name: str, until: Callable[[], object]) -> ReadableSpan:
        """The span of an acquire that had to wait until `until` was called."""
        waiting = threading.Event()
        self.locks.subscribe(lambda event: waiting.set(), ["waiting"])

        def ask() -> None:
            with self.span("request"):
                self.locks.lock(name).acquire(timeout=60).release()

        thread = threading.Thread(target=ask)
        thread.start()
        assert waiting.wait(60)
        until()
        thread.join(60)
        return self.seen.spans("lock acquire")[-1]

    def close(self) -> None:
        self.locks.close()
        self.seen.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Traced, Traced]]:
    url = f"sqlite:///{tmp_path}/locks.db"
    both = Traced(url), Traced(url)
    yield both
    for one in both:
        one.close()


def context_of(span: ReadableSpan) -> SpanContext:
    found: SpanContext | None = span.context
    assert found is not None
    return found


def test_a_wait_links_to_a_holder_in_another_process(pair: tuple[Traced, Traced]) -> None:
    holder, waiter = pair
    with holder.span("job"):
        lease = holder.locks.lock("x").acquire()
    waited = waiter.wait_for("x", lease.release)
    (job,) = holder.seen.spans("job")
    (link,) = waited.links
    assert (link.context.trace_id, link.context.span_id) == (context_of(job).trace_id, context_of(job).span_id)
    assert link.context.is_remote


def test_only_a_traceparent_is_written_and_only_if_it_was_asked_for(
    pair: tuple[Traced, Traced], tmp_path: Path
) -> None:
    holder, _ = pair
    with holder.span("job"), holder.locks.lock("x"):
        (inside,) = holder.locks.inspect("x").holders
        assert re.fullmatch(r"traceparent=00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", inside.note)
    with holder.locks.lock("x"):  # no span, no context
        assert holder.locks.inspect("x").holders[0].note == ""
    silent = Traced(f"sqlite:///{tmp_path}/locks.db", context=False)
    with silent.span("job"), silent.locks.lock("x"):
        assert silent.locks.inspect("x").holders[0].note == ""
    silent.close()


def test_a_leaders_address_and_what_is_kept_have_their_own_notes(pair: tuple[Traced, Traced]) -> None:
    one, _ = pair
    with one.span("job"):
        with one.locks.election("boss").lead(timeout=10):
            leader = one.locks.election("boss").leader()
            assert leader is not None
            assert leader.address == ""
        with one.locks.lock("x", keep=5):
            assert one.locks.inspect("x").holders[0].note == "kept for 5 s after use"
        with one.locks.rwlock("shelf").write():
            assert one.locks.inspect("shelf").holders[0].note.startswith("traceparent=")


@pytest.mark.parametrize(
    "note", ["traceparent=", "traceparent=00-xyz-1-01", "00-" + "1" * 32, "traceparent=ff-" + "0" * 50]
)
def test_what_is_no_context_is_no_link(note: str, pair: tuple[Traced, Traced], monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody who may write to the store may have written it."""
    holder, waiter = pair
    holder.locks._engine.hook.carry = lambda: note
    lease = holder.locks.lock("x").acquire()
    assert holder.locks.inspect("x").holders[0].note == note
    assert not waiter.wait_for("x", lease.release).links


@pytest.mark.parametrize("trouble", ["raises", "prints", "is long"])
def test_a_context_that_cannot_be_had_is_no_reason_to_get_no_lock(trouble: str, pair: tuple[Traced, Traced]) -> None:
    one, _ = pair

    def carry() -> str:
        if trouble == "raises":
            raise RuntimeError("no context")
        return "\x1b[2J" if trouble == "prints" else "x" * 5000

    one.locks._engine.hook.carry = carry
    with one.locks.lock("x"):
        assert one.locks.inspect("x").holders[0].note == ""


def test_a_look_that_fails_costs_the_link_and_not_the_lock(pair: tuple[Traced, Traced]) -> None:
    holder, waiter = pair
    with holder.span("job"):
        lease = holder.locks.lock("x").acquire()
    tamper(waiter.locks).fail("inspect", times=10**6)
    waited = waiter.wait_for("x", lease.release)
    assert not waited.links
    assert token(waited) > lease.token


def test_it_ends_when_it_is_told_to_and_is_asked_for_when_one_connects(tmp_path: Path) -> None:
    seen = Collected(context=True)
    with pytest.raises(Misuse, match="when one connects"), holdfast.connect("memory://") as locks:
        seen.exporter(locks)
    with pytest.raises(Misuse, match="spans=False makes none"):
        OpenTelemetry(spans=False, context=True)
    hook = Hook("memory")
    stop = seen.exporter(hook)
    assert hook.carry is not None
    stop()
    assert hook.carry is None
    seen.close()
