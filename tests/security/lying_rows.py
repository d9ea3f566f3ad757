"""A real PostgreSQL or MariaDB behind somebody who speaks its protocol without a fault, and changes what the rows say.

Columns are left out or put in, values are replaced by others, by nothing or by too much, rows are lost or told twice.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

Row = list[bytes | None]
Lie = Callable[[list[Row]], list[Row]]  # of the rows of one answer

VALUES: list[bytes | None] = [
    *(
        None,
        b"",
        b"x",
        b"0",
        b"-1",
        b"3.5",
        b"nan",
        b"9" * 30,
        b"9007199254740993",
        b"\xff\xfe",
        b"9" * 5000,
        b"x" * 70_000,
    ),
    *(b"\0", bytes(4), bytes(8), b"\xff" * 8, struct.pack(">q", 2**62), struct.pack(">q", -1), struct.pack(">i", 7)),
]


class Liar:
    """Lies about some answers, by a seed: the same ones in the same way, as long as the same is asked."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._mutex = threading.Lock()
        self.likely = 0.0
        self.lies = 0
        self.chance = random.Random(f"{seed} asks")

    def __call__(self, rows: list[Row]) -> list[Row]:
        with self._mutex:
            if self._chance.random() >= self.likely:
                return rows
            self.lies += 1
            return self._told(rows)

    def _told(self, rows: list[Row]) -> list[Row]:
        chance = self._chance
        kind = chance.randrange(6)
        if kind == 0 or not rows:
            return []
        if kind == 1:
            return rows + rows
        width = len(rows[0])
        if kind == 2:
            return [row[: width - 1] for row in rows]
        if kind == 3:
            return [[*row, chance.choice(VALUES)] for row in rows]
        spoilt = [list(row) for row in rows]
        for _ in range(chance.randrange(1, 4)):
            chance.choice(spoilt)[chance.randrange(width)] = chance.choice(VALUES)
        return spoilt


def _exactly(line: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = line.recv(size - len(found))
        if not piece:
            raise ConnectionResetError
        found += piece
    return bytes(found)


def _as_it_is(source: socket.socket, sink: socket.socket) -> None:
    while piece := source.recv(65536):
        sink.sendall(piece)


# ---- PostgreSQL: a description of the rows, rows, and that they were all


def postgresql(server: socket.socket, client: socket.socket, lie: Lie) -> None:
    described: bytes | None = None
    rows: list[Row] = []
    while True:
        kind = _exactly(server, 1)
        body = _exactly(server, struct.unpack(">i", _exactly(server, 4))[0] - 4)
        if kind == b"T":
            described = body  # held back: it has to say how many columns there will be
            continue
        if kind == b"D":
            rows.append(_pg_row(body))
            continue
        if kind in (b"C", b"E", b"s") and (described is not None or rows):
            told = lie(rows)
            if described is not None:
                client.sendall(_pg_message(b"T", _pg_description(described, len(told[0]) if told else None)))
            for row in told:
                client.sendall(_pg_message(b"D", _pg_data(row)))
            described, rows = None, []
        client.sendall(_pg_message(kind, body))


def _pg_message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">i", len(body) + 4) + body


def _pg_row(body: bytes) -> Row:
    (count,), at, row = struct.unpack(">h", body[:2]), 2, []
    for _ in range(count):
        (size,) = struct.unpack(">i", body[at : at + 4])
        row.append(None if size < 0 else body[at + 4 : at + 4 + size])
        at += 4 + max(size, 0)
    return row


def _pg_data(row: Row) -> bytes:
    told = [struct.pack(">i", -1) if one is None else struct.pack(">i", len(one)) + one for one in row]
    return struct.pack(">h", len(row)) + b"".join(told)


def _pg_description(body: bytes, columns: int | None) -> bytes:
    (count,), at, fields = struct.unpack(">h", body[:2]), 2, []
    for _ in range(count):
        end = body.index(b"\0", at) + 1 + 18
        fields.append(body[at:end])
        at = end
    if columns is not None:
        fields = [fields[min(number, count - 1)] for number in range(columns)] if fields else []
    return struct.pack(">h", len(fields)) + b"".join(fields)


# ---- MySQL: how many columns, a description of each, an end, rows, an end


def mysql(server: socket.socket, client: socket.socket, lie: Lie) -> None:
    def packet() -> tuple[int, bytes]:
        head = _exactly(server, 4)
        return head[3], _exactly(server, int.from_bytes(head[:3], "little"))

    def say(number: int, body: bytes) -> None:
        client.sendall(len(body).to_bytes(3, "little") + bytes([number & 255]) + body)

    logged_in = False
    while True:
        number, body = packet()
        if not logged_in:
            logged_in = number > 0 and body[:1] == b"\0"
            say(number, body)
            continue
        if body[:1] in (b"\0", b"\xff", b"\xfb") or (body[:1] == b"\xfe" and len(body) < 9):
            say(number, body)
            continue
        columns = [packet()[1] for _ in range(body[0])]
        packet()  # their end
        rows, end = [], b""
        while True:
            _, row = packet()
            if row[:1] == b"\xff" or (row[:1] == b"\xfe" and len(row) < 9):
                end = row
                break
            rows.append(_mysql_row(row, len(columns)))
        told = lie(rows) if end[:1] == b"\xfe" else rows
        width = len(told[0]) if told else len(columns)
        said = [bytes([width])] + [columns[min(one, len(columns) - 1)] for one in range(width)]
        said += [b"\xfe" + end[1:5] if end[:1] == b"\xfe" else b"\xfe\0\0\2\0", *(map(_mysql_data, told)), end]
        for offset, one in enumerate(said):
            say(number + offset, one)


def _mysql_row(body: bytes, columns: int) -> Row:
    row: Row = []
    at = 0
    for _ in range(columns):
        size, at = body[at], at + 1
        if size == 251:
            row.append(None)
            continue
        if size > 251:
            wide = {252: 2, 253: 3, 254: 8}[size]
            size, at = int.from_bytes(body[at : at + wide], "little"), at + wide
        row.append(body[at : at + size])
        at += size
    return row


def _mysql_data(row: Row) -> bytes:
    told = b""
    for one in row:
        if one is None:
            told += b"\xfb"
        elif len(one) < 251:
            told += bytes([len(one)]) + one
        else:
            told += b"\xfd" + len(one).to_bytes(3, "little") + one
    return told


SPEAKERS = {"postgresql": postgresql, "mariadb": mysql}


@contextlib.contextmanager
def between(address: tuple[str, int], kind: str, lie: Lie) -> Iterator[int]:
    """The port on which the server at this address is reached through a liar."""
    listening = socket.create_server(("127.0.0.1", 0))
    opened: list[socket.socket] = []

    def converse(client: socket.socket) -> None:
        server = socket.create_connection(address)
        opened.extend((client, server))

        def run(way: Callable[..., None], *ends: object) -> None:
            with contextlib.suppress(OSError, struct.error):
                way(*ends)
            for end in (client, server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=run, args=(_as_it_is, client, server), daemon=True).start()
        run(SPEAKERS[kind], server, client, lie)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=converse, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        for end in opened:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
