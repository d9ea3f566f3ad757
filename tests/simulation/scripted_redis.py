"""As much of Redis as its store asks of it, served over simulated streams: the scripts, known by their SHA-1, and bells.

One process that does one thing after another. What is real here is the client; the scripts themselves are run by real servers,
in tests/stores/redis.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from holdfast.drivers.base import Address
from holdfast.drivers.simulated import Process
from holdfast.drivers.simulated_streams import SimulatedStream, Streams
from holdfast.stores.redis import scripts

SCRIPTS = {script.sha: script.name for script in scripts.ALL}
Answer = int | bytes | list["Answer"] | None | Exception


@dataclass
class Party:
    """Somebody inside, or in line."""

    units: int
    ttl: int
    ends: int
    channel: bytes = b""
    place: bytes = b""
    token: int = 0


@dataclass
class Name:
    mark: int = 0
    capacity: int = 0
    inside: dict[bytes, Party] = field(default_factory=dict)
    line: dict[bytes, Party] = field(default_factory=dict)

    @property
    def used(self) -> int:
        return sum(party.units for party in self.inside.values())

    def expire(self, now: int) -> None:
        for parties in (self.inside, self.line):
            for holder in [holder for holder, party in parties.items() if party.ends <= now]:
                del parties[holder]


class ScriptedRedis:
    def __init__(self, process: Process, streams: Streams, address: Address) -> None:
        self.process = process
        self.names: dict[bytes, Name] = {}
        self.known: set[bytes] = set()  # scripts
        self.asked: list[str] = []
        self._ears: list[tuple[bytes, SimulatedStream]] = []
        streams.listen(address, process, self._serve)

    def forget_scripts(self) -> None:
        self.known.clear()

    # ---- RESP

    async def _serve(self, stream: SimulatedStream) -> None:
        data = b""
        try:
            while True:
                while (request := _request(data)) is None:
                    data += (more := await stream.receive(float("inf")))
                    if not more:
                        return stream.close()
                words, data = request
                await stream.send(_packed(await self._answer(words, stream)), float("inf"))
        except OSError:
            stream.close()
        finally:
            self._ears = [(channel, one) for channel, one in self._ears if one is not stream]

    async def _answer(self, words: list[bytes], stream: SimulatedStream) -> Answer:
        if words[0] == b"PING":
            return [b"pong", b""] if any(one is stream for _, one in self._ears) else b"PONG"
        if words[0] == b"SUBSCRIBE":
            self._ears.append((words[1], stream))
            return [b"subscribe", words[1], 1]
        if words[0] == b"SCRIPT":
            (sha,) = [script.sha for script in scripts.ALL if script.text == words[2]]
            self.known.add(sha)
            return sha
        assert words[0] == b"EVALSHA", words
        if words[1] not in self.known:
            return Exception("NOSCRIPT No matching script.")
        count = int(words[2])
        what = SCRIPTS[words[1]]
        self.asked.append(what)
        keys, arguments = words[3 : 3 + count], words[3 + count :]
        now = int(self.process.driver.now() * 1_000_000) + 1
        if what == "renew":
            return b"".join(
                self._renew(key, grant, int(arguments[0]), now) for key, grant in zip(keys, arguments[3:], strict=True)
            )
        name = self.names.setdefault(keys[0], Name())
        name.expire(now)
        if what == "claim":
            return await self._claim(name, arguments, now)
        if what == "release":
            there = name.inside.pop(arguments[0], None) or name.line.pop(arguments[0], None)
            await self._ring(name)
            return int(there is not None)
        assert what == "inspect", what
        return [
            name.capacity if name.inside else 0,
            [[b"x", one.token, one.units, 0, one.ends - now, b""] for one in name.inside.values()],
            [],
            [],
        ]

    # ---- the scripts

    async def _claim(self, name: Name, arguments: list[bytes], now: int) -> Answer:
        holder, ttl, terms = arguments[0], int(arguments[1]), arguments[4]
        units, capacity = struct.unpack(">xqxq", terms[:18])
        mine = name.inside.get(holder)
        if mine is not None:
            mine.units, mine.ends = min(units, mine.units), now + ttl
            return mine.token
        if not name.inside and not name.line:
            name.capacity = capacity
        first = next(iter(name.line), holder)
        if first == holder and name.used + units <= capacity:
            name.line.pop(holder, None)
            name.mark = max(name.mark + 1, now)
            name.inside[holder] = Party(units, ttl, now + ttl, token=name.mark)
            await self._ring(name)
            return name.mark
        if len(arguments) > 5:
            name.line[holder] = Party(units, ttl, now + ttl, arguments[5], arguments[6])
        soonest = min(party.ends for party in (*name.inside.values(), *name.line.values()))
        return [0, max(soonest - now, 1000)]

    def _renew(self, key: bytes, grant: bytes, ttl: int, now: int) -> bytes:
        token, size = struct.unpack(">dB", grant[:9])
        name = self.names.setdefault(key, Name())
        name.expire(now)
        mine = name.inside.get(grant[9 : 9 + size])
        if mine is None or mine.token != token:
            return b"0"
        mine.ends = now + ttl
        return b"1"

    async def _ring(self, name: Name) -> None:
        head = next(iter(name.line.values()), None)
        if head is not None and name.used + head.units <= name.capacity:
            for channel, stream in self._ears:
                if channel == head.channel:
                    await stream.send(_packed([b"message", channel, head.place]), float("inf"))


def _request(data: bytes) -> tuple[list[bytes], bytes] | None:
    """The first request, and what follows it; None: it is not all there yet."""
    line, found, rest = data.partition(b"\r\n")
    if not found:
        return None
    words = []
    for _ in range(int(line[1:])):
        size, found, rest = rest.partition(b"\r\n")
        if not found or len(rest) < int(size[1:]) + 2:
            return None
        words.append(rest[: int(size[1:])])
        rest = rest[int(size[1:]) + 2 :]
    return words, rest


def _packed(answer: Answer) -> bytes:
    if isinstance(answer, Exception):
        return b"-%b\r\n" % str(answer).encode()
    if isinstance(answer, int):
        return b":%d\r\n" % answer
    if isinstance(answer, list):
        return b"*%d\r\n" % len(answer) + b"".join(map(_packed, answer))
    return b"$-1\r\n" if answer is None else b"$%d\r\n%b\r\n" % (len(answer), answer)
