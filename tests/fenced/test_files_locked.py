"""The lock beside a fenced file: it lets go when it is said to, and is the same one for everybody."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from holdfast import fenced
from holdfast.errors import Misuse
from holdfast.fenced import files

SECONDS = 20.0


def test_a_child_forked_in_the_middle_does_not_keep_the_file_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 1.0)
    file = fenced.File(tmp_path / "report", ("r", 1))
    with file._locked():
        child = os.fork()  # by another thread, say: the child has all open files, and lives on
        if child == 0:
            signal.pause()
    try:
        file.write(b"the child has nothing to do with it")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_forked_child_that_goes_its_way_does_not_unlock_its_parents_file(tmp_path: Path) -> None:
    file = fenced.File(tmp_path / "report", ("r", 1))
    locked = file._locked()
    locked.__enter__()
    child = os.fork()
    if child == 0:
        locked.__exit__(None, None, None)
        os._exit(0)
    os.waitpid(child, 0)
    other = files._open_own(file._lock, os.O_RDWR)
    assert not files._try_lock(other)
    os.close(other)
    locked.__exit__(None, None, None)


def test_a_lock_that_was_removed_is_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cleaner of old files, say. Who waited for it must not be let in beside whoever made a new one."""
    file = fenced.File(tmp_path / "report", ("r", 1))
    first = file._locked()
    first.__enter__()
    waits, inside, go_on = threading.Event(), threading.Event(), threading.Event()
    try_lock = files._try_lock

    def tried(lock: int) -> bool:
        got = try_lock(lock)
        waits.set()  # it has the old one open
        return got

    monkeypatch.setattr(files, "_try_lock", tried)

    def wait() -> None:
        with file._locked():
            inside.set()
            assert go_on.wait(SECONDS)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert waits.wait(SECONDS)
    old = os.stat(tmp_path / ".report.fence-lock").st_ino
    os.rename(tmp_path / ".report.fence-lock", tmp_path / "away")  # keeps its number from being used again
    first.__exit__(None, None, None)
    assert inside.wait(SECONDS)
    try:
        new = os.open(tmp_path / ".report.fence-lock", os.O_RDWR)  # the one that everybody finds by its name
        assert os.fstat(new).st_ino != old
        assert not files._try_lock(new)
        os.close(new)
    finally:
        go_on.set()
        waiting.join(SECONDS)


def test_a_link_that_took_the_place_of_the_content_is_refused(tmp_path: Path) -> None:
    """What it leads to has a mark of its own, or none."""
    file = fenced.File(tmp_path / "report", ("r", 6))
    (tmp_path / "other").write_bytes(b"other")
    (tmp_path / "report").symlink_to(tmp_path / "other")
    for attempt in (file.read, lambda: file.write(b"new"), file.delete):
        with pytest.raises(Misuse, match="is a link"):
            attempt()
    assert (tmp_path / "other").read_bytes() == b"other"
    assert (tmp_path / "report").is_symlink()
