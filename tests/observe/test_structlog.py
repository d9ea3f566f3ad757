from __future__ import annotations

import io
import json

import pytest

import holdfast
from holdfast.observe.structlog import observe

structlog = pytest.importorskip("structlog", reason="the main environment has it")


def told() -> tuple[io.StringIO, object]:
    """A logger of one's own, as an application configures it: JSON, a line an event."""
    out = io.StringIO()
    processors = [structlog.stdlib.add_log_level, structlog.processors.JSONRenderer()]
    return out, structlog.wrap_logger(structlog.PrintLogger(out), processors=processors)


def test_every_event_is_told_with_what_is_known_of_it() -> None:
    out, logger = told()
    with holdfast.connect("memory://") as locks:
        stop = observe(locks, logger)
        with locks.lock("invoice:42") as lease:
            token = lease.token
        stop()
        locks.lock("after").acquire().release()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["acquired", "released"]
    assert {line["level"] for line in lines} == {"debug"}
    assert {line["lock"] for line in lines} == {"invoice:42"}
    assert {line["token"] for line in lines} == {token}
    assert all(line["owner"] and line["seconds"] >= 0 for line in lines)


def test_what_is_alarming_has_its_level_and_a_hostile_name_is_one_line() -> None:
    out, logger = told()
    with holdfast.connect("memory://") as locks:
        observe(locks, logger)
        name = "x\n\x1b[2Jy"
        lease = locks.lock(name).acquire()
        assert locks.force_release(name, token=lease.token)
    evicted = next(line for line in map(json.loads, out.getvalue().splitlines()) if line["event"] == "evicted")
    assert evicted["level"] == "warning"
    assert "\n" not in evicted["lock"]
    assert "\x1b" not in evicted["lock"]


def test_it_is_asked_for_by_name() -> None:
    connected = holdfast.connect("memory://", observe=["structlog"])
    with structlog.testing.capture_logs() as lines, connected as locks, locks.lock("x"):
        pass
    assert [line["event"] for line in lines] == ["acquired", "released"]
