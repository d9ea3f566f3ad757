"""The recipe for Airflow, with the real one: `make soak`, since its installation takes minutes and a third of a gigabyte."""

from __future__ import annotations

import os
import re
import subprocess
import venv
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[2]
SECONDS = 900.0  # pip has to look at a hundred packages

# What follows the recipe in its file: one run of the DAG, in this process.
RUN = """
if __name__ == "__main__":
    run = nightly().test()
    print("states:", run.state, [one.state for one in run.get_task_instances()])
"""


@pytest.mark.timeout(2 * SECONDS)
def test_a_task_of_airflow_runs_under_the_lock_or_is_skipped(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "recipes.md").read_text()
    code = re.search(r"^```python skip: Airflow[^\n]*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert code is not None
    url = f"sqlite://{tmp_path}/locks.db"
    file = tmp_path / "dags" / "nightly.py"
    file.parent.mkdir()
    file.write_text(code[1].replace("postgresql://airflow@db/airflow", url) + RUN)
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }

    def done(*command: str | Path) -> str:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    done(programs / "pip", "install", "-q", "apache-airflow>=3,<4")
    done(programs / "airflow", "db", "migrate")
    assert "states: success ['success']" in done(programs / "python", file)
    with holdfast.connect(url) as locks, locks.lock("warehouse:north"):
        assert "states: success ['skipped']" in done(programs / "python", file)
