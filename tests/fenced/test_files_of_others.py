"""A fenced file in a folder where others can write too: no link is followed, nothing of theirs is trusted."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from holdfast import fenced
from holdfast.errors import Misuse
from holdfast.fenced import files

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


def test_a_link_in_the_way_of_a_write_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    precious.chmod(0o600)
    (tmp_path / ".report.fence-new").symlink_to(precious)
    fenced.File(tmp_path / "report", ("r", 5)).write(b"new")
    assert precious.read_text() == "kept"
    assert (tmp_path / "report").read_bytes() == b"new"
    assert not (tmp_path / "report").is_symlink()


@pytest.mark.parametrize("name", [".report.fence", ".report.fence-lock"])
def test_a_link_in_place_of_the_mark_or_its_lock_is_refused(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text('{"resource": "r", "token": 1, "since": 0}')
    (tmp_path / name).symlink_to(precious)
    with pytest.raises(Misuse, match="not trusted"):
        fenced.File(tmp_path / "report", ("r", 5)).write(b"new")
    assert not (tmp_path / "report").exists()


def test_a_pipe_in_place_of_the_mark_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".report.fence")
    with pytest.raises(Misuse, match="not trusted"):
        fenced.File(tmp_path / "report", ("r", 5)).read()


def test_what_can_be_held_or_read_by_others_is_made_for_this_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        fenced.File(tmp_path / "report", ("r", 5)).write(b"new")
        modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
        assert modes == {"report": 0o666, ".report.fence": 0o600, ".report.fence-lock": 0o600}
        (tmp_path / ".report.fence-lock").chmod(0o644)  # as an earlier version left it
        fenced.File(tmp_path / "report", ("r", 5)).read()
        assert (tmp_path / ".report.fence-lock").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)


@as_root
@pytest.mark.parametrize("name", [".report.fence", ".report.fence-lock"])
def test_a_mark_or_a_lock_of_another_user_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"resource": "r", "token": 1, "since": 0}')
    os.chown(tmp_path / name, 65534, 65534)
    with pytest.raises(Misuse, match="another user"):
        fenced.File(tmp_path / "report", ("r", 5)).write(b"new")
    os.chown(tmp_path, 65534, 65534)  # who owns the folder may: he could replace the file itself
    fenced.File(tmp_path / "report", ("r", 5)).write(b"new")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_folder_that_others_may_write_to_is_named_in_a_warning_once(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with caplog.at_level(logging.WARNING, "holdfast.fenced"):
        for token in (1, 2):
            fenced.File(folder / "report", ("r", token)).write(b"")
    assert [str(folder) in record.getMessage() for record in caplog.records] == [True]
    assert str(folder) in files._warned
