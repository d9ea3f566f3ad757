"""Fenced files pass the suite, and survive a crash at every step of a write."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from holdfast import fenced
from holdfast.errors import Misuse, StaleToken, Unavailable
from holdfast.fenced import aio, files
from holdfast.fenced.mark import mark_of
from holdfast.testing import guards


class FileUnderTest:
    most = fenced.MAX_MARK
    transactional = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, resource: str) -> Path:
        return self.folder / sha256(resource.encode()).hexdigest()

    def read(self, resource: str, token: int) -> int | None:
        mark = mark_of((resource, token))
        content = fenced.File(self.path(resource), mark).read()
        return None if content is None else int(content)

    def write(self, resource: str, token: int, value: int) -> None:
        mark = mark_of((resource, token))
        fenced.File(self.path(resource), mark).write(str(value).encode())

    def seen(self, resource: str) -> int:
        mark = files.seen(self.path(resource))
        return mark.token if mark else 0

    def abandon(self, resource: str, token: int, value: int) -> None:
        raise NotImplementedError


class AsyncFileUnderTest(FileUnderTest):
    def read(self, resource: str, token: int) -> int | None:
        mark = mark_of((resource, token))
        content = asyncio.run(aio.File(self.path(resource), mark).read())
        return None if content is None else int(content)


@pytest.fixture
def folder(sqlite_file: str) -> Path:
    """Where nobody waits for a disk."""
    folder = Path(sqlite_file).with_name("files")
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize("check", guards.CHECKS, ids=guards.title)
def test_a_fenced_file(check: guards.Check, folder: Path) -> None:
    check(FileUnderTest(folder))


@pytest.mark.parametrize("check", guards.CHECKS[:6], ids=guards.title)
def test_a_fenced_file_in_asyncio(check: guards.Check, folder: Path) -> None:
    check(AsyncFileUnderTest(folder))


CRASHING = """
import os, sys
from holdfast import fenced

step, path = int(sys.argv[1]), sys.argv[2]
done = 0

def crash_instead(call):
    def crashing(*arguments, **keywords):
        global done
        if done == step:
            os._exit(9)  # as kill -9 would: nothing is flushed, nothing is cleaned up
        done += 1
        return call(*arguments, **keywords)
    return crashing

for name in ("open", "fsync", "replace", "fchmod", "close"):
    setattr(os, name, crash_instead(getattr(os, name)))
fenced.File(path, ("report", 2)).write(b"new" * 10_000)
"""


def test_a_crash_at_any_step_leaves_the_old_or_the_new_content_and_a_mark_that_does_not_lag(folder: Path) -> None:
    outcomes = set()
    for step in range(40):
        path = folder / f"crash {step}"
        fenced.File(path, ("report", 1)).write(b"old")
        code = subprocess.run([sys.executable, "-c", CRASHING, str(step), str(path)], timeout=60).returncode
        content, mark = path.read_bytes(), files.seen(path)
        assert mark is not None
        assert content in (b"old", b"new" * 10_000)
        assert mark.token == 2 or content == b"old", "the new content stands under the old mark"
        outcomes.add((content[:3], mark.token))
        if mark.token == 2:
            with pytest.raises(StaleToken):
                fenced.File(path, ("report", 1)).write(b"stale")
        fenced.File(path, ("report", 3)).write(b"next")
        assert fenced.File(path, ("report", 3)).read() == b"next"
        if code == 0:
            break
    assert code == 0, "the write never came to its end"
    assert outcomes == {(b"old", 1), (b"old", 2), (b"new", 2)}


def test_a_file_belongs_to_one_lock(tmp_path: Path) -> None:
    fenced.File(tmp_path / "x", ("one", 1)).write(b"")
    with pytest.raises(Misuse, match="guarded by the lock 'one', not by 'other'"):
        fenced.File(tmp_path / "x", ("other", 2)).write(b"")


def test_a_damaged_mark_refuses_everybody(tmp_path: Path) -> None:
    fenced.File(tmp_path / "x", ("one", 1)).write(b"kept")
    (tmp_path / ".x.fence").write_text("{")
    with pytest.raises(Misuse, match="damaged"):
        fenced.File(tmp_path / "x", ("one", 9)).write(b"lost")
    assert (tmp_path / "x").read_bytes() == b"kept"


def test_permissions_symlinks_and_deleting(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    path.chmod(0o640)
    (tmp_path / "link").symlink_to(path)
    file = fenced.File(tmp_path / "link", ("one", 2))
    file.write(b"after")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"after", 0o640)
    assert (tmp_path / "link").is_symlink()
    assert file.delete()
    assert not file.delete()
    with pytest.raises(StaleToken):
        fenced.File(path, ("one", 1)).read()


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="must be bytes"):
        fenced.File(tmp_path / "x", ("one", 1)).write("text")  # type: ignore[arg-type]  # the point
    with pytest.raises(Misuse, match="does not exist"):
        fenced.File(tmp_path / "nowhere" / "x", ("one", 1)).read()


def test_waiting_for_a_stopped_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr(files, "PATIENCE", 0.05)
    fenced.File(tmp_path / "x", ("one", 1)).write(b"")
    holder = os.open(tmp_path / ".x.fence-lock", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(Unavailable, match="stopped"):
        fenced.File(tmp_path / "x", ("one", 2)).read()
    os.close(holder)
