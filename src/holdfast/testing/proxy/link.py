"""One proxied connection: two sockets and a lane each way. No threads here: the proxy's loop calls in."""

from __future__ import annotations

import errno
import math
import re
import selectors
import socket
import struct
from collections import deque
from dataclasses import dataclass

from holdfast.testing.proxy.direction import Direction

READ_SIZE = 1 << 16
CONNECT_SECONDS = 10.0

_CRUMB = re.compile(rb"[^\n]{0,31}\n|[^\n]{1,32}")
_GONE = OSError  # any failure of a socket means the same to a lane: that side has gone
_LINGER_ZERO = struct.pack("ii", 1, 0)


@dataclass(slots=True)
class Parcel:
    """A chunk on its way, or the end of the stream (None)."""

    due: float
    data: bytes | None
    sent: int = 0
    pause: float = 0.0  # before whatever comes next


@dataclass(eq=False)
class Lane:
    """The bytes from one socket to the other: read, judged, queued until due, written in order."""

    direction: Direction
    source: socket.socket
    sink: socket.socket
    limit: int  # bytes in the queue
    stuck: bool = False  # whatever the direction says, nothing of this connection goes on, its end neither
    finished: bool = False
    ended: bool = False

    def __post_init__(self) -> None:
        self._queue: deque[Parcel] = deque()
        self._queued = 0

    @property
    def wants_read(self) -> bool:
        """False when the queue is full: TCP itself then slows the sender down, and memory stays bounded."""
        return not self.ended and self._queued < self.limit

    def wants_write(self, now: float) -> bool:
        return not self.finished and not self.stuck and bool(self._queue) and self._queue[0].due <= now

    def next_due(self, now: float) -> float:
        """When to look again. Not for what is due already: that waits for the sink, and the selector tells."""
        return self._queue[0].due if self._queue and self._queue[0].due > now and not self.stuck else math.inf

    def read(self, now: float) -> bool:
        """Take in one chunk, if there is one. False when the source turned out to have been reset."""
        if not self.wants_read:
            return True
        try:
            data = self.source.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return True
        except _GONE:
            self._end(now)
            return False
        if not data:
            self._end(now)
        elif self.finished:
            self.direction.arrived(data)
        else:
            verdict = self.direction.arrived(data)
            if verdict.crumbs:
                for crumb in _CRUMB.findall(data):
                    self._push(Parcel(now, crumb, pause=verdict.wait))
            else:
                self._push(Parcel(now + verdict.wait, data * verdict.copies))
        return True

    def rejudge(self, now: float) -> None:
        """A command was given: what is held meets it as if it had just arrived; what is only delayed keeps its date."""
        waiting, self._queue, self._queued = self._queue, deque(), 0
        for parcel in waiting:
            if parcel.due == math.inf:
                self._judge_again(parcel, now)
            self._push(parcel)

    def let_go(self, now: float) -> None:
        for parcel in self._queue:
            parcel.due = now

    def _judge_again(self, parcel: Parcel, now: float) -> None:
        if parcel.data is None:
            parcel.due = now + self.direction.judge_end()
        else:
            verdict = self.direction.judge(parcel.data)
            parcel.due, parcel.data = now + verdict.wait, parcel.data * verdict.copies

    def write(self, now: float) -> None:
        """Hand on all that is due and that the sink will take."""
        while self.wants_write(now):
            parcel = self._queue[0]
            if parcel.data is None:
                self.abandon()
                return
            try:
                parcel.sent += self.sink.send(memoryview(parcel.data)[parcel.sent :])
            except (BlockingIOError, InterruptedError):
                return
            except _GONE:
                self.abandon()
                return
            if parcel.sent == len(parcel.data):
                self._queue.popleft()
                self._queued -= len(parcel.data)
                self.direction.left(parcel.data)
                if parcel.pause and self._queue:
                    self._queue[0].due = max(self._queue[0].due, now + parcel.pause)

    def abandon(self) -> None:
        """Nothing more goes this way: tell the sink, if it is there. What still comes is counted and thrown away."""
        self.finished = True
        self._queue.clear()
        self._queued = 0
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except _GONE:
            return

    def _end(self, now: float) -> None:
        self.ended = True
        if not self.finished:
            self._push(Parcel(now + self.direction.judge_end(), None))

    def _push(self, parcel: Parcel) -> None:
        if parcel.data != b"":
            self._queue.append(parcel)
            self._queued += len(parcel.data or b"")


class Link:
    """A client's socket, the socket opened to the server on its behalf, and the two lanes between them."""

    def __init__(
        self,
        client: socket.socket,
        target: tuple[str, int],
        to_server: Direction,
        to_client: Direction,
        limit: int,
        now: float,
    ) -> None:
        self.client = client
        self.server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for sock in (self.client, self.server):
            sock.setblocking(False)
            # Without this Nagle's algorithm would glue chunks together, and a one-shot mode would strike too much.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.lanes = (
            Lane(to_server, self.client, self.server, limit),
            Lane(to_client, self.server, self.client, limit),
        )
        self._connected = False
        self._connect_by = now + CONNECT_SECONDS
        self._refused = self.server.connect_ex(target) not in (0, errno.EINPROGRESS)

    def on_event(self, sock: socket.socket, now: float) -> None:
        """The selector reported this socket."""
        if sock is self.server and not self._connected:
            self._refused = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
            self._connected = not self._refused
            return
        for lane, other in zip(self.lanes, reversed(self.lanes), strict=True):
            if lane.source is sock and not lane.read(now):
                other.abandon()

    def pump(self, now: float) -> None:
        if self._connected:
            for lane in self.lanes:
                lane.write(now)

    def over(self, now: float) -> bool:
        """True when both ends have been handed on, or the server could not be reached.

        Not before the server has closed, even if its client vanished: a reset might cost it requests it has not read.
        """
        if self._connected:
            return all(lane.finished for lane in self.lanes) and self.lanes[1].ended
        return self._refused or now >= self._connect_by

    def interest(self, sock: socket.socket, now: float) -> int:
        """Which events this socket waits for. 0: it must leave the selector, or epoll would report its hang-up."""
        if sock is self.server and not self._connected:
            return selectors.EVENT_WRITE
        mask = 0
        for lane in self.lanes:
            if lane.source is sock and lane.wants_read:
                mask |= selectors.EVENT_READ
            if lane.sink is sock and lane.wants_write(now) and self._connected:
                mask |= selectors.EVENT_WRITE
        return mask

    def next_due(self, now: float) -> float:
        return min(lane.next_due(now) for lane in self.lanes) if self._connected else self._connect_by

    def close(self, reset: bool = False) -> None:
        """Close both sockets; a server that could not be reached resets its client, as it would have itself."""
        for sock in (self.client, self.server):
            if reset or not self._connected:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            sock.close()
