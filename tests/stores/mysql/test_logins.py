"""Passwords go to nobody who merely asks; TLS that was asked for is had; and the private parts of the drivers are there."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncmy.connection
import pymysql
import pytest

import holdfast
from holdfast import aio
from holdfast.errors import HoldfastError, Misuse
from holdfast.testing import servers
from holdfast.testing.servers.mariadb import MariaDB

from .worlds import WORLDS

PASSWORD = "geheim"
_SSL = 0x0800


class Rogue:
    """Says to be a MySQL, and asks for the password in clear text."""

    def __init__(self, plugin: bytes, flags: int = 0x0088F7DF & ~_SSL) -> None:
        self.heard = b""
        self._plugin, self._flags = plugin, flags
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                try:
                    self._talk(client)
                except OSError:
                    continue

    def _talk(self, client: socket.socket) -> None:
        low, high = struct.pack("<H", self._flags & 0xFFFF), struct.pack("<H", self._flags >> 16)
        hello = b"\x0a8.0.36\0" + struct.pack("<I", 7) + b"abcdefgh\0" + low + b"\x2d\x02\0" + high + bytes([21])
        hello += b"\0" * 10 + b"ijklmnopqrst\0mysql_native_password\0"
        client.settimeout(5)
        client.sendall(_packet(0, hello))
        answer = client.recv(65536)
        if not answer:
            return  # it would not even begin
        self.heard += answer
        # `dialog` asks with flags and a prompt; the others with a salt.
        asked = b"\x02Password: " if self._plugin == b"dialog" else b"x" * 20 + b"\0"
        client.sendall(_packet(answer[3] + 1, b"\xfe" + self._plugin + b"\0" + asked))
        self.heard += client.recv(65536)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number]) + body


def attempt(world: str, url: str) -> None:
    if world == "threads":
        with holdfast.connect(url) as locks:
            locks.lock("x").acquire(timeout=10).release()
        return

    async def main() -> None:
        async with aio.connect(url) as locks:
            await (await locks.lock("x").acquire(timeout=10)).release()

    asyncio.run(main())


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog"])
@pytest.mark.parametrize("options", ["", "?tls=yes"])
def test_a_server_that_asks_for_the_password_in_clear_text_does_not_get_it(
    world: str, plugin: bytes, options: str
) -> None:
    rogue = Rogue(plugin)
    with pytest.raises(HoldfastError) as refused:
        attempt(world, f"mysql://app:{PASSWORD}@127.0.0.1:{rogue.port}/db{options}")
    rogue.close()
    assert PASSWORD.encode() not in rogue.heard
    assert PASSWORD not in str(refused.value)
    if not options:
        assert b"app" in rogue.heard
        assert "clear text" in str(refused.value)


@pytest.mark.parametrize("options", ["ca=/some/file&tls=no", "tls=no&ca=/some/file", "tls=no&cert=/some/file"])
def test_options_that_contradict_each_other_are_refused(options: str) -> None:
    with pytest.raises(Misuse, match="tls=no"):
        holdfast.connect(f"mysql://root@localhost/app?{options}")


# ---- on a server that knows TLS


@pytest.fixture(scope="module")
def certificate() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-tls-"))  # pytest's own folders are closed to the server's account
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1,DNS:good.example",
            "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    for one in (folder, *folder.iterdir()):
        one.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def encrypted(certificate: Path) -> Iterator[MariaDB]:
    files = (f"--ssl-cert={certificate / 'cert.pem'}", f"--ssl-key={certificate / 'key.pem'}")
    with servers.start("mariadb", "--innodb-flush-method=nosync", *files) as server:
        yield server


@pytest.mark.server
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("mode", ["lease", "session"])
def test_locks_go_over_tls_and_are_renewed_there(world: str, mode: str, encrypted: MariaDB, certificate: Path) -> None:
    url = f"{encrypted.url}?ca={certificate / 'cert.pem'}&mode={mode}"
    if world == "threads":
        with holdfast.connect(url) as locks, locks.lock("x", ttl=1).acquire(timeout=10) as lease:
            time.sleep(2)
            lease.check()
        return

    async def main() -> None:
        async with aio.connect(url) as locks, locks.lock("x", ttl=1) as lease:
            await asyncio.sleep(2)
            lease.check()

    asyncio.run(main())


@pytest.mark.server
@pytest.mark.parametrize("world", WORLDS)
def test_a_certificate_that_is_not_trusted_is_refused(world: str, encrypted: MariaDB) -> None:
    with pytest.raises(Misuse, match="tls, ca, cert"):
        attempt(world, f"{encrypted.url}?tls=yes")


@pytest.mark.server
@pytest.mark.parametrize("world", WORLDS)
def test_a_certificate_is_for_the_name_that_was_asked_for(
    world: str, encrypted: MariaDB, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not for the address that was found for it."""
    plain = socket.getaddrinfo

    def found(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        named = host in ("good.example", "other.example") and not more.get("flags")
        return plain("127.0.0.1" if named else host, port, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    url = f"{encrypted.url}?ca={certificate / 'cert.pem'}"
    attempt(world, url.replace("127.0.0.1", "good.example"))
    with pytest.raises(Misuse, match=r"other\.example"):
        attempt(world, url.replace("127.0.0.1", "other.example"))


# ---- what we use of the drivers though it is theirs alone


def test_the_private_parts_of_the_drivers_are_there() -> None:
    connection: Any = pymysql.connections.Connection
    for name in ("_read_bytes", "_write_bytes", "_request_authentication", "_force_close", "_execute_command"):
        assert callable(getattr(connection, name)), name
    assert list(inspect.signature(connection._read_bytes).parameters) == ["self", "num_bytes"]
    assert list(inspect.signature(connection._write_bytes).parameters) == ["self", "data"]
    assert list(inspect.signature(connection.connect).parameters) == ["self", "sock"]
    source = inspect.getsource(connection)
    for used in ("self._sock", "self._secure", "self._result", "self.server_capabilities", "self._auth_plugin_map"):
        assert used in source, used
    assert source.count(".recv(") == 0  # all reading is in _read_bytes, and all writing in _write_bytes
    assert source.count("_rfile.read(") == 1
    assert source.count(".sendall(") == 1
    driver: Any = asyncmy.connection

    async def theirs() -> Any:
        return driver.Connection(user="nobody")

    connection = asyncio.run(theirs())
    for name in ("_transport", "_proto", "_result", "_auth_plugin_map"):
        assert hasattr(connection, name), name
    protocol = driver._MySQLProtocol
    for name in ("eof_received", "connection_lost"):
        assert callable(getattr(protocol, name)), name
