"""`make test` runs again what failed; a run that did not come to its end is no success, whatever the second one says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECOND = "-m pytest --last-failed --last-failed-no-failures none"


def twice(folder: Path, *codes: int) -> tuple[int, list[str]]:
    """With a pytest that ends with one code after the other. The code of the whole, and what was run."""
    said = folder / "said"
    for number, code in enumerate(codes, 1):
        (folder / str(number)).write_text(str(code))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >> {said}\nexit $(cat {folder}/$(wc -l < {said}))\n')
    python.chmod(0o755)
    line = [str(ROOT / "scripts" / "test-twice"), str(python), "-n", "6"]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, said.read_text().splitlines()


def test_what_failed_is_run_again_by_itself_and_has_to_pass(tmp_path: Path) -> None:
    assert twice(tmp_path, 1, 0) == (0, ["-m pytest -n 6", SECOND])


def test_what_fails_again_fails_all(tmp_path: Path) -> None:
    assert twice(tmp_path, 1, 1)[0] == 1


@pytest.mark.parametrize("code", [0, 2, 3, 4, 5])
def test_everything_else_is_as_it_was(tmp_path: Path, code: int) -> None:
    assert twice(tmp_path, code) == (code, ["-m pytest -n 6"])


def test_make_uses_it() -> None:
    assert "\tscripts/test-twice $(BIN)/python -n 6 " in (ROOT / "Makefile").read_text()
    assert 'scripts/test-twice ".venv-$version/bin/python" ' in (ROOT / "scripts" / "test-versions").read_text()
