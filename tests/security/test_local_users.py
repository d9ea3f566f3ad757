"""Another user of this machine, who owns the folder that we work in, or may write to it: it gets nothing of ours by that.

What it does between two calls of ours is done here by an audit hook, which is told of each call before it is made: so the attack
comes at the worst moment every time, and no race has to be won.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.drivers import doorbell

_attack: list[Callable[[str, tuple[object, ...]], None]] = []


def _hook(event: str, given: tuple[object, ...]) -> None:
    if _attack and event.partition(".")[0] in ("os", "open", "socket"):
        attack = _attack.pop()  # what it does itself is not heard
        attack(event, given)


sys.addaudithook(_hook)


def just_before(events: tuple[str, ...], act: Callable[[], None]) -> None:
    """Act once, just before the first of these."""

    def hear(event: str, given: tuple[object, ...]) -> None:
        if event in events:
            act()
        else:
            _attack.append(hear)

    _attack.append(hear)


@pytest.fixture(autouse=True)
def peace() -> Iterator[None]:
    yield
    _attack.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "locks.db"
    path.touch(0o600)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_ring_removes_no_file_that_a_link_in_place_of_the_folder_leads_to(path: Path, tmp_path: Path) -> None:
    """Whoever may write the file can name any bell in it. Once root took away /etc/shadow: no file answers a ring."""
    private = tmp_path / "etc"
    private.mkdir()
    (private / "shadow").touch()
    Path(f"{path}-bells").symlink_to(private)
    assert doorbell.ring("shadow", str(path)) is None
    assert (private / "shadow").exists()


def test_a_ring_removes_nothing_but_sockets(path: Path) -> None:
    """A folder of ours may have been put in the place of that of the bells."""
    private = Path(f"{path}-bells")
    private.mkdir()
    (private / "shadow").touch()
    assert doorbell.ring("shadow", str(path)) is False
    assert (private / "shadow").exists()


def test_the_rights_of_no_other_folder_are_changed_by_a_link_that_comes_in_time(path: Path, tmp_path: Path) -> None:
    """Once whoever owned the folder above had root give them any folder: a link, put there just before the chown."""
    private, folder = tmp_path / "private", Path(f"{path}-bells")
    private.mkdir(0o750)
    folder.mkdir(0o755)

    def swap() -> None:
        folder.rename(tmp_path / "aside")
        folder.symlink_to(private)

    just_before(("os.chown", "os.chmod"), swap)
    with contextlib.suppress(OSError):  # then it is looked at short intervals
        doorbell.SocketBell(str(path)).close()
    assert not _attack, "the attack was made"
    assert mode(private) == 0o750


def test_a_folder_with_something_in_it_is_not_given_away(path: Path) -> None:
    """Whoever may write to the folder above may rename what is there, and so put any folder in it in the place of that of the bells."""
    private = Path(f"{path}-bells")
    private.mkdir(0o750)
    (private / "diary").touch()
    doorbell.SocketBell(str(path)).close()
    assert mode(private) == 0o750


@pytest.mark.parametrize("put", ["a link", "another socket of ours"])
def test_the_rights_of_no_other_file_are_changed_by_what_is_put_in_place_of_a_bell(
    path: Path, tmp_path: Path, put: str
) -> None:
    private, folder, same = tmp_path / "private", Path(f"{path}-bells"), tmp_path / "same"
    folder.mkdir(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(private))
        private.chmod(0o640)
        os.link(private, same)  # to see it by, wherever it goes

        def swap() -> None:
            (bell,) = folder.iterdir()
            bell.unlink()
            if put == "a link":
                bell.symlink_to(private)
            else:
                private.rename(bell)

        _at_the_first_call_after_bind(swap)
        with contextlib.suppress(OSError):  # then it is looked at short intervals
            doorbell.SocketBell(str(path)).close()
        assert not _attack, "the attack was made"
        assert mode(same) == 0o640


def _at_the_first_call_after_bind(act: Callable[[], None]) -> None:
    just_before(("socket.bind",), lambda: just_before(("os.chown", "os.chmod", "open"), act))
