"""Short attacks, by the command, on real stores. What is asserted is what must be so on any machine, however busy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import main
from holdfast.testing import servers
from holdfast.verify.running import PREFIX

PATIENCE = 90.0


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", "verify", *words]


Verify = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def verify(capsys: pytest.CaptureFixture[str]) -> Verify:
    def run(*words: str) -> tuple[int, dict[str, Any]]:
        code = main(["verify", *words, "--json"])
        told = capsys.readouterr()
        assert told.out, told.err
        return code, json.loads(told.out)

    return run


def findings(told: dict[str, Any]) -> list[str]:
    return [one for promise in told["promises"].values() for one in promise["findings"]]


@pytest.mark.timeout(150)
def test_sqlite_keeps_its_promises_under_pauses_and_kills_and_the_history_says_so_again(
    verify: Verify, tmp_path: Path
) -> None:
    kept, report = tmp_path / "history", tmp_path / "report.html"
    url = f"sqlite:///{tmp_path}/locks.db"
    code, told = verify(
        *(url, "--seconds", "2", "--ttl", "0.5", "--workers", "3", "--seed", "7"),
        *("--keep", str(kept), "--report", str(report)),
    )
    assert findings(told) == []
    assert code in (0, 2)  # on a machine that let nobody work, there is nothing to conclude
    assert told["figures"]["faults"]
    assert told["run"]["allowed"] == ["pause", "kill", "clock"]
    again, told_again = verify("--check", str(kept))
    assert (again, told_again) == (code, told)
    assert report.read_text().startswith("<!doctype html>")
    with holdfast.connect(url) as locks:
        assert locks.names(PREFIX) == []


@pytest.mark.timeout(150)
def test_a_register_without_a_fence_loses_updates_under_pauses_and_that_is_found(
    verify: Verify, tmp_path: Path
) -> None:
    for _ in range(3):  # a machine that gives nobody a turn meanwhile lets nothing be overtaken
        code, told = verify(
            *(f"sqlite:///{tmp_path}/locks.db", "--no-fence", "--faults", "pause"),
            *("--seconds", "2.5", "--ttl", "0.5", "--workers", "3"),
        )
        if code == 1:
            break
    assert code == 1
    assert told["verdict"] == "broken"
    broken = {promise for promise, judged in told["promises"].items() if not judged["kept"]}
    assert {"no stale write was accepted", "no acknowledged update was lost", "the register is linearizable"} <= broken
    # The locks themselves did as they should: it is the storage that let stale writes in.
    assert told["promises"]["tokens rise in the order of the grants"]["kept"]
    assert told["promises"]["no lease said held that was over"]["kept"]


@pytest.mark.server
@pytest.mark.timeout(150)
def test_a_redis_of_somebody_elses_is_attacked_through_the_proxy_and_left_as_it_was(verify: Verify) -> None:
    with servers.start("redis") as redis:
        redis.execute("SET", "yours", "untouched")
        with holdfast.connect(redis.url) as locks, locks.lock("yours") as lease:
            code, told = verify(
                redis.url, "--seconds", "2", "--ttl", "0.5", "--workers", "3", "--faults", "cut,delay,drop"
            )
            lease.check()
            assert locks.names() == ["yours"]
        assert findings(told) == []
        assert code in (0, 2)
        assert set(told["figures"]["faults"]) <= {"cut", "delay", "drop"}
        assert told["figures"]["faults"]
        assert redis.execute("GET", "yours") == b"untouched"


@pytest.mark.server
@pytest.mark.timeout(200)
def test_the_register_may_be_in_a_postgresql_which_is_left_as_it_was_even_if_it_was_restarted_meanwhile(
    verify: Verify,
) -> None:
    with servers.start("postgresql") as postgresql, servers.start("redis") as redis:
        stop = threading.Event()

        def restart() -> None:
            while not stop.is_set() and not postgresql.query(
                "SELECT 1 FROM pg_namespace WHERE nspname LIKE 'holdfast%'"
            ):
                stop.wait(0.05)
            stop.wait(2)
            postgresql.kill()
            postgresql.restart()

        restarting = threading.Thread(target=restart)
        restarting.start()
        try:
            code, told = verify(
                *(redis.url, "--register", postgresql.url, "--seconds", "3", "--ttl", "0.5", "--workers", "2"),
                *("--faults", "pause,cut"),
            )
        finally:
            stop.set()
            restarting.join()
        assert findings(told) == []
        assert code in (0, 2)
        assert told["run"]["register"].startswith("postgresql://")
        assert postgresql.query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'holdfast%'") == []


def test_another_library_is_judged_by_what_its_users_have(verify: Verify) -> None:
    code, told = verify("--library", "holdfast-sqlite", "--seconds", "2", "--ttl", "0.5", "--faults", "pause")
    assert findings(told) == []
    assert code in (0, 2)
    assert told["run"]["library"] == "holdfast-sqlite"
    assert told["run"]["fenced"]
    assert "tokens rise in the order of the grants" not in told["promises"]  # of others that is not known


def test_ended_in_the_middle_it_leaves_no_worker_and_no_lock(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    running = subprocess.Popen(
        command(url, "--seconds", "60", "--ttl", "20", "--workers", "2"), env=environ, stderr=subprocess.DEVNULL
    )
    try:
        with holdfast.connect(url) as locks:
            until = time.monotonic() + PATIENCE
            while not locks.names(PREFIX):
                assert time.monotonic() < until
                assert running.poll() is None
                time.sleep(0.02)
            running.send_signal(signal.SIGTERM)
            assert running.wait(PATIENCE) == 130
            assert locks.names(PREFIX) == []
    finally:
        running.kill()
        running.wait()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("holdfast-verify-")] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["memory://"], "nobody to verify them with"),
        (["sqlite:///{tmp}/x.db", "--faults", "cut"], "cannot be struck here"),
        (["sqlite:///{tmp}/x.db", "--faults", "restart"], "use --own"),
        (["sqlite:///{tmp}/x.db", "--faults", "fire"], "there is no fault 'fire'"),
        (["sqlite:///{tmp}/x.db", "--own", "redis"], "say one of them"),
        (["--own", "oracle"], "there is no server 'oracle'"),
        (["--library", "nonsense"], "there is no adapter for 'nonsense'"),
        (["sqlite:///{tmp}/x.db", "--register", "mysql://x"], "postgresql://"),
        (["--check", "{tmp}/missing"], "No such file"),
        (["sqlite:///{tmp}/x.db", "--keep", "{tmp}/none/kept"], "nothing can be written"),
        (["sqlite:///{tmp}/x.db", "--workers", "1"], "2 to 64 workers"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", *(word.format(tmp=tmp_path) for word in words)]) == 125
    assert said in capsys.readouterr().err
