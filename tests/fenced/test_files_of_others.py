"""A fenced file in a folder where others can write too: no link is followed, nothing of theirs is trusted."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from holdfast import fenced
from holdfast.drivers.paths import resolved
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


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """As /tmp is."""
    folder = tmp_path / "open to all"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def of_another_user(path: Path) -> Path:
    os.chown(path, 65534, 65534, follow_symlinks=False)
    return path


@as_root
def test_a_link_that_another_user_has_put_in_place_of_the_file_is_not_followed(
    tmp_path: Path, open_to_all: Path
) -> None:
    """Where the kernel is told not to follow such a link, os.path.realpath would have found the way around it."""
    precious = tmp_path / "precious"
    precious.write_text("kept")
    link = open_to_all / "report"
    link.symlink_to(precious)
    fenced.File(link, ("r", 5)).write(b"our own link is followed")
    of_another_user(link)
    for act in (fenced.File, lambda path, ticket: files.seen(path)):
        with pytest.raises(Misuse, match=r"report is a link.*not trusted"):
            act(link, ("r", 6))
    assert precious.read_bytes() == b"our own link is followed"


@as_root
def test_a_link_of_another_user_on_the_way_to_the_file_is_not_followed(tmp_path: Path, open_to_all: Path) -> None:
    (tmp_path / "private").mkdir()
    (open_to_all / "folder").symlink_to(tmp_path / "private")
    of_another_user(open_to_all / "folder")
    with pytest.raises(Misuse, match="not trusted"):
        fenced.File(open_to_all / "folder" / "report", ("r", 5))
    assert not list((tmp_path / "private").iterdir())


def test_links_are_followed_as_the_system_follows_them(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "up").symlink_to("b/../../c")
    (tmp_path / "c").symlink_to(tmp_path / "a" / "b")
    (tmp_path / "round").symlink_to("round")
    for way in ("a/up/report", "c/../b/report", "./a//b/report", "a/b/none/report"):
        assert resolved(str(tmp_path / way)) == os.path.realpath(tmp_path / way)
    with pytest.raises(OSError, match="symbolic links"):
        resolved(str(tmp_path / "round"))


def test_a_pipe_or_a_late_link_in_place_of_the_content_neither_hangs_nor_leads_away(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report")
    with pytest.raises(Misuse, match="not trusted"):
        fenced.File(tmp_path / "report", ("r", 5)).read()
    os.mkfifo(tmp_path / ".other.fence")
    with pytest.raises(Misuse, match="not trusted"):
        files.seen(tmp_path / "other")


def test_a_second_name_of_another_file_is_not_taken_for_ours(tmp_path: Path, open_to_all: Path) -> None:
    """Its mode was changed to 0600: another user may give a second name to a file that it may write to."""
    public = tmp_path / "public"
    public.touch()
    public.chmod(0o666)
    os.link(public, open_to_all / ".report.fence-lock")
    with pytest.raises(Misuse, match="not trusted"):
        fenced.File(open_to_all / "report", ("r", 5)).write(b"new")
    assert public.stat().st_mode & 0o777 == 0o666
    (tmp_path / "ours").mkdir(0o755)
    os.link(public, tmp_path / "ours" / ".report.fence-lock")
    fenced.File(tmp_path / "ours" / "report", ("r", 5)).write(b"where nobody else can write, it is a backup's")
