"""A Redis on a simulated machine: connections, channels, a replica that lags behind, and all that happens to such servers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from hiredis import Reader

from .....drivers.base import Address
from .....drivers.simulated import EPOCH_US, Process
from .....drivers.simulated_streams import SimulatedStream, Streams
from .execution import Execution, encoded
from .keyspace import OK, Hash, Refused, Sorted, Status, Value

FOREVER = float("inf")
REMEMBERED = 20.0  # seconds that a change may still be taken back


class Client:
    """One connection."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.stream = stream
        self.channels: list[bytes] = []
        self.is_in = False  # logged in, if that is asked for
        self.wrote = 0.0  # when its last change was made
        self.asking = False  # to be served though the slot is only on its way here: its next command


class Change(NamedTuple):
    at: float
    key: bytes
    value: Value | None
    end: int | None


class RedisServer:
    """Listens on that address, as that process, whose wall clock is its own.

    Its replica has what was changed `lag` seconds ago or earlier.
    """

    def __init__(self, process: Process, streams: Streams, address: Address, *, password: str = "") -> None:
        self.process = process
        self.lag = 0.0
        self.clock_track = [(0.0, process.wall_ahead)]  # since when its clock was how far ahead
        self._streams = streams
        self._address = address
        self._password = password.encode()
        self._channels: dict[bytes, list[Client]] = {}
        self._changes: deque[Change] = deque()
        self._settled: dict[bytes, tuple[Value, int | None]] = {}  # what there was before the first of them
        self._touched: dict[bytes, None] = {}
        self.run = Execution(process.driver.wall_us, self._publish, self._touch)
        self.space = self.run.space
        streams.listen(address, process, self._serve)

    # ---- conversations

    async def _serve(self, stream: SimulatedStream) -> None:
        client, reader = Client(stream), Reader()
        client.is_in = not self._password
        try:
            while data := await stream.receive(FOREVER):
                reader.feed(data)
                while (words := reader.gets()) is not False:
                    answer = await self._answered(client, words)
                    stream.put(answer)
        except OSError:
            pass
        finally:
            for channel in client.channels:
                self._channels[channel].remove(client)

    async def _answered(self, client: Client, words: Sequence[bytes]) -> bytes:
        try:
            name = words[0].upper()
            if not client.is_in and name != b"AUTH":
                raise Refused("NOAUTH Authentication required.")
            if name == b"WAIT":
                return encoded(await self._replicated(client, float(words[2]) / 1000))
            special = _CONNECTION.get(name)
            if special is not None:
                told: bytes = getattr(self, special)(client, words[1:])
                return told
            answer: Any = self.run.ask(words)
        except Refused as refused:
            answer = refused
        if self._touched:
            client.wrote = self.process.world.time
            self._note_changes()
        return encoded(answer)

    def _login(self, client: Client, words: Sequence[bytes]) -> bytes:
        if not self._password:
            raise Refused(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure?"
            )
        if words[-1] != self._password:
            raise Refused("WRONGPASS invalid username-password pair or user is disabled.")
        client.is_in = True
        return encoded(OK)

    def _subscribe(self, client: Client, words: Sequence[bytes]) -> bytes:
        told = b""
        for channel in words:
            if channel not in client.channels:
                client.channels.append(channel)
                self._channels.setdefault(channel, []).append(client)
            told += encoded([b"subscribe", channel, len(client.channels)])
        return told

    def _unsubscribe(self, client: Client, words: Sequence[bytes]) -> bytes:
        told = b""
        for channel in words:
            if channel in client.channels:
                client.channels.remove(channel)
                self._channels[channel].remove(client)
            told += encoded([b"unsubscribe", channel, len(client.channels)])
        return told

    def _ping(self, client: Client, words: Sequence[bytes]) -> bytes:
        if client.channels:
            return encoded([b"pong", *(words or [b""])])
        return encoded(words[0] if words else Status(b"PONG"))

    def _select(self, client: Client, words: Sequence[bytes]) -> bytes:
        return encoded(OK if words == [b"0"] else Refused("ERR DB index is out of range"))

    def _role(self, client: Client, words: Sequence[bytes]) -> bytes:
        return encoded([b"master", 0, []])

    def _publish(self, channel: bytes, message: bytes) -> int:
        hearing = self._channels.get(channel, [])
        for client in hearing:
            client.stream.put(encoded([b"message", channel, message]))
        return len(hearing)

    # ---- what a replica or a disk has of it

    def _touch(self, key: bytes) -> None:
        self._touched[key] = None

    def _note_changes(self) -> None:
        now, space = self.process.world.time, self.space
        for key in self._touched:
            value = space.values.get(key)
            self._changes.append(Change(now, key, None if value is None else _copy(value), space.ends.get(key)))
        self._touched.clear()
        while self._changes[0].at < now - REMEMBERED:
            self._apply(self._settled, self._changes.popleft())

    @staticmethod
    def _apply(kept: dict[bytes, tuple[Value, int | None]], change: Change) -> None:
        kept.pop(change.key, None)
        if change.value is not None:
            kept[change.key] = change.value, change.end

    async def _replicated(self, client: Client, timeout: float) -> int:
        """Until the replica has what this client changed; how many have it."""
        driver = self.process.driver
        left = client.wrote + self.lag - driver.world.time
        if left > 0:
            await driver.sleep(min(left, timeout) if timeout else left)
        return int(client.wrote + self.lag <= driver.world.time)

    # ---- what happens to it

    def jump(self, seconds: float) -> None:
        """Its wall clock is set."""
        self.process.wall_ahead += seconds
        self.clock_track.append((self.process.world.time, self.process.wall_ahead))

    def forget_scripts(self) -> None:
        self.run.scripts.clear()

    def evict(self, key: bytes) -> None:
        """It is short of memory."""
        self.space.remove(key)
        self._note_changes()

    def restart(self, down: float, lost: float) -> None:
        """Gone for so long, then back without the changes of its last `lost` seconds, and without a script or a connection."""
        self._streams.stop_listening(self._address)
        self._streams.crashed(self.process)
        self.lose(lost)
        self.forget_scripts()
        self.process.world.after(down, lambda: self._streams.listen(self._address, self.process, self._serve))

    def fail_over(self, down: float, clock: float) -> None:
        """Its replica takes over, with what it has, on a machine whose clock differs by so much."""
        self.restart(down, self.lag)
        self.jump(clock)

    def lose(self, seconds: float) -> None:
        """The changes of the last seconds are undone; of `FOREVER`, everything is."""
        kept: dict[bytes, tuple[Value, int | None]] = {}
        if seconds < FOREVER:
            until = self.process.world.time - seconds
            kept.update(self._settled)
            for change in self._changes:
                if change.at <= until:
                    self._apply(kept, change)
        self.space.values = {key: _copy(value) for key, (value, _) in kept.items()}
        self.space.ends = {key: end for key, (_, end) in kept.items() if end is not None}
        self._changes.clear()
        self._settled = kept

    def latest(self, since: float, until: float) -> int:
        """The latest time that its clock showed between these two moments of the world, in µs."""
        ends = [start for start, _ in self.clock_track[1:]] + [FOREVER]
        shown = [
            min(end, until) + ahead
            for (start, ahead), end in zip(self.clock_track, ends, strict=True)
            if start <= until and end >= since
        ]
        return EPOCH_US + int(max(shown) * 1e6)


def _copy(value: Value) -> Value:
    if isinstance(value, Hash):
        return Hash(value)
    return Sorted(value) if isinstance(value, Sorted) else value


_CONNECTION = {
    b"AUTH": "_login",
    b"SUBSCRIBE": "_subscribe",
    b"UNSUBSCRIBE": "_unsubscribe",
    b"SELECT": "_select",
    b"ROLE": "_role",
    b"PING": "_ping",
}
