"""TLS, on a real server."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Misuse, aio
from holdfast.testing import servers
from holdfast.testing.ports import ReservedPort

pytestmark = pytest.mark.server

# Debian's ZooKeeper does not name all of Netty that TLS needs.
NETTY = [
    f"/usr/share/java/netty-{part}.jar"
    for part in ("codec", "resolver", "transport-native-unix-common", "handler", "common", "buffer", "transport")
]


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
    (folder / "both.pem").write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return folder


@contextlib.contextmanager
def secured(certificate: Path, *more: str) -> Iterator[tuple[int, int]]:
    """A server's port for TLS, and its plain one; `more`: of its settings."""
    reserved = ReservedPort()
    settings = {
        "secureClientPort": reserved.number,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": certificate / "both.pem",
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": certificate / "cert.pem",
        "ssl.trustStore.type": "PEM",
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    environ = {"JAVA_TOOL_OPTIONS": f"-Xbootclasspath/a:{':'.join(NETTY)}"}
    with servers.start("zookeeper", *lines, *more, environ=environ) as server:
        yield reserved.number, server.port
    reserved.close()


@pytest.fixture(scope="module")
def port(certificate: Path) -> Iterator[int]:
    with secured(certificate, "ssl.clientAuth=none") as (secure, _):
        yield secure


def test_locks_go_over_tls(port: int, certificate: Path) -> None:
    url = f"zookeepers://127.0.0.1:{port}/x?ca={certificate / 'cert.pem'}"
    with holdfast.connect(url) as locks, locks.lock("x") as lease:
        assert [one.token for one in locks.inspect("x").holders] == [lease.token]

    async def main() -> None:
        async with aio.connect(url) as locks, locks.lock("x") as lease:
            assert lease.held

    asyncio.run(main())


def test_a_certificate_that_is_not_trusted_is_refused_and_says_what_to_do(port: int) -> None:
    with (
        holdfast.connect(f"zookeepers://127.0.0.1:{port}/x?timeout=0.5") as locks,
        pytest.raises(Misuse, match="ca, cert, cert_key"),
    ):
        locks.lock("x").try_acquire()
