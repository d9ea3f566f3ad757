"""TLS and Unix sockets, on a real server."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Misuse, aio
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
        locks.lock("x").acquire(timeout=0)

    async def main() -> None:
        async with aio.connect(f"rediss://127.0.0.1:{port}") as locks:
            with pytest.raises(Misuse, match="ca, cert, cert_key"):
                await locks.lock("x").acquire(timeout=0)

    asyncio.run(main())


def test_tls_to_a_server_that_speaks_none_is_an_error_not_a_hang(redis: Redis) -> None:
    url = redis.url.replace("redis://", "rediss://") + "?timeout=1"
    with holdfast.connect(url) as locks, pytest.raises((Misuse, holdfast.Unavailable)):
        locks.lock("x").acquire(timeout=0)


def test_locks_go_over_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with servers.start("redis", "--unixsocket", str(path)):
        with holdfast.connect(f"unix://{path}?db=1") as locks, locks.lock("x"):
            assert locks.names() == ["x"]

        async def main() -> None:
            async with aio.connect(f"unix://{path}?db=1") as locks, locks.lock("x"):
                assert await locks.names() == ["x"]

        asyncio.run(main())
