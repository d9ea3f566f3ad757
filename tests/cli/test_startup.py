from __future__ import annotations

import subprocess
import sys

from .conftest import HOLDFAST, Commands

# Each costs a tenth or more of what `holdfast run` may take (three times `import sqlite3`), and it needs none of them.
HEAVY = {"argparse", "asyncio", "ctypes", "dataclasses", "inspect", "json", "logging", "subprocess", "tempfile"}


def test_run_imports_nothing_that_it_can_do_without(run: Commands) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", HOLDFAST, "run", "x", "--", "true"],
        env={**run.environment, "PYTHONWARNINGS": ""},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time")}
    assert done.returncode == 0
    assert (
        "holdfast.cli.child" in imported
    )  # by holdfast.cli.run, which is not told of: what import_module() brings never is
    assert imported & HEAVY == set()
    assert not any(name.startswith("holdfast.aio") or name == "holdfast.cli.manual" for name in imported)
