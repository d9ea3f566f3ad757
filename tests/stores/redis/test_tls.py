"""TLS and Unix sockets, on a real server."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Misuse, Unavailable, aio
from holdfast.stores.redis.ear import ThreadEar
from holdfast.testing import servers
from holdfast.testing.ports import ReservedPort
from holdfast.testing.servers.redis import Redis

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def tls(certificate: Path) -> Iterator[tuple[Redis, int]]:
    port = ReservedPort()
    files = ("--tls-cert-file", str(certificate / "cert.pem"), "--tls-key-file", str(certificate / "key.pem"))
    trust = ("--tls-ca-cert-file", str(certificate / "cert.pem"), "--tls-auth-clients", "no")
    with servers.start("redis", "--tls-port", str(port.number), *files, *trust) as server:
        yield server, port.number
    port.close()


def test_locks_go_over_tls(tls: tuple[Redis, int], certificate: Path) -> None:
    _, port = tls
    url = f"rediss://127.0.0.1:{port}?ca={certificate / 'cert.pem'}"
    with holdfast.connect(url) as locks, locks.lock("x") as lease:
        assert [one.token for one in locks.inspect("x").holders] == [lease.token]

    async def main() -> None:
        async with aio.connect(url) as locks, locks.lock("x") as lease:
            assert lease.held

    asyncio.run(main())


def test_a_certificate_that_is_not_trusted_is_refused_and_says_what_to_do(tls: tuple[Redis, int]) -> None:
    _, port = tls
    with holdfast.connect(f"rediss://127.0.0.1:{port}") as locks, pytest.raises(Misuse, match="ca, cert, cert_key"):
        locks.lock("x").acquire(timeout=20)

    async def main() -> None:
        async with aio.connect(f"rediss://127.0.0.1:{port}") as locks:
            with pytest.raises(Misuse, match="ca, cert, cert_key"):
                await locks.lock("x").acquire(timeout=20)

    asyncio.run(main())


def test_tls_to_a_server_that_speaks_none_is_an_error_that_says_so_and_not_a_hang(redis: Redis) -> None:
    url = redis.url.replace("redis://", "rediss://") + "?timeout=1"
    with holdfast.connect(url) as locks, pytest.raises(Unavailable, match="if it speaks no TLS, write redis://"):
        locks.ping()

    async def main() -> None:
        async with aio.connect(url) as locks:
            with pytest.raises(Unavailable, match="if it speaks no TLS, write redis://"):
                await locks.ping()

    asyncio.run(main())


def test_locks_go_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with servers.start("redis", "--unixsocket", str(path)):
        with holdfast.connect(f"unix://{path}?db=1") as locks, locks.lock("x"):
            assert locks.names() == ["x"]

        async def main() -> None:
            async with aio.connect(f"unix://{path}?db=1") as locks, locks.lock("x"):
                assert await locks.names() == ["x"]

        asyncio.run(main())


def test_a_server_that_hangs_up_in_the_handshake_is_restarting_and_no_mistake_of_the_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"rediss://127.0.0.1:{server.getsockname()[1]}"

        def hang_up() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                caller.recv(8192)
                caller.close()

        threading.Thread(target=hang_up, daemon=True).start()
        with holdfast.connect(url) as locks, pytest.raises(Unavailable):
            locks.lock("x").acquire(timeout=0)

        async def main() -> None:
            async with aio.connect(url) as locks:
                with pytest.raises(Unavailable):
                    await locks.lock("x").acquire(timeout=0)

        asyncio.run(main())
        server.shutdown(socket.SHUT_RDWR)


def test_many_threads_share_one_ear_over_tls(
    tls: tuple[Redis, int], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reads it while others subscribe and unsubscribe: TLS bears no two at once."""
    _, port = tls
    lost: list[str] = []
    lose = ThreadEar.lose
    with holdfast.connect(f"rediss://127.0.0.1:{port}?ca={certificate / 'cert.pem'}") as locks:
        until = time.monotonic() + 4

        def wait() -> None:
            while time.monotonic() < until:
                with locks.lock("hot", ttl=20, timeout=20):
                    pass

        def watch(number: int) -> None:
            while time.monotonic() < until:
                for _ in locks.election(f"e{number}").watch(timeout=0.02):
                    pass

        def noted(ear: ThreadEar) -> None:
            lost.append("lost")
            lose(ear)

        monkeypatch.setattr(ThreadEar, "lose", noted)
        threads = [threading.Thread(target=wait) for _ in range(3)]
        threads += [threading.Thread(target=watch, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        monkeypatch.undo()
    assert not lost
