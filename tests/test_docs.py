"""Every Python example in the README and the docs runs as written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLE = re.compile(r"^( *)```python\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ENDS_IN_LEASE_LOST = "force_release("


def examples() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        for number, match in enumerate(EXAMPLE.finditer(page.read_text()), 1):
            indent = len(match[1])
            found.append(
                (f"{page.name}:{number}", "".join(line[indent:] for line in match[2].splitlines(keepends=True)))
            )
    return found


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in examples()])
def test_an_example_runs_as_written(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    if ENDS_IN_LEASE_LOST in code:
        assert "LeaseLost: lost the lock 'report'" in done.stderr
    else:
        assert done.returncode == 0, done.stderr


def test_there_are_examples_to_run() -> None:
    assert len(examples()) > 8
