"""holdfast on a Mac and on Windows, as far as Linux can tell: in a process from which what they lack was taken away."""

from __future__ import annotations

import errno
import ntpath
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast import connecting
from holdfast.drivers.polling import POLLIN, POLLOUT, BySelect
from holdfast.stores import sqlite
from holdfast.testing import servers

ROOT = Path(__file__).parents[2]
SYSTEMS = ("macos", "windows")
ONE_KIND = " and ".join(f"not {kind}" for kind in ("semaphore", "all_of", "reentrant", "write", "unfair", "leadership"))


def on(system: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "HOLDFAST_"))}
    environment = inherited | {"PLATFORM": system, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **more}
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120
    )


def conform(system: str, tmp_path: Path, *stores: str, **more: str) -> None:
    alone = f"-p tests.platforms.without -p no:cacheprovider --noconftest -c {os.devnull} -q".split()
    alone += [
        f"--rootdir={ROOT}",
        f"--confcutdir={ROOT}",
    ]  # or it looks through the folders above, where files come and go
    tests = [f"tests/platforms/short.py::{one}" for one in ("test_it_is_gone", *stores)]
    chosen = ["-k", ONE_KIND, "--basetemp", str(tmp_path / "stores"), *tests]
    done = on(system, "-m", "pytest", *alone, *chosen, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", **more)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("system", SYSTEMS)
def test_memory_and_sqlite_conform_without_what_the_system_lacks(system: str, tmp_path: Path) -> None:
    conform(system, tmp_path, "TestMemory", "TestSqlite")


@pytest.mark.server
@pytest.mark.parametrize("system", SYSTEMS)
def test_redis_conforms_without_what_the_system_lacks(system: str, tmp_path: Path) -> None:
    with servers.start("redis", "--appendonly", "no") as redis:
        conform(system, tmp_path, "TestRedis", PLATFORM_REDIS=redis.url)


COMMAND = """
import sys
from tests.platforms import without
without.become(without.os.environ["PLATFORM"])
from holdfast.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_command_looks_at_locks_everywhere(system: str, tmp_path: Path) -> None:
    done = on(system, "-c", COMMAND, "ls", "--url", f"sqlite://{tmp_path}/locks.db")
    assert (done.returncode, done.stderr) == (0, "No locks are in use.\n")


def test_a_command_runs_under_a_lock_on_a_mac(tmp_path: Path) -> None:
    script = "import os; print(int(os.environ['HOLDFAST_TOKEN']) > 0)"
    command = ["run", "job", "--url", f"sqlite://{tmp_path}/locks.db", "--", sys.executable, "-c", script]
    done = on("macos", "-c", COMMAND, *command)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.parametrize("command", [["run", "job", "--", "true"], ["demo"]])
def test_a_command_that_needs_posix_says_so_on_windows(command: list[str]) -> None:
    done = on("windows", "-c", COMMAND, *command)
    assert done.returncode == 125
    assert f"holdfast {command[0]}: it needs POSIX" in done.stderr
    assert "Traceback" not in done.stderr


IMPORTS = """
from tests.platforms import without
without.become(without.os.environ["PLATFORM"])
import holdfast.aio, holdfast.compat.filelock, holdfast.fenced.aio, holdfast.lockfree, holdfast.sql.aio
import holdfast.doctor, holdfast.observe.book, holdfast.stores.etcd, holdfast.stores.consul, holdfast.stores.redlock
try:
    holdfast.fenced.files.File("x", 1)
except holdfast.Misuse as error:
    print(error)
"""


def test_all_of_it_can_be_imported_on_windows_and_a_fenced_file_says_what_it_lacks() -> None:
    done = on("windows", "-c", IMPORTS)
    assert (done.returncode, done.stderr) == (0, "")
    assert "needs the locks of POSIX" in done.stdout


# ---- what does instead


def test_a_file_on_windows_has_a_url_and_the_url_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    windows = SimpleNamespace(path=ntpath, sep="\\", fsencode=os.fsencode)
    monkeypatch.setattr(connecting, "os", windows)
    monkeypatch.setattr(sqlite, "os", windows)
    url = connecting.file_url(r"C:\Users\Zoë 100%?\locks.db")
    assert url == "sqlite:///C:/Users/Zoë 100%25%3F/locks.db"
    assert sqlite.file_of(url) == "C:/Users/Zoë 100%?/locks.db"


def test_a_file_elsewhere_has_the_url_that_it_always_had() -> None:
    assert connecting.file_url("/var/lib/a%b?.db") == "sqlite:///var/lib/a%25b%3F.db"
    assert sqlite.file_of("sqlite:////var/lib/a%25b%3F.db") == "/var/lib/a%b?.db"
    assert sqlite.file_of("sqlite:///C:/x.db") == "/C:/x.db"
    assert sqlite.file_of("sqlite://./x.db") == os.path.abspath("x.db")


def test_select_waits_for_sockets_as_poll_does() -> None:
    here, there = socket.socketpair()
    with here, there:
        ready = BySelect()
        ready.register(here, POLLIN)
        assert ready.poll(0) == []
        there.send(b"x")
        assert ready.poll(5000) == [(here.fileno(), POLLIN)]
        ready.register(here.fileno(), POLLIN | POLLOUT)
        assert ready.poll(5000) == [(here.fileno(), POLLIN | POLLOUT)]
    assert BySelect().poll(1) == [], "nothing to wait for is waited for"


def test_a_refused_connection_is_told_by_select_too() -> None:
    with socket.socket() as taken, socket.socket() as plain:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        plain.setblocking(False)
        assert plain.connect_ex(taken.getsockname()) in (errno.EINPROGRESS, errno.ECONNREFUSED)
        ready = BySelect()
        ready.register(plain, select.POLLOUT)
        assert ready.poll(5000), "it ends, one way or the other"
