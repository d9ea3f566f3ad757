"""The SQLite file itself: where it may be, what may be in it, and what may happen to it."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast
from holdfast.claim import Grant, Place
from holdfast.drivers.base import finish
from holdfast.stores.sqlite import database, machine
from holdfast.stores.sqlite import store as sqlite_store
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing.conformance import claim
from holdfast.testing.manual import Manual, ManualBell


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
    assert machine.file_system_of(str(tmp_path), str(mounts)) == "nfs4"
    monkeypatch.setattr(database, "file_system_of", lambda folder: "nfs4")
    with pytest.raises(holdfast.Misuse, match=r"network file system \(nfs4\).*local disk"):
        holdfast.connect(url(path))


@pytest.mark.parametrize("kind", ["lustre", "gpfs", "beegfs", "ocfs2", "gfs2", "virtiofs", "fuse.s3fs", "fuse.juicefs"])
def test_a_file_system_of_a_cluster_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(database, "file_system_of", lambda folder: kind)
    with pytest.raises(holdfast.Misuse, match=f"network file system \\({kind}\\)"):
        holdfast.connect(url(path))


def test_a_file_system_that_is_not_known_is_used_but_told_of_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(database, "_unknown", set())
    monkeypatch.setattr(database, "file_system_of", lambda folder: "fuse.ofsomebody")
    for _ in range(2):
        with holdfast.connect(url(path)) as locks:
            locks.lock("x").acquire().release()
    (told,) = [record for record in caplog.records if "does not know" in record.message]
    assert told.levelname == "WARNING"
    assert told.name == "holdfast"
    assert "fuse.ofsomebody" in told.message
    assert "do not hold between them" in told.message


def test_a_file_system_whose_device_is_not_listed_is_found_by_its_mount_point(tmp_path: Path) -> None:
    """As btrfs is, whose files show other numbers than its mounts."""
    inner = tmp_path / "a b"
    inner.mkdir()
    mounts = tmp_path / "mountinfo"
    escaped = str(inner).replace(" ", "\\040")
    mounts.write_text(
        "36 35 7:91 / / rw - ext4 /dev/x rw\n"
        f"36 35 7:92 / {escaped} rw - btrfs /dev/y rw\n"
        f"36 35 7:93 / {escaped}x rw - nfs a:/ rw\n"
    )
    assert machine.file_system_of(str(inner), str(mounts)) == "btrfs"


def test_the_real_file_system_is_found_out() -> None:
    assert machine.file_system_of("/proc") == "proc"


def test_another_boot_frees_everything_and_keeps_the_order_of_tokens(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = holdfast.connect(url(path))
    old = before.lock("x", ttl=86400).acquire()
    far_ahead = old.token + 10**12  # as if the clock had been ahead in the boot before
    with sqlite3.connect(path) as other:
        other.execute("UPDATE holdfast_claims SET token = ?, mark = ?", (far_ahead, far_ahead))
        # The machine had been up for a day longer then.
        other.execute("UPDATE holdfast_claims SET since = since + 86400, expires = expires + 86400")
    other.close()
    monkeypatch.setattr("holdfast.stores.sqlite.store.boot_id", lambda: "another boot")
    after = holdfast.connect(url(path))
    assert after.names() == []
    held = after.lock("x", ttl=86400).acquire(timeout=0)
    assert held.token == far_ahead + 1
    # It is done once: whoever comes with yet another id finds who is there.
    monkeypatch.setattr("holdfast.stores.sqlite.store.boot_id", lambda: "a container's")
    assert holdfast.connect(url(path)).lock("x").try_acquire() is None


def test_another_boot_id_alone_frees_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers on one kernel may be given ids of their own."""
    host = holdfast.connect(url(path))
    held = host.lock("x").acquire()
    monkeypatch.setattr("holdfast.stores.sqlite.store.boot_id", lambda: "a container's")
    container = holdfast.connect(url(path))
    assert container.lock("x").try_acquire() is None
    theirs = container.lock("y").acquire(timeout=0)
    monkeypatch.undo()
    assert sorted(holdfast.connect(url(path)).names()) == ["x", "y"]
    held.check()
    theirs.check()
    assert held.release() is True


def test_a_boot_id_is_taken_over_when_nobody_holds_anything(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that to open the file costs one look again, and no transaction."""
    holdfast.connect(url(path)).close()
    monkeypatch.setattr("holdfast.stores.sqlite.store.boot_id", lambda: "the next boot")
    holdfast.connect(url(path)).close()
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT boot FROM holdfast_meta").fetchone() == ("the next boot",)
    other.close()


def test_the_clock_of_a_container_is_read_as_that_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = tmp_path / "timens_offsets"
    offsets.write_text("monotonic           0         0\nboottime       100000 500000000\n")
    assert machine.clock_offset(str(offsets)) == 100000.5
    assert machine.clock_offset(str(tmp_path / "none")) == 0.0
    monkeypatch.setattr(machine, "clock_offset", lambda: 100000.0)
    assert machine.shared_clock(lambda: 100007.0)() == 7.0


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_the_files_are_their_owners_alone_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with holdfast.connect(url(path)) as locks, ThreadPoolExecutor() as threads:
            held = locks.lock("x").acquire()
            waiting = threads.submit(lambda: locks.lock("x").acquire(timeout=30).release())
            wait_until(lambda: len(locks.inspect("x").waiters) == 1)
            made = [path.parent / name for name in os.listdir(path.parent)]
            made += [bell for folder in made if folder.is_dir() for bell in folder.iterdir()]
            assert len(made) == 5, "the file, its log, its index, the folder of bells and a bell"
            assert [one.name for one in made if one.stat().st_mode & 0o077] == []
            held.release()
            waiting.result(30)
    finally:
        os.umask(before)


def test_a_file_that_is_shared_on_purpose_stays_shared(path: Path) -> None:
    holdfast.connect(url(path)).close()
    path.chmod(0o660)
    with holdfast.connect(url(path)) as locks:
        locks.lock("x").acquire().release()
        assert path.stat().st_mode & 0o777 == 0o660
        assert Path(f"{path}-wal").stat().st_mode & 0o777 == 0o660


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


def test_a_file_locked_by_a_stuck_process_is_told_in_the_time_that_was_given(path: Path) -> None:
    locks = holdfast.connect(url(path))
    store = locks._engine.store
    mine = claim("x", 30.0)
    grant = finish(store.claim(mine))
    assert isinstance(grant, Grant)
    stuck = sqlite3.connect(path, isolation_level=None)
    stuck.execute("BEGIN IMMEDIATE")
    for call in (
        lambda: store.claim(claim("x", 30.0), 0.2),
        lambda: store.inspect("x", 0.2),
        lambda: store.release(mine, 0.2),
    ):
        began = time.monotonic()
        with pytest.raises(holdfast.Unavailable, match=r"locked by another process for 0\.2 s"):
            finish(call())
        assert time.monotonic() - began < 1.5
    (verdict,) = finish(store.renew([grant], 0.2))
    assert isinstance(verdict, holdfast.Unavailable), "unknown, and not lost"
    began = time.monotonic()
    with pytest.raises(holdfast.Unavailable):
        finish(store.watch("x", grant.token, 0.2))
    finish(store.close())
    assert time.monotonic() - began < 2.0
    stuck.execute("ROLLBACK")
    stuck.close()
    assert finish(store.release(mine))


def test_names_used_once_are_swept_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.store.RETENTION", -1.0)  # as if the retention time had passed already
    locks = holdfast.connect(url(path))
    for number in range(2000):
        locks.lock(f"once:{number}").acquire().release()
    assert rows_of(path) <= 17


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "swept by age alone"])
def test_a_last_token_is_remembered_until_the_clock_has_passed_it(
    path: Path, mistaken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it broke: a clock that was set back, an hour without use, and the next token was lower."""
    if mistaken:
        monkeypatch.setitem(sqlite_store.SQL, "sweep", sqlite_store.SQL["sweep"].replace("mark < ?3", "?3 > 0"))
    driver = Manual()
    store = SqliteStore(str(path), driver)
    first = claim("x")
    before = finish(store.claim(first))
    finish(store.release(first))
    driver.wall -= 10 * 3600 * 10**6
    driver.move(database.RETENTION + 1)
    for number in range(10):  # whoever founds a name sweeps a few others
        finish(store.claim(claim(f"new:{number}")))
    after = finish(store.claim(claim("x")))
    finish(store.close())
    assert isinstance(before, Grant)
    assert isinstance(after, Grant)
    assert (after.token > before.token) is not mistaken


def test_a_name_whose_holder_died_is_swept_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.store.RETENTION", -1.0)
    driver = Manual()
    store = SqliteStore(str(path), driver)
    for number in range(50):
        finish(store.claim(claim(f"died:{number}", 30.0)))
    driver.move(31)
    for number in range(100):
        driver.wall += 1
        used = claim(f"once:{number}", 30.0)
        finish(store.claim(used))
        finish(store.release(used))
    assert rows_of(path) <= 17
    finish(store.close())


def test_processes_that_live_for_one_lock_sweep_the_whole_file_between_them(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.stores.sqlite.store.RETENTION", -1.0)
    locks = holdfast.connect(url(path))
    held = [locks.lock(f"a:{number}").acquire() for number in range(20)]
    for number in range(60):
        with holdfast.connect(url(path)) as another:
            another.lock(f"once:{number}").acquire().release()
    assert rows_of(path) <= 20 + 17
    assert len(locks.names("a:")) == len(held)


def test_an_unfair_waiter_is_rung_when_there_is_room_for_it_though_not_for_the_head(path: Path) -> None:
    with holdfast.connect(url(path)) as locks:
        pool = locks.semaphore("pool", 2)
        first, second = pool.acquire(), pool.acquire()
        with ThreadPoolExecutor() as threads:
            big = threads.submit(lambda: pool.acquire(units=2, timeout=30).release())
            wait_until(lambda: len(locks.inspect("pool").waiters) == 1)
            pushy = threads.submit(lambda: locks.semaphore("pool", 2, fair=False).acquire(timeout=30).release())
            wait_until(lambda: len(locks.inspect("pool").waiters) == 2)
            second.release()
            pushy.result(5)  # far less than the 10 s after which it would look by itself
            first.release()
            big.result(5)


def test_without_sockets_to_be_had_waiting_and_watching_still_work(path: Path) -> None:
    class Deaf(Manual):
        def doorbell(self, beside: str) -> ManualBell:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    driver = Deaf()
    store = SqliteStore(str(path), driver)
    held, next_one = claim("x", 30.0), claim("x", 30.0)
    grant = finish(store.claim(held))
    place = finish(store.claim(next_one))
    assert isinstance(grant, Grant)
    assert isinstance(place, Place)
    before = driver.now()
    finish(store.wait(place, 10))
    finish(store.watch("x", grant.token, 10))
    assert driver.now() - before < 0.2
    finish(store.release(held))
    assert isinstance(finish(store.claim(next_one)), Grant)
    finish(store.close())


def wait_until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.005)


def rows_of(path: Path) -> int:
    other = sqlite3.connect(path)
    (rows,) = other.execute("SELECT count(*) FROM holdfast_claims").fetchone()
    other.close()
    return int(rows)


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
