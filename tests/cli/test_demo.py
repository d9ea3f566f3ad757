from __future__ import annotations

import json
import os
import signal
import time

import pytest

from holdfast import StaleToken
from holdfast.cli.demo.bank import Account, open_bank

from .conftest import Commands


def test_the_demo_in_plain_lines(run: Commands) -> None:
    started = time.monotonic()
    done = run("demo")
    assert time.monotonic() - started < 20
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    for number, expected, actual, lost, refused in (
        ("1", 120, 30, 90, "-"),
        ("2", 80, 50, 30, "-"),
        ("3", 80, 80, 0, "1"),
    ):
        (row,) = [line for line in done.stdout.splitlines() if line.startswith(f"{number}. ")]
        assert row.split()[-4:] == [str(expected), str(actual), str(lost), refused]
    assert "ON CONFLICT (resource) DO UPDATE" in done.stdout


def test_ctrl_c_ends_the_demo_and_leaves_no_traceback(run: Commands) -> None:
    job = run.start("demo")
    job.line()  # it has begun
    os.killpg(job.pid, signal.SIGINT)  # as a terminal does, to all that it runs
    assert job.end() == 130
    assert job.errors() == ""


def test_the_demo_in_json(run: Commands) -> None:
    done = run("demo", "--json")
    found = json.loads(done.stdout)
    assert found["perfect"] is True
    assert [act["lost"] for act in found["acts"]] == [90, 30, 0]


def test_the_fence_of_the_demo_counts_reads_and_refuses_lower_tokens(tmp_path: object) -> None:
    path = f"{tmp_path}/bank.db"
    open_bank(path)
    account = Account(path, "a")
    account.write(1, token=5)
    assert account.read(token=7) == 1
    for late in (lambda: account.write(2, token=5), lambda: account.read(token=6)):
        with pytest.raises(StaleToken) as refused:
            late()
        assert refused.value.seen == 7
    account.write(3, token=7)
    other = Account(path, "b")
    assert other.read(token=1) == 0  # another account, another fence
    assert account.read() == 3
    other.close()
    account.close()
