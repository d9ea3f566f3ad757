"""What is asked of every store, on the embedded one; and the command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.claim import Snapshot
from holdfast.doctor import Finding, everywhere, examine, network, sqlite, worst
from holdfast.doctor.findings import findings
from holdfast.drivers.dialing import is_local

from ..cli.conftest import HOLDFAST
from .looking import all_looked_at, levels, one, said, whole


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HOLDFAST, "doctor", *words], capture_output=True, text=True, timeout=60)


def test_a_file_of_ones_own_is_well(url: str) -> None:
    told = whole(url)
    all_looked_at(told)
    assert {level for found in told.values() for level in levels(found)} == {"ok"}
    assert set(told) >= {"connection", "claims", "ttl", "rights", "disk", "persistence", "clock", "leftovers"}


def test_the_command_prints_what_was_found_and_ends_by_how_bad_it_is(url: str) -> None:
    well = command(url)
    assert (well.returncode, well.stderr) == (0, "")
    assert "  ok       claims         ten claims: " in well.stdout
    assert "What this store gives, and what it does not" in well.stdout
    alone = command("memory://", "--json")
    data = json.loads(alone.stdout)
    assert (alone.returncode, data["verdict"], data["traits"]["scope"]) == (1, "warning", "process")
    assert [one["check"] for one in data["findings"] if one["level"] == "warning"] == ["scope"]


def test_a_store_that_does_not_answer_is_a_problem_and_hides_its_password() -> None:
    done = command("redis://:hunter2@127.0.0.1:1")
    assert done.returncode == 2
    assert "  problem  connection     cannot connect to Redis at 127.0.0.1:1" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_a_url_that_makes_no_sense_is_no_finding(url: str) -> None:
    assert command("nonsense").returncode == 125
    twice = command(url, "--url", url)
    assert twice.returncode == 125
    assert "named twice" in twice.stderr


def test_leftovers_of_a_process_that_ended_without_a_word_are_found(url: str) -> None:
    code = f"import holdfast, os; held = holdfast.connect({url!r}).lock('orphan').acquire(); os._exit(0)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    with holdfast.connect(url) as locks, locks.lock("mine"):
        found = list(everywhere.leftovers(locks))
    text = said(found, "warning")
    assert "'orphan' of " in text
    assert "'mine'" not in text


def test_a_lock_that_was_held_for_days_is_asked_about(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(everywhere, "OLD", 0.0)
    with holdfast.connect(url) as locks, locks.lock("old"):
        assert "held for more than a day, the oldest 'old'" in said(list(everywhere.leftovers(locks)), "warning")


def test_tokens_that_do_not_rise_and_slow_claims_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            Clock.now += 2.0
            return Clock.now

    monkeypatch.setattr(time, "perf_counter", Clock())
    with holdfast.connect("memory://") as locks:
        assert "2e+03 ms usually" in said(list(everywhere.claims(locks)), "problem")
        monkeypatch.setattr(holdfast.sync.Lease, "token", property(lambda _: 7))
        assert "tokens did not rise" in said(list(everywhere.claims(locks)), "problem")


def test_what_an_owner_says_of_itself_is_not_believed_too_far() -> None:
    here = socket.gethostname()
    strange = ("", "/", "a/b", f"{here}/", f"{here}/x/y", f"{here}/²", f"{here}/{'9' * 400}", f"{here}/{os.getpid()}/t")
    holders = tuple(holdfast.claim.Holding(owner, 1, 1, 1.0, 1.0) for owner in strange)
    assert list(everywhere._dead(Snapshot("x", 9, holders))) == []


def test_an_open_file_in_an_open_folder_is_told(url: str, tmp_path: Path) -> None:
    whole(url)
    (tmp_path / "locks.db").chmod(0o644)
    assert "read the holders' secrets" in said(one(url, "rights"), "warning")
    (tmp_path / "locks.db").chmod(0o666)
    tmp_path.chmod(0o777)
    found = one(url, "rights")
    assert "take and release every lock" in said(found, "warning")
    assert "chmod o-w" in said(found, "problem")


def test_a_full_disk_and_a_long_log_are_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.connect(url) as locks, locks.lock("x"):
        monkeypatch.setattr(sqlite, "LITTLE_ROOM", 1 << 60)
        monkeypatch.setattr(sqlite, "LONG_LOG", 0)
        monkeypatch.setattr(sqlite, "LOCAL_FILE_SYSTEMS", frozenset())
        disk = one(url, "disk")
        assert "are free on its disk" in said(disk, "warning")
        assert "of a kind that is not known" in said(disk, "warning")
        assert "write-ahead log" in said(one(url, "persistence"), "warning")


def test_a_damaged_file_is_a_problem(url: str, tmp_path: Path) -> None:
    with holdfast.connect(url) as locks:
        for number in range(200):
            locks.lock(f"name {number} {'x' * 400}").acquire().release()
    file = tmp_path / "locks.db"
    data = bytearray(file.read_bytes())
    data[8192:12288] = b"\xff" * 4096
    file.write_bytes(data)
    assert "damaged" in said(one(url, "persistence"), "problem") + str(one(url, "persistence"))


def test_a_check_that_cannot_look_says_why_and_others_go_on() -> None:
    def breaks() -> list[Finding]:
        raise KeyError("gone")

    (found,) = findings("x", breaks)
    assert (found.level, found.check) == ("warning", "x")
    assert found.text == "could not look: KeyError: 'gone'"


def test_another_store_of_somebody_else_is_examined_by_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.doctor.BUILT_IN", {})
    told = list(examine("memory://"))
    assert [one.check for one in told] == ["connection", "claims", "claims", "ttl", "store", "leftovers"]
    assert worst(told) == "warning"


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "/run/x.sock", "@x"])
def test_this_machine_is_local(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize("host", ["10.0.0.1", "db.internal", "192.0.2.1", "::", "*", "localhost.evil.example"])
def test_what_others_can_reach_is_not_local(host: str) -> None:
    assert not is_local(host)


@pytest.mark.parametrize(
    ("tls", "login", "expected"),
    [
        (True, True, ["ok"]),
        (True, False, ["ok", "problem"]),
        (False, True, ["problem"]),
        (False, False, ["problem", "problem"]),
    ],
)
def test_clear_text_and_no_login_are_problems_on_a_network(tls: bool, login: bool, expected: list[str]) -> None:
    found = list(network.secrecy(["10.0.0.1"], tls=tls, login=login, scheme="rediss://"))
    assert levels(found) == expected
    assert levels(list(network.secrecy(["127.0.0.1"], tls=False, login=False, scheme=""))) == ["ok"]


@pytest.mark.parametrize(
    ("there", "silent", "expected"),
    [
        (3, 0, ["ok"]),
        (2, 1, ["warning", "ok"]),
        (1, 2, ["warning", "warning", "problem"]),
        (1, 0, ["warning"]),
        (4, 0, ["warning"]),
    ],
)
def test_a_quorum_is_judged_by_who_answers(there: int, silent: int, expected: list[str]) -> None:
    found = network.members([f"n{at}" for at in range(there)], [("gone", "refused")] * silent, "node")
    assert levels(list(found)) == expected


def test_clocks_are_compared_with_ours_and_with_each_other() -> None:
    near, far, coarse = network.Clock(0.4, 0.1), network.Clock(-0.9, 0.1), network.Clock(1.4, 0.5)
    assert levels(list(network.clocks([("a", near)], ""))) == ["ok"]
    assert "the clocks of b and a are 1.3 s apart" in said(
        list(network.clocks([("a", near), ("b", far)], "")), "warning"
    )
    assert levels(list(network.clocks([("a", coarse)], ""))) == ["ok"]  # it tells no better than that
    ahead = network.compare(lambda: time.time() + 30)
    assert "30.0 s ahead of ours" in said(list(network.clocks([("a", ahead)], "")), "warning")
    behind = network.compare(lambda: float(int(time.time() - 30)), 1.0)
    assert "s behind ours" in said(list(network.clocks([("a", behind)], "")), "warning")
