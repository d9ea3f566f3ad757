"""Bells beside the file: who may ring, from where, and what is left of those who were killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import aio
from holdfast.claim import Grant, Place
from holdfast.drivers import doorbell
from holdfast.drivers.base import finish
from holdfast.testing.conformance import claim

DEADLINE = 30.0
LONG_BEFORE_IT_WOULD_LOOK = 5.0  # by itself it looks after ten seconds

WAIT = """if True:
    import sys, holdfast
    with holdfast.connect(sys.argv[1]).lock("x").acquire(timeout=60):
        print("inside", flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def waiter(path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """A process that waits for `x`, and says when it is inside."""
    started: list[subprocess.Popen[str]] = []
    locks = holdfast.connect(f"sqlite://{path}")

    def start(*prefix: str, at: Path = path) -> subprocess.Popen[str]:
        before = len(locks.inspect("x").waiters)
        one = subprocess.Popen(
            [*prefix, sys.executable, "-c", WAIT, f"sqlite://{at}"], stdout=subprocess.PIPE, text=True
        )
        started.append(one)
        until(lambda: len(locks.inspect("x").waiters) == before + 1)
        return one

    yield start
    for one in started:
        one.kill()
        one.wait()
        assert one.stdout is not None
        one.stdout.close()
    locks.close()


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < give_up, "it did not happen in time"
        time.sleep(0.005)


def heard(one: subprocess.Popen[str]) -> float:
    """How long until it is inside."""
    began = time.monotonic()
    assert one.stdout is not None
    assert one.stdout.readline() == "inside\n"
    return time.monotonic() - began


def bells(path: Path) -> list[Path]:
    folder = Path(f"{path}-bells")
    return list(folder.iterdir()) if folder.exists() else []


def needs_root() -> None:
    if os.geteuid() != 0:
        pytest.fail("this test makes namespaces and changes users, and needs root, as `make test` says")


def test_a_bell_is_heard_in_another_network_namespace(path: Path, waiter: Callable[..., subprocess.Popen[str]]) -> None:
    needs_root()
    with holdfast.connect(f"sqlite://{path}") as locks:
        held = locks.lock("x").acquire()
        there = waiter("unshare", "--net")
        held.release()
        assert heard(there) < LONG_BEFORE_IT_WOULD_LOOK


def test_a_bell_is_heard_where_the_folder_is_mounted_elsewhere(
    path: Path, tmp_path_factory: pytest.TempPathFactory, waiter: Callable[..., subprocess.Popen[str]]
) -> None:
    needs_root()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with holdfast.connect(f"sqlite://{path}") as locks:
        held = locks.lock("x").acquire()
        mount = f'mount --bind {path.parent} {elsewhere} && exec "$@"'
        there = waiter("unshare", "--mount", "sh", "-c", mount, "sh", at=elsewhere / path.name)
        held.release()
        assert heard(there) < LONG_BEFORE_IT_WOULD_LOOK


def test_another_clock_in_a_container_ends_no_lock(path: Path) -> None:
    needs_root()
    script = f"import holdfast; print(holdfast.connect('sqlite://{path}').lock('x').try_acquire())"
    with holdfast.connect(f"sqlite://{path}") as locks, locks.lock("x") as lease:
        for ahead in ("100000", "-10"):
            container = ["unshare", "--time", "--boottime", ahead, "--fork", sys.executable, "-c", script]
            done = subprocess.run(container, capture_output=True, text=True, timeout=60, check=True)
            assert done.stdout == "None\n"
        assert locks.inspect("x").holders[0].token == lease.token


def test_a_path_that_is_too_long_for_a_socket_rings_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    with holdfast.connect(f"sqlite://{folder}/locks.db") as locks:
        held = locks.lock("x").acquire()
        inside = threading.Event()

        def wait() -> None:
            with locks.lock("x").acquire(timeout=30):
                inside.set()

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: bells(folder / "locks.db"))
        held.release()
        assert inside.wait(LONG_BEFORE_IT_WOULD_LOOK)
        thread.join()


def test_another_user_can_neither_ring_nor_find_out_whom(
    path: Path, waiter: Callable[..., subprocess.Popen[str]]
) -> None:
    needs_root()
    os.umask(0o022)
    for parent in path.parents:  # so that it is the bell that is closed to others, and no folder above it
        if parent.is_relative_to(tempfile.gettempdir()) and str(parent) != tempfile.gettempdir():
            parent.chmod(0o755)
    with holdfast.connect(f"sqlite://{path}") as locks, locks.lock("x"):
        waiter()
        (bell,) = bells(path)
        assert bell.name in socket_names(), "it is open"
        script = f"""if True:
            import os, socket
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
            os.chdir({str(path.parent)!r})  # a socket's whole path may be longer than sockets can tell
            sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            for path in ({str(bell.relative_to(path.parent))!r}, "\\0" + {bell.name!r}):
                try:
                    sender.sendto(b"!", path)
                    print("rung")
                except OSError as error:
                    print(type(error).__name__)
            try:
                print(os.listdir({str(bell.parent)!r}))
            except OSError as error:
                print(type(error).__name__)
        """
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.split() == ["PermissionError", "ConnectionRefusedError", "PermissionError"]


def socket_names() -> str:
    return Path("/proc/net/unix").read_text()


def test_a_folder_of_bells_that_somebody_else_has_made_is_not_used(path: Path) -> None:
    """In a folder like /tmp: whoever owns it could take the bells away. Then it is looked again at short intervals."""
    needs_root()
    folder = Path(f"{path}-bells")
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    with holdfast.connect(f"sqlite://{path}") as locks:
        held = locks.lock("x").acquire()
        inside = threading.Event()

        def wait() -> None:
            with locks.lock("x").acquire(timeout=30):
                inside.set()

        thread = threading.Thread(target=wait)
        thread.start()
        until(lambda: locks.inspect("x").waiters)
        assert bells(path) == []
        held.release()
        assert inside.wait(LONG_BEFORE_IT_WOULD_LOOK)
        thread.join()


def test_a_link_in_place_of_the_folder_of_bells_is_not_followed(path: Path, tmp_path: Path) -> None:
    path.touch()
    (tmp_path / "other").mkdir()
    Path(f"{path}-bells").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match=r"Not a directory|belongs to somebody else"):
        doorbell.SocketBell(str(path))
    assert list((tmp_path / "other").iterdir()) == []


def test_bells_have_the_rights_of_the_file(path: Path) -> None:
    path.touch(0o600)
    for mode, of_folder in ((0o600, 0o700), (0o660, 0o1770), (0o666, 0o1777), (0o600, 0o700)):
        path.chmod(mode)
        bell = doorbell.SocketBell(str(path))
        (made,) = bells(path)
        assert stat.S_IMODE(made.stat().st_mode) == mode
        assert stat.S_IMODE(made.parent.stat().st_mode) == of_folder
        bell.close()
    assert bells(path) == []


def test_a_killed_waiter_is_passed_over_at_once_and_its_bell_goes(
    path: Path, waiter: Callable[..., subprocess.Popen[str]]
) -> None:
    with holdfast.connect(f"sqlite://{path}") as locks:
        held = locks.lock("x").acquire()
        first = waiter()
        second = waiter()
        first.kill()
        first.wait()
        assert len(bells(path)) == 2
        held.release()
        assert heard(second) < LONG_BEFORE_IT_WOULD_LOOK
        second.wait(DEADLINE)
    assert bells(path) == []


def test_what_the_killed_have_left_is_swept_and_what_is_in_use_is_not(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.touch(0o600)
    alive = doorbell.SocketBell(str(path))
    folder = Path(f"{path}-bells")
    for name, age in (("old", 3600), ("young", 0)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
            dead.bind(str(folder / name))
        os.utime(folder / name, (time.time() - age,) * 2)
    os.utime(folder / alive.address, (time.time() - 3600,) * 2)
    (folder / "a file").touch()
    os.utime(folder / "a file", (0, 0))
    doorbell._swept.discard(str(folder))
    doorbell.SocketBell(str(path)).close()
    assert sorted(one.name for one in bells(path)) == sorted(["a file", "young", alive.address])
    assert doorbell.ring(alive.address, str(path)) is True
    alive.close()


def test_a_bell_is_rung_gone_or_out_of_reach(path: Path) -> None:
    path.touch(0o600)
    bell = doorbell.SocketBell(str(path))
    assert doorbell.ring(bell.address, str(path)) is True
    for _ in range(1000):
        assert doorbell.ring(bell.address, str(path)) is True, "a full buffer is a ring that was heard"
    bell.close()
    assert doorbell.ring(bell.address, str(path)) is False
    assert doorbell.ring("4026531840:0004f", str(path)) is None, "an address of an earlier version"
    assert doorbell.ring("../../etc", str(path)) is None


def test_a_forked_child_leaves_the_bell_of_its_parent_alone(path: Path) -> None:
    store: Any = holdfast.connect(f"sqlite://{path}")._engine.store
    finish(store.claim(claim("x", 30.0)))
    place = finish(store.claim(claim("x", 30.0)))
    assert isinstance(place, Place)
    child = os.fork()
    if child == 0:
        store.forked()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    (bell,) = bells(path)
    assert doorbell.ring(bell.name, str(path)) is True
    finish(store.close())


# ---- the end


def test_who_waits_and_who_watches_is_woken_in_threads(path: Path) -> None:
    store: Any = holdfast.connect(f"sqlite://{path}")._engine.store
    grant = finish(store.claim(claim("x", 30.0)))
    place = finish(store.claim(claim("x", 30.0)))
    assert isinstance(grant, Grant)
    threads = [
        threading.Thread(target=lambda: finish(store.wait(place, 60.0))),
        threading.Thread(target=lambda: finish(store.watch("x", grant.token, 25.0))),
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(store._listening) == 2 and len(bells(path)) == 2)
    store.wake_waiters()
    for thread in threads:
        thread.join(LONG_BEFORE_IT_WOULD_LOOK)
        assert not thread.is_alive()
    finish(store.close())
    assert bells(path) == []


def test_who_waits_and_who_watches_is_woken_in_asyncio(path: Path) -> None:
    async def main() -> None:
        store: Any = aio.connect(f"sqlite://{path}")._engine.store
        grant = await store.claim(claim("x", 30.0))
        place = await store.claim(claim("x", 30.0))
        waits = [
            asyncio.ensure_future(store.wait(place, 60.0)),
            asyncio.ensure_future(store.watch("x", grant.token, 25.0)),
        ]
        await asyncio.sleep(0.2)
        assert len(bells(path)) == 2
        assert not any(one.done() for one in waits)
        store.wake_waiters()
        async with asyncio.timeout(LONG_BEFORE_IT_WOULD_LOOK):
            await asyncio.gather(*waits)
        await store.close()

    asyncio.run(main())
    assert bells(path) == []


_CLOSE_IN_USE = """if True:
    import sys, threading, time, holdfast
    for number in range(20):
        locks = holdfast.connect(sys.argv[1])
        started = threading.Barrier(4)
        def use():
            started.wait()
            try:
                while True:
                    with locks.lock("a", ttl=5):
                        pass
            except holdfast.HoldfastError:
                pass
        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        started.wait()
        time.sleep(0.02)
        locks.close()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
    print("alive")
"""


def test_closing_while_other_threads_use_it_ends_nothing_but_their_work(path: Path) -> None:
    """It was a segmentation fault: SQLite frees a connection that another thread is in."""
    done = subprocess.run(
        [sys.executable, "-c", _CLOSE_IN_USE, f"sqlite://{path}"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode != -signal.SIGSEGV
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_a_connection_is_closed_only_when_nobody_uses_it(path: Path) -> None:
    locks = holdfast.connect(f"sqlite://{path}")
    locks.lock("x").acquire().release()
    database: Any = locks._engine.store._database  # type: ignore[attr-defined]
    asked, granted = threading.Event(), threading.Event()

    class Mutex:
        """Taken by another thread, which is in the middle of a statement."""

        def __enter__(self) -> None:
            asked.set()
            granted.wait(20)

        def __exit__(self, *_: object) -> None:
            return None

    usual, database._mutex = database._mutex, Mutex()
    closing = threading.Thread(target=database.close)
    closing.start()
    while closing.is_alive() and not asked.is_set():
        asked.wait(0.01)
    assert database._connection is not None
    granted.set()
    closing.join(20)
    database._mutex = usual  # whoever forks takes it
    assert database._connection is None


def test_a_last_word_after_the_end_leaves_no_connection_open(path: Path) -> None:
    store: Any = holdfast.connect(f"sqlite://{path}")._engine.store
    mine = claim("x", 30.0)
    finish(store.claim(mine))
    finish(store.close())
    assert finish(store.release(mine)) is True
    assert store._database._connection is None
