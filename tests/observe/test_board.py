"""The board and the alert rules, in a real Prometheus that scrapes a real process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.testing import servers
from holdfast.testing.servers.prometheus import Prometheus

pytestmark = pytest.mark.server
BUSY = Path(__file__).with_name("busy.py")
PATIENCE = 60.0


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    with servers.start("prometheus") as server:
        yield server


@pytest.fixture(scope="module")
def scraped(prometheus: Prometheus) -> Iterator[Prometheus]:
    command = [sys.executable, str(BUSY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as busy:
        assert busy.stdout is not None
        prometheus.scrape(int(busy.stdout.readline()))
        yield prometheus
        assert busy.stdin is not None
        busy.stdin.close()
        assert busy.wait(30) == 0


def printed(what: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["observe", what]) == 0
    return capsys.readouterr().out


def until(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE
    while not (result := found()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return result


def queries(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def as_grafana_sends_it(query: str) -> str:
    for variable, value in {"$__rate_interval": "8s", "$__range": "1m", "$system": ".*", "$name": ".*"}.items():
        query = query.replace(variable, value)
    return query


def test_every_query_of_the_board_returns_series(scraped: Prometheus, capsys: pytest.CaptureFixture[str]) -> None:
    board = json.loads(printed("grafana", capsys))
    wanted = queries(board)
    assert len(wanted) > 15
    empty = [query for query in wanted if not until(lambda query=query: scraped.query(as_grafana_sends_it(query)))]  # type: ignore[misc]
    assert not empty


def test_every_metric_is_on_the_board(scraped: Prometheus, capsys: pytest.CaptureFixture[str]) -> None:
    shown = " ".join(queries(json.loads(printed("grafana", capsys))))
    series = until(lambda: scraped.query('count by (__name__) ({__name__=~"lock_.*"})'))
    metrics = {one["metric"]["__name__"] for one in series}
    parts = ("_created", "_bucket", "_sum")  # of histograms, whose _count or _bucket is asked for
    assert [one for one in metrics if not one.endswith(parts) and one.removesuffix("_count") not in shown] == []


def test_panels_do_not_overlap_and_have_ids_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    panels = json.loads(printed("grafana", capsys))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_a_real_loss_and_a_real_refusal_fire_their_alerts(
    scraped: Prometheus, capsys: pytest.CaptureFixture[str]
) -> None:
    scraped.watch(printed("alerts", capsys))

    def fired() -> bool:
        firing = scraped.query('ALERTS{alertstate="firing"}')
        return {"HoldfastLockLost", "HoldfastFenceRefused"} <= {one["metric"]["alertname"] for one in firing}

    assert until(fired)


def test_a_real_process_tells_since_when_it_counts(scraped: Prometheus) -> None:
    for name in ("losses", "fence_refusals", "release_failures", "renewals"):
        query = f"lock_{name}_created > time() - 600"
        assert until(lambda query=query: scraped.query(query))  # type: ignore[misc]


LABELS = 'lock_system="redis",lock_kind="mutex",lock_name="report"'
# What is scraped each minute, and which alert fires of it, when; and a like one of which it does not.
FIRES = {
    "HoldfastLockLost": [f"lock_losses_total{{{LABELS}}}: 0 0 1 1 1 1"],
    "HoldfastFenceRefused": ['lock_fence_refusals_total{lock_name="report"}: _ _ 1 1 1 1'],
    "HoldfastRenewalLate": [f'lock_renewals_total{{{LABELS},outcome="late"}}: 0 0 1 1 1 1'],
    "HoldfastHeldUnusuallyLong": [
        f"lock_oldest_hold_seconds{{{LABELS}}}: 0 0 100 160 220 280",
        f'lock_hold_duration_seconds_bucket{{{LABELS},outcome="released",le="10.0"}}: 0 100 200 200 200 200',
        f'lock_hold_duration_seconds_bucket{{{LABELS},outcome="released",le="+Inf"}}: 0 100 200 200 200 200',
    ],
    "HoldfastWaiterStarves": [f"lock_oldest_wait_seconds{{{LABELS}}}: 240 300 360 420 480 540"],
    "HoldfastStoreErrors": [f'lock_store_errors_total{{{LABELS},operation="claim"}}: 0 0 20 40 60 80'],
    "HoldfastReleaseFailed": [f"lock_release_failures_total{{{LABELS}}}: 0 0 1 1 1 1"],
}
ELECTION = LABELS.replace("mutex", "election")
# A process that had just begun, and lost it before it was scraped for the first time.
FIRES_AT_ONCE = {
    "HoldfastLockLost": [f"lock_losses_total{{{LABELS}}}: _ _ 1 1 1 1"],
    "HoldfastRenewalLate": [f'lock_renewals_total{{{LABELS},outcome="failed"}}: _ _ 1 1 1 1'],
    "HoldfastReleaseFailed": [f"lock_release_failures_total{{{LABELS}}}: _ _ 1 1 1 1"],
}
QUIET = {
    "HoldfastLockLost": [f"lock_losses_total{{{LABELS}}}: 7x20"],
    "HoldfastFenceRefused": ['lock_fence_refusals_total{lock_name="report"}: 7x20'],
    "HoldfastRenewalLate": [
        f'lock_renewals_total{{{LABELS},outcome="renewed"}}: 0+10x20',
        f'lock_renewals_total{{{LABELS},outcome="late"}}: 7x20',
    ],
    "HoldfastReleaseFailed": [f"lock_release_failures_total{{{LABELS}}}: 7x20"],
    "HoldfastHeldUnusuallyLong": [
        f"lock_oldest_hold_seconds{{{LABELS}}}: 0 0 100 160 220 280",
        f'lock_hold_duration_seconds_bucket{{{LABELS},outcome="released",le="120.0"}}: 0 0 0 0 0 0',
        f'lock_hold_duration_seconds_bucket{{{LABELS},outcome="released",le="300.0"}}: 0 100 200 200 200 200',
        f'lock_hold_duration_seconds_bucket{{{LABELS},outcome="released",le="+Inf"}}: 0 100 200 200 200 200',
    ],
    "HoldfastWaiterStarves": [f"lock_oldest_wait_seconds{{{LABELS}}}: 240 10 20 30 40 50"],
    "HoldfastStoreErrors": [f'lock_store_errors_total{{{LABELS},operation="claim"}}: 0 0 0 0 0 1'],
}


# Seven losses of long ago, and Prometheus was away, or the process could not be reached, or one of both is new.
COUNTED = {
    "HoldfastLockLost": f"lock_losses_total{{{LABELS}}}",
    "HoldfastFenceRefused": 'lock_fence_refusals_total{lock_name="report"}',
    "HoldfastRenewalLate": f'lock_renewals_total{{{LABELS},outcome="late"}}',
    "HoldfastReleaseFailed": f"lock_release_failures_total{{{LABELS}}}",
}
UP = 'up{job="jobs",instance="one"}'
GAPS = {
    "Prometheus was away": ("7x10 _x30 7x30", "1x10 _x30 1x30", "is quiet"),
    "the process was not reached": ("7x10 _x30 7x30", "1x10 0x29 1x30", "is quiet"),
    "it happened while Prometheus was away": ("7x10 _x30 8x30", "1x10 _x30 1x30", "fires"),
    "it happened while the process was not reached": ("7x10 _x30 8x30", "1x10 0x29 1x30", "fires"),
    "the process is new": ("_x41 1x30", "1x80", "fires"),
    "Prometheus is new": ("_x41 7x30", "_x41 1x30", "is quiet"),
}
AFTER_THE_GAP = range(41, 60)


# Another process runs at that place since, and the same has happened to it once, as it had to the one before.
CREATED = {name: series.replace("_total", "_created") for name, series in COUNTED.items()}
RESTARTED = {
    "it was there for a while before": ("1x10 _x30 1x30", "1x80", "_x80", "fires"),
    "two places are called the same": ("1x10 _x30 1x30", "1x80", "_x80", "fires"),
    "it is scraped for the first time": ("1x10 _x30 1x30", "1x10 0x29 1x30", "0x10 _x30 2400x30", "fires"),
    "it is the same process": ("1x10 _x30 1x30", "1x10 0x29 1x30", "0x10 _x30 0x30", "is quiet"),
}

# 5 min a day, and on the third day it hangs; an hour as a rule, in a histogram that ends at ten minutes. A sample each quarter
# of an hour: with one each minute, promtool looks through a hundred million of them.
DAILY, HOURLY = "0x7 1x95 2x140", "0+1x10 10x60"
LONG = {
    "a daily job hangs": (DAILY, 300, "0x199 900+900x10", {3000: "is quiet", 3030: "fires"}),
    "a long job is as long as ever": (HOURLY, 3600, "0x40 900+900x20", {700: "is quiet", 770: "is quiet"}),
    "a long job hangs": (HOURLY, 3600, "0x40 900+900x20", {825: "fires"}),
}


def rule_test(series: list[str], alert: str, query: str, minutes: Iterable[int] = (), every: str = "1m") -> str:
    given = [{"series": name, "values": values} for name, _, values in (one.rpartition(": ") for one in series)]
    samples = [{"labels": "{}", "value": 1}] if query == "fires" else []
    asked = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}})'
    test = {
        "interval": every,
        "input_series": given,
        "promql_expr_test": [
            {"expr": asked, "eval_time": f"{minute}m", "exp_samples": samples}
            for minute in minutes or [20 if "x20" in series[0] else 5]
        ],
    }
    return json.dumps({"rule_files": ["alerts.yml"], "evaluation_interval": every, "tests": [test]})  # JSON is YAML


@pytest.mark.parametrize(
    ("alert", "series", "expected"),
    [
        *((alert, series, "fires") for alert, series in FIRES.items()),
        *((alert, series, "fires") for alert, series in FIRES_AT_ONCE.items()),
        *((alert, series, "is quiet") for alert, series in QUIET.items()),
        *(
            (alert, [series.replace(LABELS, ELECTION) for series in FIRES[alert]], "is quiet")
            for alert in ("HoldfastHeldUnusuallyLong", "HoldfastWaiterStarves")
        ),
    ],
)
def test_an_alert_fires_when_it_should_and_not_otherwise(
    alert: str,
    series: list[str],
    expected: str,
    prometheus: Prometheus,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "alerts.yml").write_text(printed("alerts", capsys))
    (tmp_path / "test.yml").write_text(rule_test(series, alert, expected))
    prometheus.promtool("test", "rules", "test.yml", folder=tmp_path)


@pytest.mark.parametrize("alert", list(COUNTED))
@pytest.mark.parametrize("gap", list(GAPS))
def test_after_a_gap_an_alert_fires_for_what_is_new_and_for_nothing_old(
    alert: str, gap: str, prometheus: Prometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, up, expected = GAPS[gap]
    minutes = AFTER_THE_GAP[:9] if expected == "fires" else AFTER_THE_GAP
    (tmp_path / "alerts.yml").write_text(printed("alerts", capsys))
    (tmp_path / "test.yml").write_text(
        rule_test([f"{COUNTED[alert]}: {values}", f"{UP}: {up}"], alert, expected, minutes)
    )
    prometheus.promtool("test", "rules", "test.yml", folder=tmp_path)


@pytest.mark.parametrize("alert", list(COUNTED))
@pytest.mark.parametrize("case", list(RESTARTED))
def test_what_happens_to_a_process_fires_though_it_happened_to_the_one_before_it(
    alert: str, case: str, prometheus: Prometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values, up, created, expected = RESTARTED[case]
    here = UP.removeprefix("up{").removesuffix("}")
    series = [
        f"{COUNTED[alert].removesuffix('}')},{here}}}: {values}",
        f"{CREATED[alert].removesuffix('}')},{here}}}: {created}",
        f"{UP}: {up}",
        *([f'{UP.removesuffix("}")},cluster="two"}}: {up}'] if case.startswith("two") else []),
    ]
    minutes = AFTER_THE_GAP[:8] if expected == "fires" else AFTER_THE_GAP
    (tmp_path / "alerts.yml").write_text(printed("alerts", capsys))
    (tmp_path / "test.yml").write_text(rule_test(series, alert, expected, minutes))
    prometheus.promtool("test", "rules", "test.yml", folder=tmp_path)


@pytest.mark.parametrize("case", list(LONG))
def test_what_is_usual_is_known_of_rare_and_of_long_holds(
    case: str, prometheus: Prometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts, seconds, held, moments = LONG[case]
    total = " ".join(
        "+".join(str(int(number) * seconds) for number in values.split("+")) + f"x{times}"
        for values, _, times in (part.partition("x") for part in counts.split())
    )
    series = [
        *(
            f"{_series('bucket', le)}: {counts if float(le) >= seconds else '0x300'}"
            for le in ("120", "300", "600", "Inf")
        ),
        f"{_series('count')}: {counts}",
        f"{_series('sum')}: {total}",
        f"lock_oldest_hold_seconds{{{LABELS}}}: {held}",
    ]
    (tmp_path / "alerts.yml").write_text(printed("alerts", capsys))
    for minute, expected in moments.items():
        (tmp_path / "test.yml").write_text(rule_test(series, "HoldfastHeldUnusuallyLong", expected, [minute], "15m"))
        prometheus.promtool("test", "rules", "test.yml", folder=tmp_path)


def _series(part: str, le: str = "") -> str:
    bound = f',le="{le if le != "Inf" else "+Inf"}"' if le else ""
    return f'lock_hold_duration_seconds_{part}{{{LABELS},outcome="released"{bound}}}'


def test_every_alert_is_tested_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    named = [line.split()[-1] for line in printed("alerts", capsys).splitlines() if "- alert:" in line]
    assert named == list(FIRES)
    manual = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    assert [one for one in named if one not in manual] == []


@pytest.mark.parametrize("words", [["observe"], ["observe", "kibana"]])
def test_what_is_not_there_is_named(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 125
    assert "observe grafana" in capsys.readouterr().err
