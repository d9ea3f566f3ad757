"""A holder is stopped between its read and its write, past its ttl; a successor works; the first wakes and writes.

Unfenced, its write lands and an acknowledged update is lost: that is asserted, so that the test has teeth. Fenced, it is
refused and nothing is lost. `HOLDFAST_ROUNDS=200` (make soak) for the long form.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

import holdfast
from holdfast.fenced.http.wsgi import FencingMiddleware

from .bank import NAME, TTL, Bank, open_bank

ROUNDS = int(os.environ.get("HOLDFAST_ROUNDS", "10"))
UNFENCED = 2
SECONDS = 30.0

STORAGES = [
    "sqlite",
    "file",
    "http",
    pytest.param("postgresql", marks=pytest.mark.server),
    pytest.param("mariadb", marks=pytest.mark.server),
    pytest.param("redis", marks=pytest.mark.server),
    pytest.param("etcd", marks=pytest.mark.server),
    pytest.param("zookeeper", marks=pytest.mark.server),
    pytest.param("seaweedfs", marks=pytest.mark.server),
]
FIXTURES = {"http": "http_bank", "redis": "redis_url", "etcd": "etcd_url", "zookeeper": "zookeeper_hosts"}
LOCKS = ["sqlite", pytest.param("redis", marks=pytest.mark.server)]


@pytest.fixture
def http_bank() -> Iterator[str]:
    balance = {"": 0}

    def service(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        if environ["REQUEST_METHOD"] == "PUT":
            balance[""] = int(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        start_response("200 OK", [("content-type", "text/plain")])
        return [str(balance[""]).encode()]

    guarded = FencingMiddleware(service)

    class Quiet(WSGIRequestHandler):
        def log_message(self, *_: Any) -> None:
            return

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        return (service if environ["PATH_INFO"] == "/unguarded" else guarded)(environ, start_response)

    server = make_server("127.0.0.1", 0, app, handler_class=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(params=STORAGES)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    kind: str = request.param
    if kind in ("sqlite", "file"):
        return kind, str(tmp_path / "bank")
    return kind, request.getfixturevalue(FIXTURES.get(kind, kind))


@pytest.fixture(params=LOCKS)
def locks_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db" if request.param == "sqlite" else str(request.getfixturevalue("redis_url"))


class UnluckyHolder:
    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name("bank.py")), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def hold_and_stop(self, how: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{how}\n")
        deadline = time.monotonic() + SECONDS
        while True:
            pid, status = os.waitpid(self.process.pid, os.WUNTRACED | os.WNOHANG)
            if pid and os.WIFSTOPPED(status):
                return
            assert not pid, f"the holder ended: {status}"
            assert time.monotonic() < deadline, "the holder did not come to its stop"
            time.sleep(0.002)

    def wake(self) -> str:
        assert self.process.stdout
        os.kill(self.process.pid, signal.SIGCONT)
        assert select.select([self.process.stdout], [], [], SECONDS)[0], "the holder does not answer"
        return self.process.stdout.readline().strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=SECONDS)


def play(holder: UnluckyHolder, bank: Bank, locks: holdfast.Locks, how: str) -> tuple[str, int]:
    """One round: what became of the late write, and how far the balance rose."""
    start = bank.read(None)
    holder.hold_and_stop(how)
    with locks.lock(NAME, ttl=30).acquire(timeout=SECONDS) as lease:  # as soon as the stopped holder's ttl is over
        shown = lease if how == "fenced" else None
        bank.write(shown, bank.read(shown) + 1)
    answer = holder.wake()
    return answer, bank.read(None) - start


@pytest.mark.timeout(60 + 3 * ROUNDS * TTL + 2 * ROUNDS)
def test_a_holder_that_was_stopped_past_its_ttl_loses_nothing_of_its_successor(
    storage: tuple[str, str], locks_url: str
) -> None:
    bank = open_bank(*storage)
    locks = holdfast.connect(locks_url)
    holder = UnluckyHolder(locks_url, *storage)
    try:
        for _ in range(UNFENCED):
            assert play(holder, bank, locks, "unfenced") == ("written", 1), "two updates acknowledged, one of them lost"
        for _ in range(ROUNDS):
            assert play(holder, bank, locks, "fenced") == ("refused", 1)
    finally:
        holder.end()
        locks.close()
        connection = getattr(bank, "connection", None) or getattr(bank, "client", None)
        if connection is not None:
            getattr(connection, "stop", lambda: None)()
            connection.close()
