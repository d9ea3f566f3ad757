"""The few bytes of each protocol that tell whether a server is up and who leads: no client library is needed."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from typing import Any, BinaryIO

SECONDS = 2.0

Address = tuple[str, int]
Reply = bytes | int | None | list["Reply"]


class Refused(OSError):
    """The server answered, but with an error. An OSError, so that a probe takes it for `not yet`."""


def redis(address: Address, *words: str | int, timeout: float = SECONDS) -> Reply:
    """One command to a Redis, a Valkey or a Sentinel."""
    parts = [str(word).encode() for word in words]
    request = b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    with socket.create_connection(address, timeout) as sock, sock.makefile("rb") as stream:
        sock.sendall(request)
        return _redis_reply(stream)


def _redis_reply(stream: BinaryIO) -> Reply:
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server closed the connection in the middle of a reply")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise Refused(rest.decode())
    if kind == b"+":
        return rest
    if kind == b":":
        return int(rest)
    length = int(rest)
    if length < 0:
        return None
    if kind == b"*":
        return [_redis_reply(stream) for _ in range(length)]
    return stream.read(length + 2)[:-2]


def http_json(
    address: Address, method: str, path: str, body: object = None, timeout: float = SECONDS, login: str = ""
) -> Any:
    """One HTTP request to etcd's gateway or to Consul, and the JSON that it answers."""
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    try:
        headers = {"Authorization": login} if login else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        content = response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"no HTTP answer: {error!r}") from error
    finally:
        connection.close()
    if response.status != 200:
        raise Refused(f"{method} {path}: {response.status} {content.decode(errors='replace')}")
    return json.loads(content)


def zookeeper(address: Address, word: str, timeout: float = SECONDS) -> str:
    """One four-letter word to ZooKeeper, such as `ruok` or `srvr`."""
    with socket.create_connection(address, timeout) as sock, sock.makefile("rb") as stream:
        sock.sendall(word.encode())
        return stream.read().decode()


def zookeeper_session(address: Address, timeout: float = SECONDS) -> bool:
    """Open a session and close it: both are written down by a quorum before they are answered."""
    hello = struct.pack("!iqiqi16sb", 0, 0, 4000, 0, 16, b"", 0)
    goodbye = struct.pack("!ii", 1, -11)
    with socket.create_connection(address, timeout) as sock, sock.makefile("rb") as stream:
        for message in (hello, goodbye):
            sock.sendall(struct.pack("!i", len(message)) + message)
            (length,) = struct.unpack("!i", stream.read(4).ljust(4, b"\0"))
            if length <= 0 or len(stream.read(length)) < length:
                return False
    return True


def postgresql(address: Address, query: str, timeout: float = SECONDS) -> list[tuple[str, ...]]:
    """One simple query to PostgreSQL or PgBouncer, as user postgres, who needs no password here."""
    hello = struct.pack("!i", 3 << 16) + b"user\0postgres\0database\0postgres\0\0"
    rows: list[tuple[str, ...]] = []
    with socket.create_connection(address, timeout) as sock, sock.makefile("rb") as stream:
        sock.sendall(struct.pack("!i", len(hello) + 4) + hello)
        while _postgresql_message(stream)[0] != b"Z":
            pass
        text = query.encode() + b"\0"
        sock.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)
        while (message := _postgresql_message(stream))[0] != b"Z":
            if message[0] == b"D":
                rows.append(_postgresql_row(message[1]))
        sock.sendall(b"X\0\0\0\x04")
    return rows


def _postgresql_message(stream: BinaryIO) -> tuple[bytes, bytes]:
    header = stream.read(5)
    if len(header) < 5:
        raise ConnectionError("the server closed the connection")
    body = stream.read(struct.unpack("!i", header[1:])[0] - 4)
    if header[:1] == b"E":
        raise Refused(body.replace(b"\0", b" ").decode(errors="replace"))
    return header[:1], body


def _postgresql_row(body: bytes) -> tuple[str, ...]:
    values, at = [], 2
    for _ in range(struct.unpack("!h", body[:2])[0]):
        length = max(0, struct.unpack("!i", body[at : at + 4])[0])  # -1 is NULL: here the same as empty
        values.append(body[at + 4 : at + 4 + length].decode())
        at += 4 + length
    return tuple(values)


def mariadb_greets(address: Address, timeout: float = SECONDS) -> bool:
    """True when MariaDB offers its protocol, version 10, to a new connection."""
    with socket.create_connection(address, timeout) as sock, sock.makefile("rb") as stream:
        return stream.read(5)[4:] == b"\x0a"
