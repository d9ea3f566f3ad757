"""As much of etcd as its store asks of it, served over simulated streams: transactions, leases, watches.

One process, whose log is the order in which it does things. What is real here is the client.
"""

from __future__ import annotations

from typing import NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived
from h2.exceptions import H2Error

from holdfast.drivers.base import Address
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import SimulatedStream, Streams
from holdfast.stores.etcd.replies import fields
from holdfast.stores.etcd.requests import (
    CREATE,
    DESCEND,
    EQUAL,
    LESS,
    MOD,
    data,
    number,
)

TERM = 2
NOT_FOUND = 5
_EVER = float("inf")


class Pair(NamedTuple):
    created: int
    modified: int
    value: bytes
    lease: int

    def packed(self, key: bytes) -> bytes:
        return (
            data(1, key)
            + number(2, self.created)
            + number(3, self.modified)
            + data(5, self.value)
            + number(6, self.lease)
        )


class Watcher(NamedTuple):
    line: Line
    stream: int
    number: int
    key: bytes
    end: bytes


class NoLease(Exception):
    """etcd refuses the whole transaction."""


class Line:
    """One connection of a client: HTTP/2, and gRPC on it."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.stream = stream
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.h2.initiate_connection()
        self.paths: dict[int, bytes] = {}
        self.unread: dict[int, bytes] = {}
        self.begun: set[int] = set()

    async def flush(self) -> None:
        if waiting := self.h2.data_to_send():
            await self.stream.send(waiting, _EVER)

    def messages(self, received: bytes) -> list[tuple[int, bytes]]:
        found = []
        for event in self.h2.receive_data(received):
            if isinstance(event, RequestReceived):
                self.paths[event.stream_id] = bytes(dict(event.headers)[b":path"])
                self.unread[event.stream_id] = b""
            elif isinstance(event, DataReceived):
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                unread = self.unread[event.stream_id] + event.data
                while len(unread) >= 5 and len(unread) >= (size := 5 + int.from_bytes(unread[1:5], "big")):
                    found.append((event.stream_id, unread[5:size]))
                    unread = unread[size:]
                self.unread[event.stream_id] = unread
        return found

    def say(self, stream: int, message: bytes) -> None:
        if stream not in self.begun:
            self.begun.add(stream)
            self.h2.send_headers(stream, [(b":status", b"200"), (b"content-type", b"application/grpc")])
        self.h2.send_data(stream, b"\0" + len(message).to_bytes(4, "big") + message)

    def end(self, stream: int, code: int = 0, why: bytes = b"") -> None:
        trailers = [(b"grpc-status", b"%d" % code), (b"grpc-message", why)]
        if stream not in self.begun:
            trailers = [(b":status", b"200"), (b"content-type", b"application/grpc"), *trailers]
        self.h2.send_headers(stream, trailers, end_stream=True)


class ScriptedEtcd:
    def __init__(self, process: Process, streams: Streams, address: Address) -> None:
        self.process = process
        self.revision = 1
        self.pairs: dict[bytes, Pair] = {}
        self.leases: dict[int, tuple[float, int]] = {}  # when it ends, and how long it lives
        self.largest = 0  # the most transactions that came as one
        self._watchers: list[Watcher] = []
        self._told: list[bytes] = []  # keys that have changed since the watchers were told
        streams.listen(address, process, self._serve)
        process.spawn(self._end_leases, "leases")

    def _line(self, stream: SimulatedStream) -> Line:
        return Line(stream)

    async def _serve(self, stream: SimulatedStream) -> None:
        line = self._line(stream)
        try:
            while received := await stream.receive(_EVER):
                for number_, message in line.messages(received):
                    self._answer(line, number_, message)
                await self._tell()
                await line.flush()
        except (OSError, H2Error):  # H2Error: its client has given up that call
            pass
        self._watchers = [one for one in self._watchers if one.line is not line]
        stream.close()

    def _answer(self, line: Line, stream: int, message: bytes) -> None:
        path = line.paths[stream].rpartition(b"/")[2]
        if path == b"Watch":
            self._watch(line, stream, message)
            return
        said = dict(fields(message))
        answer = b""
        if path == b"Txn":
            try:
                answer = self._transact(message)
            except NoLease:
                line.end(stream, NOT_FOUND, b"etcdserver: requested lease not found")
                return
        elif path == b"LeaseGrant":
            seconds, lease = int(said[1]), int(said[2])
            self.leases[lease] = self._now() + seconds, seconds
            answer = self._header() + number(2, lease) + number(3, seconds)
        elif path in (b"LeaseKeepAlive", b"LeaseTimeToLive"):
            lease = int(said[1])
            seconds = self.leases.get(lease, (0.0, 0))[1]
            if seconds and path == b"LeaseKeepAlive":
                self.leases[lease] = self._now() + seconds, seconds
            answer = self._header() + number(2, lease) + number(3, seconds)
        elif path == b"LeaseRevoke":
            self._end(int(said[1]))
            answer = self._header()
        else:
            raise NotImplementedError(path)
        line.say(stream, answer)
        line.end(stream)

    def _header(self) -> bytes:
        return data(1, number(3, self.revision) + number(4, TERM))

    def _now(self) -> float:
        return self.process.driver.now()

    # ---- leases

    async def _end_leases(self) -> None:
        while True:
            await self.process.driver.sleep(0.5)
            for lease in [lease for lease, (ends, _) in self.leases.items() if ends <= self._now()]:
                self._end(lease)
            await self._tell()

    def _end(self, lease: int) -> None:
        self.leases.pop(lease, None)
        gone = [key for key, pair in self.pairs.items() if pair.lease == lease]
        self.revision += bool(gone)
        for key in gone:
            self._delete(key, b"")

    # ---- transactions: all is decided before anything is done, and all that is done is one revision

    def _transact(self, message: bytes) -> bytes:
        plan = self._plan(message)
        writes = self._check(plan)
        self.largest = max(self.largest, sum(kind == 4 for kind, *_ in plan[1]))
        self.revision += writes
        answer = self._do(plan)
        self.revision -= writes and not self._changed
        return self._header() + answer

    def _plan(self, message: bytes) -> tuple[bool, list[tuple[int, bytes, tuple[bool, list]]]]:  # type: ignore[type-arg]
        asked = list(fields(message))
        succeeded = all(self._compare(bytes(value)) for field, value in asked if field == 1)
        steps = []
        for field, value in asked:
            if field == (2 if succeeded else 3):
                ((kind, request),) = fields(bytes(value))
                steps.append((kind, bytes(request), self._plan(bytes(request)) if kind == 4 else (False, [])))
        return succeeded, steps

    def _check(self, plan: tuple[bool, list]) -> bool:  # type: ignore[type-arg]
        """Does it write? Nothing is put on a lease that is not there."""
        self._changed = False
        writes = False
        for kind, request, inner in plan[1]:
            if kind == 2:
                lease = int(dict(fields(request)).get(3, 0))
                if lease and lease not in self.leases:
                    raise NoLease
            writes |= kind in (2, 3) or (kind == 4 and self._check(inner))
        return writes

    def _do(self, plan: tuple[bool, list]) -> bytes:  # type: ignore[type-arg]
        succeeded, steps = plan
        parts = number(2, succeeded)
        for kind, request, inner in steps:
            asked = dict(fields(request))
            if kind == 1:
                answer = self._range(asked)
            elif kind == 2:
                key = bytes(asked[1])
                known = self.pairs.get(key)
                created = known.created if known else self.revision
                self.pairs[key] = Pair(created, self.revision, bytes(asked[2]), int(asked.get(3, 0)))
                self._told.append(key)
                self._changed = True
                answer = b""
            elif kind == 3:
                answer = number(2, self._delete(bytes(asked[1]), bytes(asked.get(2, b""))))
            else:
                answer = self._do(inner)
            parts += data(3, data(kind, answer))
        return parts

    def _delete(self, start: bytes, end: bytes) -> int:
        gone = self._between(start, end)
        for key in gone:
            del self.pairs[key]
        self._told += gone
        self._changed = bool(gone) or self._changed
        return len(gone)

    def _between(self, start: bytes, end: bytes) -> list[bytes]:
        return [key for key in sorted(self.pairs) if (start <= key < end if end else key == start)]

    def _compare(self, message: bytes) -> bool:
        asked = dict(fields(message))
        target, result = int(asked.get(2, 0)), int(asked.get(1, 0))
        wanted = int(asked[4 + target])
        found = self._between(bytes(asked[3]), bytes(asked.get(64, b"")))
        index = {CREATE: 0, MOD: 1}[target]
        return all(
            {EQUAL: one == wanted, LESS: one < wanted}[result]
            for one in ([int(self.pairs[key][index]) for key in found] or [0])
        )

    def _range(self, asked: dict[int, int | bytes]) -> bytes:
        found = self._between(bytes(asked[1]), bytes(asked.get(2, b"")))
        if 13 in asked:
            found = [key for key in found if self.pairs[key].created <= int(asked[13])]
        if 5 in asked:
            found.sort(key=lambda key: self.pairs[key].created, reverse=asked[5] == DESCEND)
        limit = int(asked.get(3, 0)) or len(found)
        return b"".join(data(2, self.pairs[key].packed(key)) for key in found[:limit])

    # ---- watches

    def _watch(self, line: Line, stream: int, message: bytes) -> None:
        ((kind, request),) = fields(message)
        asked = dict(fields(bytes(request)))
        if kind == 1:
            one = Watcher(line, stream, int(asked[7]), bytes(asked[1]), bytes(asked.get(2, b"")))
            self._watchers.append(one)
            line.say(stream, self._header() + number(2, one.number) + number(3, 1))
        else:
            gone = [one for one in self._watchers if (one.line, one.number) == (line, asked[1])]
            self._watchers = [one for one in self._watchers if one not in gone]
            line.say(stream, self._header() + number(2, int(asked[1])) + number(4, 1))

    async def _tell(self) -> None:
        told, self._told = self._told, []
        for one in list(self._watchers):
            if any(one.key <= key < one.end if one.end else key == one.key for key in told):
                try:
                    one.line.say(one.stream, self._header() + number(2, one.number) + data(11, b""))
                    await one.line.flush()
                except (OSError, H2Error):
                    self._watchers.remove(one)
