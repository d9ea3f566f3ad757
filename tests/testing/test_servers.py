"""Every kind of single server, real: it answers, falls silent, comes back, keeps or loses its data, leaves nothing."""

from __future__ import annotations

import base64
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from holdfast.testing import servers
from holdfast.testing.servers import process, wire
from holdfast.testing.servers.base import Server
from holdfast.testing.servers.mariadb import MariaDB
from holdfast.testing.servers.needs import NEWEST
from holdfast.testing.servers.postgresql import PgBouncer

pytestmark = pytest.mark.server

SECONDS = 10.0
SILENCE = 0.3  # how long a paused server gets to prove that it is not; it never answers, however long it gets


class Talk:
    """Write one thing and look whether it is there: a few bytes of each server's own protocol."""

    def __init__(self, put: Callable[[], object], has: Callable[[], bool], ping: Callable[[float], object]) -> None:
        self.put = put
        self.has = has
        self.ping = ping


def redis_talk(server: Server) -> Talk:
    def ask(*words: str, timeout: float = SECONDS) -> wire.Reply:
        return wire.redis(server.address, *words, timeout=timeout)

    return Talk(
        lambda: ask("SET", "lock", "held"),
        lambda: ask("GET", "lock") == b"held",
        lambda timeout: ask("PING", timeout=timeout),
    )


def etcd_talk(server: Server) -> Talk:
    key = base64.b64encode(b"lock").decode()

    def ask(path: str, body: object, timeout: float = SECONDS) -> Any:
        return wire.http_json(server.address, "POST", path, body, timeout)

    return Talk(
        lambda: ask("/v3/kv/put", {"key": key, "value": key}),
        lambda: "kvs" in ask("/v3/kv/range", {"key": key}),
        lambda timeout: ask("/v3/maintenance/status", {}, timeout),
    )


def consul_talk(server: Server) -> Talk:
    def has() -> bool:
        try:
            return bool(wire.http_json(server.address, "GET", "/v1/kv/lock", timeout=SECONDS))
        except wire.Refused as refusal:
            if "404" not in str(refusal):
                raise
            return False

    return Talk(
        lambda: wire.http_json(server.address, "PUT", "/v1/kv/lock", "held", SECONDS),
        has,
        lambda timeout: wire.http_json(server.address, "GET", "/v1/agent/self", timeout=timeout),
    )


def zookeeper_talk(server: Server) -> Talk:
    def text(value: bytes) -> bytes:
        return struct.pack("!i", len(value)) + value

    def ask(kind: int, body: bytes) -> int:
        """One request in a session of its own; the error code of its reply, 0 for success."""
        hello = struct.pack("!iqiq", 0, 0, 4000, 0) + text(bytes(16))
        with socket.create_connection(server.address, SECONDS) as sock, sock.makefile("rb") as stream:
            for message in (hello, struct.pack("!ii", 1, kind) + body):
                sock.sendall(text(message))
                reply = stream.read(struct.unpack("!i", stream.read(4))[0])
            return int(struct.unpack("!i", reply[12:16])[0])

    everyone = struct.pack("!ii", 1, 31) + text(b"world") + text(b"anyone")
    create, exists = 1, 3
    return Talk(
        lambda: ask(create, text(b"/lock") + text(b"held") + everyone + struct.pack("!i", 0)),
        lambda: ask(exists, text(b"/lock") + b"\0") == 0,
        lambda timeout: wire.zookeeper(server.address, "ruok", timeout),
    )


def postgresql_talk(server: Server) -> Talk:
    def ask(query: str, timeout: float = SECONDS) -> list[tuple[str, ...]]:
        return wire.postgresql(server.address, query, timeout)

    return Talk(
        lambda: ask("CREATE TABLE lock ()"),
        lambda: ask("SELECT 1 FROM pg_tables WHERE tablename = 'lock'") == [("1",)],
        lambda timeout: ask("SELECT 1", timeout),
    )


def mysql_talk(server: Server) -> Talk:
    def ask(query: str) -> Any:
        where: Any = {"host": "127.0.0.1", "port": server.port, "user": "root", "database": "holdfast"}
        with closing(pymysql.connect(**where, read_timeout=SECONDS)) as db, db.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()

    return Talk(
        lambda: ask("CREATE TABLE held (id INT)"),
        lambda: ask("SHOW TABLES") == (("held",),),
        lambda timeout: wire.mariadb_greets(server.address, timeout),
    )


TALK = {
    "redis": redis_talk,
    "redis8": redis_talk,
    "valkey": redis_talk,
    "etcd": etcd_talk,
    "etcd-new": etcd_talk,
    "zookeeper": zookeeper_talk,
    "consul": consul_talk,
    "postgresql": postgresql_talk,
    "pgbouncer": postgresql_talk,
    "mariadb": mysql_talk,
    "mysql": mysql_talk,
}


@pytest.fixture(scope="module", params=TALK)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with servers.start(request.param) as server:
        yield server


def test_every_single_kind_is_tested() -> None:
    assert set(TALK) == set(servers.SINGLE) - set(NEWEST)  # these are for `make server-versions`


def test_a_paused_server_is_silent_and_a_resumed_one_answers(server: Server) -> None:
    talk = TALK[server.kind](server)
    assert talk.ping(SECONDS)
    server.pause()
    with pytest.raises(TimeoutError):
        talk.ping(SILENCE)
    server.resume()
    assert talk.ping(SECONDS)


def test_a_pause_stops_all_processes_of_the_server(server: Server) -> None:
    server.pause()
    states = {
        pid: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in process.family(server.pid)
    }
    server.resume()
    assert set(states.values()) <= {"T", "Z"}  # stopped, or ended before its parent could take note


def test_data_outlives_kill_9_and_an_orderly_restart(server: Server) -> None:
    talk = TALK[server.kind](server)
    talk.put()
    port, family = server.port, process.family(server.pid)
    server.kill()
    assert not any(process.running(pid) for pid in family)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(server.address, SECONDS)
    server.restart()
    assert talk.has()
    server.restart()
    assert talk.has()
    assert server.port == port


def test_an_empty_restart_loses_the_data(server: Server) -> None:
    talk = TALK[server.kind](server)
    (server.postgresql if isinstance(server, PgBouncer) else server).restart(empty=True)
    assert not talk.has()


def test_a_stopped_server_leaves_no_process_and_no_folder(server: Server) -> None:
    family = process.family(server.pid)
    server.pause()
    server.stop()
    server.stop()
    assert not any(process.running(pid) for pid in family)
    assert not server.folder.exists()


def test_what_takes_seconds_to_prepare_is_prepared_once_and_copied(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    prepared = list[Path]()
    prepare = MariaDB.prepare

    def noted(server: MariaDB) -> None:
        prepared.append(server.data)
        prepare(server)

    monkeypatch.setattr(MariaDB, "prepare", noted)
    with servers.start("mariadb") as first, servers.start("mariadb") as second:
        assert prepared == [first.data]
        assert second.answers()
        assert len(list((tmp_path / "holdfast" / "servers" / "prepared").iterdir())) == 1
