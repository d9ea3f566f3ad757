"""Mistakes in what ships, which a run has to find: it ends with exit code 1, and names the promise that was broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from ..mutants.spoiling import ROOT

ATTEMPTS = 3  # a machine that gives nobody a turn at the right moment lets nothing be overtaken


class Mistake(NamedTuple):
    what: str
    file: str
    old: str
    new: str
    faults: str
    promise: str


MISTAKES = [
    Mistake(
        "storage takes any token",
        "fenced/sql/sqlite.sql",
        "WHERE holdfast_fences.token <= excluded.token;",
        "WHERE holdfast_fences.token <> -1;",
        "pause",
        "no stale write was accepted",
    ),
    Mistake(
        "tokens do not rise",
        "stores/sqlite/store.py",
        "            token = rule.next_token(near.mark, self._wall_us(), name)\n",
        "            token = rule.next_token(near.mark, self._wall_us(), name) % 2 + 1\n",
        "none",
        "tokens rise in the order of the grants",
    ),
    Mistake(
        "what the dead held is never free",
        "stores/sqlite/statements.sql",
        "AND holder <> '' AND expires <= ?2;",
        "AND holder <> '' AND expires <= ?2 - 1000;",
        "kill",
        "every waiter was served in time",
    ),
]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda one: one.what)
def test_a_run_finds(mistake: Mistake, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "src" / "holdfast" / mistake.file
    text = file.read_text()
    assert text.count(mistake.old) == 1, f"the source has changed: {mistake.old!r}"
    file.write_text(text.replace(mistake.old, mistake.new))
    words = ["--seconds", "2.5", "--ttl", "0.5", "--workers", "3", "--faults", mistake.faults, "--json"]
    for attempt in range(ATTEMPTS):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "verify", f"sqlite:///{tmp_path}/locks{attempt}.db", *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout, done.stderr
        told = json.loads(done.stdout)
        if not told["promises"][mistake.promise]["kept"]:
            assert done.returncode == 1
            return
    pytest.fail(f"{mistake.what} was not found: {told['figures']}")
