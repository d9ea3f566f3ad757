"""Streams between simulated processes: they delay, split and cut, so that the wires of real stores meet it all.

On one connection bytes keep their order, as TCP does; between connections they do not. A connection that is cut is told to
both ends, and what was on its way is lost: nobody knows how much of it had arrived. One that is half open loses all that is
sent, and nobody is told. Between processes that are cut off from each other, bytes wait until that is over. A silent host takes
everything and says nothing. What a process that crashed had open is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple

from .base import Address
from .simulated import Bell, Process
from .world import FOREVER, Killed, World

Serve = Callable[["SimulatedStream"], Coroutine[Any, Any, None]]


class StreamFaults(NamedTuple):
    """How likely what is, and how long bytes take."""

    delay: tuple[float, float] = (0.0002, 0.004)
    slow: float = 0.0
    slow_by: tuple[float, float] = (0.05, 2.0)
    split: float = 0.0  # that what was sent arrives in pieces
    cut: float = 0.0  # that the connection breaks, before or after a piece arrives


ROUGH_STREAMS = StreamFaults(slow=0.02, split=0.5, cut=0.02)


class SimulatedStream:
    """One end."""

    def __init__(self, streams: Streams, process: Process, what: str) -> None:
        self.what = what
        self.process = process
        self.other: SimulatedStream = self  # until it has one
        self._streams = streams
        self._bell: Bell = process.driver.bell()
        self._bell.what = f"bytes of {what}"
        self._unread = bytearray()
        self._ended = self._broken = self._closed = self._cut_off = False
        self._unanswered = False
        self._quiet_until = 0.0  # when the last piece that is on its way arrives here

    async def send(self, data: bytes, deadline: float) -> None:
        self.process.driver._alive()
        if self._broken or self._closed:
            raise ConnectionResetError(f"{self.what} was cut")
        if self._unanswered and self._streams.one_at_a_time:
            self._streams.muddled.append(f"{self.process.name} asks on {self.what}, whose last answer it has not had")
        self._unanswered = True
        self.put(bytes(data))

    def put(self, data: bytes) -> None:
        """Sent, if that is still possible: what a server tells one of its clients meanwhile."""
        streams = self._streams
        if not (self._broken or self._closed):
            for piece in streams._pieces(data):
                streams._carry(self, piece)

    async def receive(self, deadline: float) -> bytes:
        process, world, bell = self.process, self.process.world, self._bell
        while True:
            if world.over or not process.alive:
                raise Killed
            if self._broken or self._closed:
                raise ConnectionResetError(f"{self.what} was cut")
            if self._unread:
                data = bytes(self._unread)
                self._unread.clear()
                self._unanswered = self._quiet_until > world.time  # more of it is on its way
                return data
            if self._ended:
                return b""
            left = deadline if deadline == FOREVER else deadline - process.driver.now()
            if left <= 0:
                raise TimeoutError("no answer in time")
            if not bell._rung:  # what bell.wait() does, in half its time
                me = world.running()
                bell._waiter = me, me._parked + 1
                try:
                    await world.park(bell.what, left, process)
                finally:
                    bell._waiter = None
            bell._rung = False

    def is_stale(self) -> bool:
        return self._broken or self._ended or self._closed or bool(self._unread)

    @property
    def is_awaited(self) -> bool:
        """Does somebody wait for its bytes?"""
        return self._bell._waiter is not None

    def hang_up(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._bell.ring()
            self._streams._carry(self, b"")

    give_up = close  # here, whatever was sent is on its way

    def disown(self) -> None:
        """Only in a forked child, which has an `InheritedStream`: here it is as good as closed, and the server is not told."""
        self._closed = True

    def cut(self) -> None:
        """Both ends are told, at once."""
        for end in (self, self.other):
            end._broken = True
            end._unread.clear()
            end._bell.ring()

    def half_open(self) -> None:
        """Nothing arrives any more, at neither end, and nobody is told."""
        self._cut_off = self.other._cut_off = True

    def _arrive(self, piece: bytes) -> None:
        if self._broken or self._closed or not self.process.alive:
            return
        if piece:
            self._unread += piece
        else:
            self._ended = True
        self._bell.ring()


class InheritedStream:
    """What a forked child has of a stream of its parent's: the same connection. Whatever it does with that is noted.

    To close it is more than to let go of a number: TLS would say goodbye, and an event loop would take it off the selector
    that the two processes share. So the connection ends for the parent as well.
    """

    def __init__(self, of: SimulatedStream | InheritedStream, child: Process) -> None:
        self._of = of
        self._child = child
        self._disowned = False

    async def send(self, data: bytes, deadline: float) -> None:
        self._used("sends")
        await self._of.send(data, deadline)

    async def receive(self, deadline: float) -> bytes:
        self._used("receives")
        return await self._of.receive(deadline)

    def is_stale(self) -> bool:
        return self._disowned or self._of.is_stale()

    def hang_up(self) -> None:
        self.close()

    def close(self) -> None:
        if not self._disowned:
            self._used("closes it")
            self._of.close()

    give_up = close

    def disown(self) -> None:
        self._disowned = True

    def _used(self, how: str) -> None:
        if self._disowned:
            raise ConnectionResetError("it is the parent's")
        streams = self._child.world.streams
        assert streams is not None
        streams.trespasses.append(f"{self._child.name} {how} on a connection of the process that it was forked from")


class Streams:
    """The network of one world: who listens where, and what becomes of bytes on their way."""

    def __init__(self, world: World, faults: StreamFaults = StreamFaults()) -> None:  # noqa: B008 - immutable
        self.faults = faults
        self.opened = self.cuts = 0
        self.one_at_a_time = False  # may a client ask only when it has had the answer to what it asked before?
        self.muddled: list[str] = []  # who did not heed that
        self.trespasses: list[str] = []  # of forked children, on their parents' connections
        self._world = world
        self._listening: dict[Address, tuple[Process, Serve]] = {}
        self._silent: set[Address] = set()
        self._open: list[SimulatedStream] = []
        self._isolated: dict[Process, float] = {}  # until when
        world.streams = self

    def listen(self, address: Address, process: Process, serve: Serve) -> None:
        """`serve(stream)` is run for each connection, by that process."""
        self._listening[address] = process, serve

    def silence(self, address: Address) -> None:
        """Connections to it are neither made nor refused."""
        self._silent.add(address)

    def stop_listening(self, address: Address) -> None:
        """Connections to it are refused, until somebody listens there again."""
        self._listening.pop(address, None)

    def isolate(self, process: Process, seconds: float) -> None:
        """Nothing gets to it or away from it for so long. Connections stay: what is sent arrives afterwards."""
        self._isolated[process] = max(self._isolated.get(process, 0.0), self._world.time + seconds)

    def heal(self) -> None:
        """From now on bytes only take their time. What is under way may still be late."""
        self.faults = StreamFaults(delay=self.faults.delay)
        self._isolated.clear()
        self._silent.clear()

    def of(self, process: Process) -> list[SimulatedStream]:
        """The connections that it has open, at the end that dialled."""
        return [one for one in self._open if process in (one.process, one.other.process) and not one._broken]

    async def connect(self, process: Process, address: Address, deadline: float) -> SimulatedStream:
        await process.driver.sleep(self._delay())
        found = self._listening.get(address)
        if address in self._silent or (self._isolated and found is not None and self._cut_off(process, found[0])):
            await process.driver.sleep(max(deadline - process.driver.now(), 0.0))
            raise TimeoutError("no answer in time")
        if found is None or not found[0].alive:
            raise ConnectionRefusedError(f"nobody listens at {address[0]}:{address[1]}")
        server, serve = found
        self.opened += 1
        what = f"connection {self.opened}"
        near, far = SimulatedStream(self, process, what), SimulatedStream(self, server, what)
        near.other, far.other = far, near
        self._open = [one for one in self._open if not (one._broken or one._closed)]
        self._open.append(near)
        server.spawn(lambda: serve(far), what)
        return near

    def cut_all(self) -> None:
        for one in self._open:
            one.cut()

    def crashed(self, process: Process) -> None:
        """Whoever it talked to is told."""
        for one in self.of(process):
            one.cut()

    def _cut_off(self, one: Process, other: Process) -> float:
        """Until when these two do not reach each other; 0: they do."""
        until = max(self._isolated.get(one, 0.0), self._isolated.get(other, 0.0))
        return until if until > self._world.time else 0.0

    def _pieces(self, data: bytes) -> list[bytes]:
        random, split, pieces = self._world.random, self.faults.split, []
        while (places := len(data) - 1) > 0 and random.random() < split:
            bits = places.bit_length()
            while (at := random.getrandbits(bits)) >= places:  # what randint() does, in a third of its time
                pass
            pieces.append(data[: at + 1])
            data = data[at + 1 :]
        pieces.append(data)
        return pieces

    def _carry(self, sender: SimulatedStream, piece: bytes) -> None:
        if sender._cut_off:
            return  # what follows a piece that was lost is lost as well: bytes keep their order, and none is left out
        world, other, faults = self._world, sender.other, self.faults
        arrives = world.time + world.on_its_way(faults.delay, faults.slow, faults.slow_by)
        if arrives < other._quiet_until:
            arrives = other._quiet_until
        if self._isolated:
            arrives = max(arrives, self._cut_off(sender.process, other.process))
        other._quiet_until = arrives
        if piece and faults.cut and world.random.random() < faults.cut:
            self.cuts += 1
            sender._cut_off = True
            if world.random.random() < 0.5:  # it arrives, and nobody is told
                world.at(arrives, lambda: other._arrive(piece))
            world.at(arrives + self._delay(), sender.cut)
            return
        world.at(arrives, partial(other._arrive, piece))

    def _delay(self) -> float:
        return self._world.on_its_way(self.faults.delay, self.faults.slow, self.faults.slow_by)
