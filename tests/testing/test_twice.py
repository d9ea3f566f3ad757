"""`make test` runs again what failed; a run that did not come to its end is no success, whatever the second one says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECOND = "-m pytest --last-failed --last-failed-no-failures none"


def twice(folder: Path, *codes: int, **environment: str) -> tuple[int, list[str]]:
    """With a pytest that ends with one code after the other. The code of the whole, and what was run."""
    said = folder / "said"
    for number, code in enumerate(codes, 1):
        (folder / str(number)).write_text(str(code))
    python = folder / "python"
    note = f'echo "$@" "${{CACHE-}}${{PYTEST_ADDOPTS-}}" | sed "s/ *$//" >> {said}'
    python.write_text(f"#!/bin/sh\n{note}\nexit $(cat {folder}/$(wc -l < {said}))\n")
    python.chmod(0o755)
    line = [str(ROOT / "scripts" / "test-twice"), str(python), "-n", "6"]
    inherited = {"PATH": os.environ["PATH"], **environment}
    done = subprocess.run(line, cwd=ROOT, env=inherited, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, said.read_text().splitlines()


def test_what_failed_is_run_again_by_itself_and_has_to_pass(tmp_path: Path) -> None:
    assert twice(tmp_path, 1, 0) == (0, ["-m pytest -n 6", SECOND])


def test_what_fails_again_fails_all(tmp_path: Path) -> None:
    assert twice(tmp_path, 1, 1)[0] == 1


@pytest.mark.parametrize("code", [0, 2, 3, 4, 5])
def test_everything_else_is_as_it_was(tmp_path: Path, code: int) -> None:
    assert twice(tmp_path, code) == (code, ["-m pytest -n 6"])


def test_both_know_where_it_is_noted_what_failed_and_what_they_run_does_not(tmp_path: Path) -> None:
    noted = "-m pytest -o cache_dir=here"
    assert twice(tmp_path, 1, 0, CACHE="here") == (0, [f"{noted} -n 6", f"{noted}{SECOND.removeprefix('-m pytest')}"])


def test_make_uses_it() -> None:
    assert "\tscripts/test-twice $(BIN)/python -n 6 " in (ROOT / "Makefile").read_text()
    assert (
        'CACHE=".venv-$version/cache" scripts/test-twice ".venv-$version/bin/python" '
        in (ROOT / "scripts" / "test-versions").read_text()
    )
