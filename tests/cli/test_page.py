"""Every console example of docs/cli.md and docs/which-store.md gives what the page says, numbers and host names aside."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sysconfig
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    example
    for page in ("cli.md", "which-store.md")
    for example in re.findall(r"^```console\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
]

# On the page, time passes. Here things happen: instead of sleeping, one waits until the store knows as many claims as there are
# background jobs, and these run until their end is waited for.
SLEEP = """
exec 2>&1
sleep() {
    until [ "$(holdfast ls --json | grep -c '"owner"')" -ge "$(jobs -r | wc -l)" ]; do command sleep 0.02; done
}
"""


def alike(text: str) -> list[str]:
    """Without what differs from run to run, and from machine to machine."""
    text = text.replace(f"{socket.gethostname()}/", "host/")
    return [re.sub(r"\s+", " ", re.sub(r"\d+(\.\d+)?", "0", line)).strip() for line in text.splitlines()]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_of_the_page_does_what_it_says(example: str, tmp_path: Path) -> None:
    lines = example.splitlines()
    script = "\n".join(line.removeprefix("$ ") for line in lines if line.startswith("$ "))
    script = re.sub(r"-- sleep \d", "-- sleep 60", script)
    script = re.sub(r"^(wait$|holdfast run -w)", r"kill $(jobs -p); \1", script, flags=re.MULTILINE)
    expected = "\n".join(line for line in lines if not line.startswith("$ "))
    done = subprocess.run(
        ["bash", "-c", SLEEP + script],
        env={
            "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "HOLDFAST_URL": f"sqlite://{tmp_path}/locks.db",
        },
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert alike(done.stdout) == alike(expected)
