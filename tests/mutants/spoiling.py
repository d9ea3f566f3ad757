"""A mistake is made in a copy of the source, and the test that is meant to find it is run there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# Hypothesis and the other plugins that are installed cost a second each time, and hundreds of mistakes need none of them.
PLUGINS = ("-p", "pytest_timeout", "-p", "holdfast_pytest", "-p", "no:cacheprovider", "-p", "no:doctest")
SUITE = "tests/conformance/test_memory.py::TestMemory::"


class Mutant(NamedTuple):
    what: str
    file: str
    changes: tuple[tuple[str, str], ...]
    killer: str  # what must fail


def run(source: Path, *tests: str, within: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Tests of this repository, against a copy of its source."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "-x", "-q", "--tb=line", *tests],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )


def must_be_found(mutant: Mutant, source: Path) -> None:
    file = source / "holdfast" / mutant.file
    text = file.read_text()
    for old, new in mutant.changes:
        assert text.count(old) == 1, f"the source has changed: {old!r}"
        text = text.replace(old, new)
    file.write_text(text)
    done = run(source, mutant.killer)
    assert done.returncode == 1, f"{mutant.what} was not found:\n{done.stdout}{done.stderr}"
    assert "\nFAILED " in done.stdout, f"it was not the test that found it:\n{done.stdout}"
    assert "ImportError" not in done.stdout
    assert "SyntaxError" not in done.stdout
    assert "NameError" not in done.stdout


def must_be_clean(mutants: Sequence[Mutant], source: Path) -> None:
    """What finds a mistake finds none where there is none; all in one run, which is much quicker."""
    done = run(source, *dict.fromkeys(mutant.killer for mutant in mutants), within=500.0)  # in one order, always
    assert done.returncode == 0, done.stdout + done.stderr
