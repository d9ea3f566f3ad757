"""A server whose clock jumps: a preloaded shim shifts it, live. Built with the C compiler; works in any server of C."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shim() -> Iterator[Path]:
    """The shared library, in a folder that servers under an account of their own can read."""
    with tempfile.TemporaryDirectory(prefix="holdfast-clock-") as folder:
        Path(folder).chmod(0o755)
        built = Path(folder) / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(built), str(source), "-ldl"], check=True, timeout=60)
        yield built


class WallClock:
    """What a server is told of the time: the real one, and some seconds."""

    def __init__(self, built: Path, name: str = "offset") -> None:
        self._offset = built.with_name(name)
        self.environ = {"LD_PRELOAD": str(built), "CLOCK_OFFSET": str(self._offset)}
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """At once: nobody reads an empty file in between."""
        new = self._offset.with_suffix(".new")
        new.write_text(str(seconds))
        new.chmod(0o644)
        new.replace(self._offset)
