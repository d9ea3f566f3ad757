"""`make test SERVERS=none` names what it left out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def left_out(tests: str) -> subprocess.CompletedProcess[str]:
    line = [str(ROOT / "scripts" / "left-out"), sys.executable, tests]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)


def test_files_with_tests_that_need_a_server_are_named_and_counted() -> None:
    done = left_out("tests/compat")
    assert (done.returncode, done.stdout.split()) == (0, ["1", "tests/compat/test_redis_py.py"]), done.stderr


def test_a_list_that_would_be_empty_is_a_failure_and_no_silence() -> None:
    done = left_out("tests/test_events.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "named no test" in done.stderr


def test_make_uses_it() -> None:
    assert "\t@scripts/left-out $(BIN)/python\n" in (ROOT / "Makefile").read_text()
