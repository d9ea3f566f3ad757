"""The SQLite file itself: where it may be, what may be in it, and what may happen to it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.stores.sqlite import database
from holdfast.stores.sqlite.store import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


def url(path: Path) -> str:
    return f"sqlite://{path}"


def test_a_folder_is_refused_with_a_file_to_use_instead(tmp_path: Path) -> None:
    with pytest.raises(holdfast.Misuse, match=r"is a folder: name a file in it, such as .*locks\.db"):
        holdfast.connect(url(tmp_path))


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(holdfast.Misuse, match=r"the folder .*/nowhere does not exist"):
        holdfast.connect(url(tmp_path / "nowhere" / "locks.db"))


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("to be or not to be" * 100)
    with pytest.raises(holdfast.Misuse, match="is not an SQLite database"):
        holdfast.connect(url(path))
    assert path.read_text().startswith("to be")


def test_a_file_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    holdfast.connect(url(path)).close()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE holdfast_meta SET version = 99")
    other.close()
    with pytest.raises(holdfast.Misuse, match=r"made by a newer holdfast .*version 99.*upgrade"):
        holdfast.connect(url(path))
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT version FROM holdfast_meta").fetchone() == (99,)
    other.close()


def test_a_read_only_file_says_what_permission_is_needed() -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    file = folder / "locks.db"
    holdfast.connect(url(file)).close()
    file.chmod(0o444)
    folder.chmod(0o555)
    # As another user, since permissions do not bind root; everything is imported before it lets go of its rights.
    script = f"""if True:
        import os, holdfast, holdfast.stores.sqlite
        if os.geteuid() == 0:
            os.setuid(65534)
        holdfast.connect({url(file)!r})
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    folder.chmod(0o755)
    shutil.rmtree(folder)
    assert "cannot be opened for writing" in done.stderr
    assert "write permission on the file and on its folder" in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.fail("this test mounts a small tmpfs and needs root, as `make test` says")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_and_loses_nothing(small_disk: Path) -> None:
    locks = holdfast.connect(url(small_disk / "locks.db"))
    held = locks.lock("held").acquire()
    filler = small_disk / "filler"
    with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(b"x" * 1024)
    with pytest.raises(holdfast.Unavailable, match="disk is full"):
        for number in range(1000):
            locks.lock(f"name:{number}" + "x" * 400).acquire()
    filler.unlink()
    held.check()
    assert locks.inspect("held").holders[0].token == held.token
    assert held.release()
    locks.close()


def test_a_removed_file_is_noticed_and_the_loss_told(path: Path) -> None:
    locks = holdfast.connect(url(path))
    lease = locks.lock("x", ttl=0.6).acquire()
    path.unlink()
    assert lease.lost.wait(10)
    with pytest.raises(holdfast.LeaseLost):
        lease.check()
    again = holdfast.connect(url(path)).lock("x").acquire(timeout=0)
    assert again.token > lease.token


def test_a_claim_in_a_replaced_file_is_refused_once_and_then_made_in_the_new_one(path: Path) -> None:
    locks = holdfast.connect(url(path))
    locks.lock("x").acquire().release()
    path.unlink()
    other = holdfast.connect(url(path))
    with other.lock("x"), pytest.raises(holdfast.NotAcquired):
        # The first attempt notices, the engine repeats it, and it then meets the holder in the new file.
        locks._engine.store._database._looked_at = 0.0  # type: ignore[attr-defined]  # as if 0.1 s had passed
        locks.lock("x").acquire(timeout=0)


def test_a_network_file_system_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw - nfs4 server:/export rw\n")
    assert database.file_system_of(str(tmp_path), str(mounts)) == "nfs4"
    monkeypatch.setattr(database, "file_system_of", lambda folder: "nfs4")
    with pytest.raises(holdfast.Misuse, match=r"network file system \(nfs4\).*local disk"):
        holdfast.connect(url(path))


def test_the_real_file_system_is_found_out() -> None:
    assert database.file_system_of("/proc") == "proc"


def test_another_boot_frees_everything_and_keeps_the_order_of_tokens(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = holdfast.connect(url(path))
    old = before.lock("x").acquire()
    far_ahead = old.token + 10**12  # as if the clock had been ahead in the boot before
    with sqlite3.connect(path) as other:
        other.execute("UPDATE holdfast_claims SET token = ?, mark = ?", (far_ahead, far_ahead))
    other.close()
    monkeypatch.setattr("holdfast.stores.sqlite.store.boot_id", lambda: "another boot")
    after = holdfast.connect(url(path))
    assert after.names() == []
    assert after.lock("x").acquire(timeout=0).token == far_ahead + 1


def test_a_token_at_its_limit_is_refused_and_never_wraps(path: Path) -> None:
    locks = holdfast.connect(url(path))
    locks.lock("x").acquire().release()
    with sqlite3.connect(path) as other:
        other.execute("UPDATE holdfast_claims SET mark = ?", (2**53 - 1,))
    other.close()
    with pytest.raises(holdfast.Unavailable, match="tokens of 'x' are used up"):
        locks.lock("x").acquire(timeout=0)
    assert locks.names() == []


def test_tokens_rise_when_an_older_copy_of_the_file_is_restored(path: Path, tmp_path: Path) -> None:
    locks = holdfast.connect(url(path))
    locks.lock("x").acquire().release()
    locks.close()
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    locks = holdfast.connect(url(path))
    newest = locks.lock("x").acquire()
    locks.close()
    shutil.copy(backup, path)
    assert holdfast.connect(url(path)).lock("x").acquire(timeout=0).token > newest.token


def test_a_file_locked_by_a_stuck_process_is_told_in_bounded_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = holdfast.connect(url(path))
    monkeypatch.setattr(database, "BUSY_PATIENCE", 0.2)
    monkeypatch.setattr(database.Database.transact, "__defaults__", (0.2,))
    stuck = sqlite3.connect(path, isolation_level=None)
    stuck.execute("BEGIN IMMEDIATE")
    with pytest.raises(holdfast.Unavailable, match=r"locked by another process for 0\.2 s"):
        locks.lock("x").acquire(timeout=0)
    stuck.execute("ROLLBACK")
    stuck.close()
    locks.lock("x").acquire(timeout=0)


def test_names_used_once_are_swept_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.store.RETENTION", -1.0)  # as if the retention time had passed already
    locks = holdfast.connect(url(path))
    for number in range(2000):
        locks.lock(f"once:{number}").acquire().release()
    with sqlite3.connect(path) as other:
        (rows,) = other.execute("SELECT count(*) FROM holdfast_claims").fetchone()
    other.close()
    assert rows <= 16


def test_a_name_in_use_is_not_swept_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.store.RETENTION", -1.0)
    locks = holdfast.connect(url(path))
    first = locks.semaphore("held", 2).acquire()
    second = locks.semaphore("held", 2).acquire()
    first.release()  # its row is the name's memory, and expired at once
    for number in range(100):
        locks.lock(f"once:{number}").acquire().release()
    assert [holding.token for holding in locks.inspect("held").holders] == [second.token]
    assert locks.semaphore("held", 2).acquire(timeout=0).token > second.token


@pytest.mark.parametrize(
    "wrong", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://host/path", "sqlite:///a?b=c"]
)
def test_a_url_that_names_no_file_is_refused(wrong: str) -> None:
    with pytest.raises(holdfast.Misuse, match="sqlite"):
        holdfast.connect(wrong)


def test_any_path_can_be_written_as_a_url(tmp_path: Path) -> None:
    odd = tmp_path / "100% sure? yes & no.db"
    holdfast.connect(f"sqlite://{str(odd).replace('%', '%25').replace('?', '%3F')}").close()
    assert odd.exists()


def test_a_path_from_the_current_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    locks = holdfast.connect("sqlite://./here.db")
    store = locks._engine.store
    assert isinstance(store, SqliteStore)
    assert store._database.path == str(tmp_path / "here.db")
