"""`observe=` and HOLDFAST_OBSERVE: who is asked for comes, nobody else is imported, and nobody breaks a lock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Misuse
from holdfast.events import KINDS, Event
from holdfast.observe import Subscribable, log_events

OPTIONAL = ("prometheus_client", "opentelemetry", "structlog", "logging")


def loaded(code: str, **environ: str) -> str:
    script = f"import sys, holdfast\n{code}\nprint(*(one for one in {OPTIONAL!r} if one in sys.modules))"
    run = [sys.executable, "-c", script]
    environ = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), **environ}  # the holdfast that is tested, not another
    return subprocess.run(run, env=environ, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_nothing_is_imported_unless_asked_for() -> None:
    assert loaded("holdfast.connect('memory://')") == ""


def test_who_is_named_by_the_environment_is_imported_and_told() -> None:
    code = """
with holdfast.connect("memory://") as locks, locks.lock("x"):
    from prometheus_client import generate_latest
    assert b'lock_held{lock_kind="mutex",lock_name="x",lock_system="memory"} 1.0' in generate_latest()
"""
    assert "prometheus_client" in loaded(code, HOLDFAST_OBSERVE=" prometheus , logging,")


def test_an_empty_list_means_nobody_whatever_the_environment_says() -> None:
    assert loaded("holdfast.connect('memory://', observe=[])", HOLDFAST_OBSERVE="prometheus") == ""


@pytest.mark.parametrize("by", ["observe=['prometheus', 'prometheus']", ""])
def test_who_is_named_twice_is_told_once(by: str) -> None:
    code = f"""
with holdfast.connect("memory://", {by}) as locks, locks.lock("x"):
    from prometheus_client import generate_latest
    assert b'lock_held{{lock_kind="mutex",lock_name="x",lock_system="memory"}} 1.0' in generate_latest()
"""
    assert "prometheus_client" in loaded(code, HOLDFAST_OBSERVE="prometheus,prometheus")


def test_two_connections_share_what_is_meant_by_a_name() -> None:
    code = "[holdfast.connect('memory://', observe=['prometheus', 'opentelemetry']) for _ in range(2)]"
    assert loaded(code).startswith("prometheus_client opentelemetry")


@pytest.mark.parametrize(
    ("observe", "match"),
    [
        (["prometeus"], "there are: logging, structlog, prometheus, opentelemetry"),
        ("logging", "takes a list"),
        ([3], "to call"),
    ],
)
def test_a_mistake_is_told_before_anything_is_opened(observe: list[str], match: str) -> None:
    with pytest.raises(Misuse, match=match):
        holdfast.connect("redis://127.0.0.1:1", observe=observe)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "holdfast.observe.prometheus", raising=False)
    with pytest.raises(Misuse, match=r"pip install 'holdfast\[prometheus\]'"):
        holdfast.connect("memory://", observe=["prometheus"])


def test_an_observer_of_ones_own_is_called_with_what_can_be_subscribed_to() -> None:
    told: list[Event] = []

    def mine(locks: Subscribable) -> Callable[[], None]:
        return locks.subscribe(told.append, KINDS)

    with holdfast.connect("memory://", observe=[mine, log_events]) as locks, locks.semaphore("gpu", 4):
        pass
    assert [(event.kind, event.lock, event.system) for event in told] == [
        ("acquired", "semaphore", "memory"),
        ("released", "semaphore", "memory"),
    ]


async def _async_life(told: list[Event]) -> None:
    async with holdfast.aio.connect("memory://", observe=[lambda locks: locks.subscribe(told.append, KINDS)]) as locks:
        async with locks.rwlock("catalog").read():
            pass
        async with locks.rwlock("catalog").write():
            pass


def test_asyncio_takes_the_same_observers() -> None:
    import asyncio

    told: list[Event] = []
    asyncio.run(_async_life(told))
    assert [event.lock for event in told] == ["read", "read", "write", "write"]
