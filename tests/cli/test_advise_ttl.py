"""`holdfast advise ttl`: from a real exporter, and from histories."""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import holdfast
from holdfast.advice.observed import Observed, Spread, observed
from holdfast.advice.ttl import Sizing, size
from holdfast.cli import main
from holdfast.dashboard.history import History
from holdfast.errors import Misuse, Unavailable
from holdfast.events import LOST, RENEWED, Event, Hook
from holdfast.observe.changes import Change
from holdfast.observe.prometheus import Prometheus
from holdfast.testing.ports import LOOPBACK

from ..security.rogue import rogue


class Process:
    """One that is observed: real events, told by hand."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        exporter = Prometheus(registry=self.registry)
        self._locks = holdfast.connect("memory://", observe=[exporter])
        self._hook = Hook("memory")
        self._end = exporter(self._hook)

    def hold(self, name: str, times: int = 1) -> None:
        for _ in range(times):
            with self._locks.lock(name):
                pass

    def renew(self, name: str, *margins: float, ttl: float) -> None:
        for left in margins:
            self._tell(Event(RENEWED, name, "me", 7, left, ttl=ttl, lock="mutex", system="memory"))

    def lose(self, name: str) -> None:
        self._tell(Event(LOST, name, "me", 7, 1.0, lock="mutex", system="memory"))

    def _tell(self, event: Event) -> None:
        for subscriber in self._hook.by_kind[event.kind]:
            subscriber(event)

    def metrics(self) -> str:
        return generate_latest(self.registry).decode()

    def close(self) -> None:
        self._end()
        self._locks.close()


@pytest.fixture
def process() -> Iterator[Process]:
    one = Process()
    yield one
    one.close()


def _sized(process: Process, folder: Path, name: str, ttl: float | None = None) -> Sizing:
    (folder / "metrics").write_text(process.metrics())
    return size(observed(name, str(folder / "metrics")), ttl)


def test_renewals_in_time_leave_the_ttl_as_it_is(process: Process, tmp_path: Path) -> None:
    """A margin is known to its bucket only, (3, 10]; that none was late is known exactly, and is enough."""
    process.hold("invoice:42", 3)
    process.renew("invoice:42", *[6.65] * 50, ttl=10.0)
    sizing = _sized(process, tmp_path, "invoice:42", 10.0)
    assert sizing.delay == pytest.approx(10 / 3)
    assert sizing.ttl_renewed == 10.0
    assert "10 s / 3 = 3.33 s" in " ".join(sizing.sentences)
    assert "10 s is right (3 * 3.33 s = 10 s)" in " ".join(sizing.sentences)


def test_late_renewals_ask_for_a_longer_ttl_by_arithmetic(process: Process, tmp_path: Path) -> None:
    process.renew("report", *[19.9] * 50, 5.0, ttl=30.0)  # 5 s: more than 3, says its bucket
    sizing = _sized(process, tmp_path, "report", 30.0)
    assert sizing.delay == pytest.approx(17.0)
    assert sizing.ttl_renewed == 51.0
    told = " ".join(sizing.sentences)
    assert "1 of them late" in told
    assert "20 s - 3 s = 17 s" in told
    assert "30 s is too short. Take 51 s (3 * 17 s = 51 s)" in told


def test_a_long_ttl_that_nobody_needs_is_told(process: Process, tmp_path: Path) -> None:
    process.renew("x", *[39.9] * 50, ttl=60.0)
    sizing = _sized(process, tmp_path, "x", 60.0)
    assert sizing.ttl_renewed == 30.0
    assert "30 s would do" in " ".join(sizing.sentences)


def test_a_loss_says_to_look_for_its_reason_first(process: Process, tmp_path: Path) -> None:
    process.renew("x", *[6.6] * 50, ttl=10.0)
    process.lose("x")
    sizing = _sized(process, tmp_path, "x", 10.0)
    assert sizing.ttl_renewed == 30.0
    assert "find out first why" in " ".join(sizing.sentences)


def test_a_ttl_that_was_not_said_is_estimated_and_that_is_said(process: Process, tmp_path: Path) -> None:
    process.renew("x", *[19.95] * 50, ttl=30.0)
    sizing = _sized(process, tmp_path, "x")
    assert (sizing.ttl, sizing.estimated) == (30.0, True)
    assert "estimated" in " ".join(sizing.sentences)
    assert not _sized(process, tmp_path, "x", 30.0).estimated


def test_few_renewals_are_called_few_and_none_are_no_reason(process: Process, tmp_path: Path) -> None:
    process.hold("x")
    told = " ".join(_sized(process, tmp_path, "x", 30.0).sentences)
    assert (
        "No renewal was seen. If it is renewed" in told
    )  # a lease that is not renewed shows none, however long it is held
    process.renew("x", 19.0, ttl=30.0)
    assert "from 1 renewal only" in " ".join(_sized(process, tmp_path, "x", 30.0).sentences)


def test_what_is_not_renewed_has_twice_its_longest_hold() -> None:
    holds = Spread.of([0.5] * 5000 + [40.0] * 4)
    assert size(Observed("x", "here", holds)).ttl_unrenewed == 1.0  # 99.9 % of them: four of five thousand are fewer
    assert size(Observed("x", "here", Spread.of([0.5, 12.0]))).ttl_unrenewed == 24.0
    beyond = Spread((600.0, float("inf")), (1.0, 2.0), 5000.0)
    sizing = size(Observed("x", "here", beyond))
    assert sizing.ttl_unrenewed is None
    assert "no ttl can be advised" in " ".join(sizing.sentences)


def test_one_name_is_not_mixed_with_another_and_ids_are_one_name(process: Process, tmp_path: Path) -> None:
    process.hold("invoice:1", 2)
    process.hold("invoice:2", 3)
    process.hold('odd "name"\\ \n', 4)
    (tmp_path / "metrics").write_text(process.metrics())
    assert observed("invoice:7", str(tmp_path / "metrics")).holds.number == 5
    assert observed("invoice:{n}", str(tmp_path / "metrics")).holds.number == 5
    assert observed('odd "name"\\ \n', str(tmp_path / "metrics")).holds.number == 4
    assert observed("invoice", str(tmp_path / "metrics")).holds.number == 0


def test_an_exporter_is_asked_and_one_that_is_away_is_named_without_its_password(
    process: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(process.metrics().encode())

        def log_message(self, *_: object) -> None: ...

    process.hold("x", 2)
    process.renew("x", *[19.95] * 50, ttl=30.0)
    with HTTPServer((LOOPBACK, 0), Exporter) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        assert main(["advise", "ttl", "x", "--from", f"http://{LOOPBACK}:{server.server_port}/metrics"]) == 0
        assert "2 holds seen to their end" in capsys.readouterr().out
        assert main(["advise", "ttl", "nobody's", "--from", f"http://{LOOPBACK}:{server.server_port}/metrics"]) == 1
        assert "Nothing is known of nobody's" in capsys.readouterr().err
        server.shutdown()
        thread.join()
    assert main(["advise", "ttl", "x", "--from", f"http://me:sesame@{LOOPBACK}:1/metrics"]) == 125
    said = capsys.readouterr().err
    assert "does not answer" in said
    assert "sesame" not in said


def test_histories_are_read_as_the_dashboard_keeps_them_and_as_json_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "history.db"
    history = History(str(kept))
    some = [Change("over", "x", "me", int(seconds), seconds) for seconds in (1.0, 2.0, 12.0)]
    history.add("redis", [*some, Change("over", "y", "me", 7, 99.0), Change("acquired", "x", "me", 8, 50.0)])
    lines = tmp_path / "history.jsonl"
    lines.write_text("".join(f"{json.dumps(event)}\n" for event in history) + "half a li")
    history.close()
    for source in (kept, lines):
        assert main(["advise", "ttl", "x", "--from", str(source), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["holds"], told["ttl_unrenewed"], told["ttl_renewed"]) == (3, 24.0, None)


def test_of_a_hold_that_was_looked_at_now_and_then_the_longest_counts_that_it_can_have_been(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look each ten seconds sees one of fourteen for the last time when it is two seconds old: not to be sized by that."""
    kept = tmp_path / "history.db"
    history = History(str(kept))
    for at, change in ((1000.0, Change("acquired", "x", "me", 7, 2.0)), (1012.0, Change("over", "x", "me", 7, 2.0))):
        monkeypatch.setattr("holdfast.dashboard.history.time.time", lambda at=at: at)
        history.add("redis", [change])
        history.add(
            "redis 2", [change._replace(token=8)] if change.event == "over" else []
        )  # whose beginning nobody saw
    lines, watched = tmp_path / "history.jsonl", tmp_path / "watched.jsonl"
    lines.write_text("".join(f"{json.dumps(event)}\n" for event in history))
    history.close()
    seen = [("1970-01-01T00:16:40Z", "acquired", 2.0), ("1970-01-01T00:16:52Z", "over", 2.0), ("never", "over", 2.0)]
    watched.write_text(
        "".join(
            json.dumps(
                {"at": at, "event": event, "name": "x", "owner": "me", "token": 7, "seconds": seconds, "detail": ""}
            )
            + "\n"
            for at, event, seconds in seen
        )
    )
    for source, longest in ((kept, 14.0), (lines, 14.0), (watched, 15.0)):
        assert main(["advise", "ttl", "x", "--from", str(source), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["holds"], told["ttl_unrenewed"]) == (2, 2 * longest)


def test_numbers_that_are_none_are_passed_over(tmp_path: Path) -> None:
    """An exporter, or a file, may say anything."""
    metric = 'lock_hold_duration_seconds_bucket{lock_name="x",le="%s"} %s\n'
    (tmp_path / "metrics").write_text(
        "".join(
            metric % one for one in (("1", "3"), ("1", "NaN"), ("1", "-8"), ("much", "9"), ("+Inf", "3"), ("NaN", "4"))
        )
    )
    sizing = size(observed("x", str(tmp_path / "metrics")))
    assert (sizing.ttl_unrenewed, observed("x", str(tmp_path / "metrics")).holds.number) == (2.0, 3)
    lines = [
        f'{{"event": "over", "name": "x", "seconds": {said}}}\n' for said in ("2.5", "NaN", "-1", "Infinity", "true")
    ]
    (tmp_path / "history").write_text("".join(lines))
    assert size(observed("x", str(tmp_path / "history"))).ttl_unrenewed == 5.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ttl"], "which lock?"),
        (["ttl", "x"], "from what?"),
        (["nonsense"], "advise what?"),
        (["ttl", "x", "y", "--from", "f"], "too many words"),
        (["ttl", "x", "--from", "/no/such/file"], "cannot be read"),
    ],
)
def test_what_makes_no_sense_is_told(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *words]) == 125
    assert said in capsys.readouterr().err


# ---- what somebody else wrote


def test_a_password_in_the_address_of_an_exporter_is_not_shown() -> None:
    for url in ("http://user:s3cr3t@127.0.0.1/metrics", "http://user:s3cr3t#x@127.0.0.1/metrics"):
        with pytest.raises(Unavailable) as refused:
            observed("x", url)
        assert "s3cr3t" not in str(refused.value)
        assert "s3c" not in "".join(traceback.format_exception(refused.value)).replace(url, "")


def dribbled(begins: bytes) -> None:
    """A letter now and then, of its headers or of its metrics, for six seconds: no single one is late."""

    def dribble(line: socket.socket) -> None:
        line.sendall(begins)
        for _ in range(120):
            line.sendall(b"#")
            time.sleep(0.05)

    started = time.monotonic()
    with pytest.MonkeyPatch.context() as patched, rogue(dribble) as address:
        patched.setattr("holdfast.advice.observed._PATIENCE", 0.5)
        with pytest.raises(Unavailable, match="not in"):
            observed("x", f"http://{address}/metrics")
    assert time.monotonic() - started < 5


@pytest.mark.timeout(30)
@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"])
def test_an_exporter_that_comes_to_no_end_is_not_waited_for(begins: bytes) -> None:
    dribbled(begins)


def test_metrics_and_histories_of_others_end_and_are_looked_at_value_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.advice.observed._PATIENCE", 0.3)
    metrics, lines = tmp_path / "metrics", tmp_path / "lines"
    metrics.write_text("m{" + "a" * 1_000_000 + "} 1\n")  # quadratic, it would take an hour
    assert observed("x", str(metrics)).holds.number == 0
    lines.write_text('{"event": "over", "name": "x", "seconds": 1}\n' + "[" * 200_000 + "\n")
    assert observed("x", str(lines)).holds.number == 1
    rest = "1 AS id, 1 AS at, 7 AS token, 's' AS store"
    numbers = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT {rest}, i AS seconds, 'over' AS event"  # noqa: S608
    )
    for kind, sql in {
        "words": f"CREATE TABLE events AS SELECT {rest}, 'long' AS seconds, 'over' AS event, 'x' AS name "
        "UNION ALL SELECT 2, 'long', 8, x'00', 2, 'over', 'x'",
        "endless": f"CREATE VIEW events AS {numbers}, 'x' AS name FROM n WHERE i < 0",
    }.items():
        with closing(sqlite3.connect(tmp_path / kind)) as file:
            file.execute(sql)
            file.commit()
    assert observed("x", str(tmp_path / "words")).holds.number == 1
    with pytest.raises(Misuse, match="interrupted"):
        observed("x", str(tmp_path / "endless"))
