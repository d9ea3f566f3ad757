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
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.dashboard.history import History
from holdfast.drivers import doorbell
from holdfast.errors import Misuse

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")

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
    """Whoever may write to the folder above may rename what is there, and so put another folder in the place of the bells."""
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


# ---- the file itself


@pytest.fixture
def open_to_all(tmp_path: Path) -> Path:
    """As /tmp is."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@as_root
@pytest.mark.parametrize("planted", ["locks.db", "locks.db-wal", "locks.db-shm", "locks.db-journal"])
def test_no_link_that_another_user_has_put_in_place_of_a_file_of_the_store_is_followed(
    tmp_path: Path, open_to_all: Path, planted: str
) -> None:
    """SQLite finds out by itself where a link leads, and makes the file there, as root and for all to read."""
    (open_to_all / planted).symlink_to(tmp_path / "private")
    os.chown(open_to_all / planted, 65534, 65534, follow_symlinks=False)
    with pytest.raises(Misuse, match=f"{planted} belongs to another user"):
        holdfast.connect(f"sqlite://{open_to_all}/locks.db")
    assert not (tmp_path / "private").exists()


@as_root
@pytest.mark.parametrize("planted", ["history.db", "history.db-journal"])
def test_a_history_that_another_user_has_put_in_place_is_not_used(open_to_all: Path, planted: str) -> None:
    (open_to_all / planted).touch(0o666)
    os.chown(open_to_all / planted, 65534, 65534)
    with pytest.raises(Misuse, match="a file of another user"):
        History(str(open_to_all / "history.db"))


@as_root
def test_no_link_that_another_user_has_put_in_place_of_the_history_is_followed(
    tmp_path: Path, open_to_all: Path
) -> None:
    (open_to_all / "history.db").symlink_to(tmp_path / "private")
    os.chown(open_to_all / "history.db", 65534, 65534, follow_symlinks=False)
    with pytest.raises(Misuse, match="a link of another user"):
        History(str(open_to_all / "history.db"))
    assert not (tmp_path / "private").exists()


@as_root
def test_a_file_that_another_user_has_put_into_a_folder_open_to_all_is_no_store(open_to_all: Path) -> None:
    theirs = open_to_all / "locks.db"
    theirs.touch(0o666)
    os.chown(theirs, 65534, 65534)
    with pytest.raises(Misuse, match="belongs to another user"):
        holdfast.connect(f"sqlite://{theirs}")
    open_to_all.chmod(0o755)  # where they share it on purpose
    with holdfast.connect(f"sqlite://{theirs}") as locks, locks.lock("x"):
        pass


def test_a_folder_where_all_may_write_is_warned_of_once(open_to_all: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with holdfast.connect(f"sqlite://{open_to_all}/locks.db") as locks, locks.lock("x"):
            pass
    assert caplog.text.count("every user may write to the folder") == 1


def test_who_finds_the_file_by_a_link_hears_the_same_bells(tmp_path: Path) -> None:
    """And the files beside it are made where it is, for its owner only."""
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "locks.db")
    old = os.umask(0)
    try:
        with (
            holdfast.connect(f"sqlite://{link}") as by_link,
            holdfast.connect(f"sqlite://{tmp_path}/locks.db") as direct,
        ):
            held = direct.lock("x").acquire(timeout=0)
            entered = threading.Event()

            def wait() -> None:
                with by_link.lock("x").acquire(timeout=30):
                    entered.set()

            thread = threading.Thread(target=wait)
            thread.start()
            give_up = time.monotonic() + 30
            while not direct.inspect("x").waiters:
                assert time.monotonic() < give_up
                time.sleep(0.005)
            assert len(list((tmp_path / "locks.db-bells").iterdir())) == 1
            assert not (tmp_path / "link.db-bells").exists()
            made = {one.name: mode(one) for one in tmp_path.glob("locks.db*") if one.is_file()}
            assert set(made.values()) == {0o600}, made
            held.release()
            assert entered.wait(30)
            thread.join()
    finally:
        os.umask(old)
