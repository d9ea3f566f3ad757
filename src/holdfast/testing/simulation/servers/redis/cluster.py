"""A Redis Cluster: masters that have slots each, send whoever asks for another's away, and hand slots to each other.

What a node knows of the slots may be old: then it sends people to where the slot was, and is told itself a moment later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from .....drivers.base import Address
from .....drivers.simulated import Process
from .....drivers.simulated_streams import Streams
from .....stores.redis.keys import SLOTS, slot
from .execution import encoded
from .keyspace import OK, Refused, Value
from .marks import last_token
from .server import Client, RedisServer

_SCRIPTS = (b"EVAL", b"EVALSHA")
_GOSSIP = (0.001, 0.01)  # seconds between two nodes


class Forgotten(NamedTuple):
    """A last token that a node has no more."""

    at: float
    key: bytes
    token: int
    end: (
        int | None
    )  # ms, as our scripts had it, by the clock of the node where they ran; None: it did not expire, it was lost

    def as_is_said(self, retention: float) -> bool:
        """Is that no mistake of ours? A token is kept for the retention time after the clock has passed it. But keys that move
        take along what is left of their time, not its end."""
        return self.end is None or (self.end + 1) * 1000 >= self.token + int(retention * 1e6)


class ClusterNode(RedisServer):
    def __init__(self, process: Process, streams: Streams, address: Address, replica: Address) -> None:
        super().__init__(process, streams, address)
        self.nodes: list[ClusterNode] = [self]  # each has as many slots as the others, at first
        self._moved: dict[int, tuple[int, ClusterNode]] = {}  # since, as far as it knows, and in which epoch
        self.leaving: dict[int, ClusterNode] = {}  # slots that it hands over, and to whom
        self.coming: set[int] = set()
        self._replica = replica
        self.forgotten: list[Forgotten] = []
        self._shifted: dict[
            bytes, tuple[int, int]
        ] = {}  # keys that came with a slot: their ends, and by how much those moved
        self._used: set[bytes] = set()  # what our scripts have written since it came, as far as anybody remembers
        self.space.expired = self._expired

    @property
    def address(self) -> Address:
        return self._address

    @property
    def others(self) -> list[ClusterNode]:
        return [node for node in self.nodes if node is not self]

    def owner(self, number: int) -> ClusterNode:
        _, moved = self._moved.get(number, (0, None))
        return moved or self.nodes[number * len(self.nodes) // SLOTS]

    # ---- conversations

    async def _answered(self, client: Client, words: Sequence[bytes]) -> bytes:
        name = words[0].upper()
        asking, client.asking = client.asking, name == b"ASKING"
        if client.asking:
            return encoded(OK)
        if name == b"CLUSTER":
            return encoded(self._slots())
        if name in _SCRIPTS and (elsewhere := self._elsewhere(words[3 : 3 + int(words[2])], asking)):
            return encoded(Refused(elsewhere))
        return await super()._answered(client, words)

    def _elsewhere(self, keys: Sequence[bytes], asking: bool) -> str:
        """Where to ask instead; empty: here."""
        numbers = {slot(key) for key in keys}
        if not numbers:
            return ""
        if len(numbers) > 1:
            return "CROSSSLOT Keys in request don't hash to the same slot"
        (number,) = numbers
        missing = sum(self.space.get(key) is None for key in keys)
        owner = self.owner(number)
        if owner is not self:
            if not (asking and number in self.coming):
                return f"MOVED {number} {_shown(owner.address)}"
            return _LATER if missing and len(keys) > 1 else ""
        if number not in self.leaving or not missing:
            return ""
        return _LATER if missing < len(keys) else f"ASK {number} {_shown(self.leaving[number].address)}"

    def _slots(self) -> list[Any]:
        """Ranges of slots, and who has them."""
        ranges: list[Any] = []
        count = len(self.nodes)
        starts = {
            -(-at * SLOTS // count) for at in range(count)
        }  # where what follows may be another's than what is before
        starts.update(number + more for number in self._moved for more in (0, 1) if number + more < SLOTS)
        for number, after in pairwise([*sorted(starts), SLOTS]):
            host, port = self.owner(number).address
            master = [host.encode(), port, host.encode()]
            if ranges and ranges[-1][2] == master:
                ranges[-1][1] = after - 1
            else:
                ranges.append([number, after - 1, master])
        return ranges

    def _publish(self, channel: bytes, message: bytes) -> int:
        """Every node tells those who listen there."""
        world = self.process.world
        for other in self.others:
            world.after(world.random.uniform(*_GOSSIP), partial(other._heard, channel, message))
        return super()._publish(channel, message)

    def _heard(self, channel: bytes, message: bytes) -> None:
        if not self.process.paused:
            super()._publish(channel, message)

    # ---- what happens to it

    def hand_over(
        self, number: int, to: ClusterNode, seconds: float, moved: Callable[[], None], *, together: bool
    ) -> None:
        """One key after the other, or all together, with what is left of their time; then the slot. `moved`: told of each."""
        world = self.process.world
        self.leaving[number] = to
        to.coming.add(number)
        keys = self._of(number)
        for at, key in enumerate(keys, 1):
            world.after(seconds * (0.5 if together else at / (len(keys) + 1)), partial(self._migrate, key, to, moved))
        world.after(seconds, partial(self._handed_over, number, to, moved))

    def _of(self, number: int) -> list[bytes]:
        keys = self.space.keys()
        return [key for key in keys if slot(key) == number]

    def _migrate(self, key: bytes, to: ClusterNode, moved: Callable[[], None]) -> None:
        value, end = self.space.get(key), self.space.ends.get(key)
        if value is None:
            return
        ahead = to.process.driver.wall_us() // 1000 - self.process.driver.wall_us() // 1000
        if end is not None:
            to._shifted[key] = end + ahead, ahead + self._shift(key, end)
        to.space.put(key, value, None if end is None else end + ahead)
        to._note_changes()
        to._used.discard(key)
        self.space.remove(key)
        self._note_changes()
        moved()

    def _handed_over(self, number: int, to: ClusterNode, moved: Callable[[], None]) -> None:
        """What came meanwhile goes along. Those who have no part in it learn of it later."""
        world = self.process.world
        for key in self._of(number):
            self._migrate(key, to, moved)
        self.leaving.pop(number, None)
        to.coming.discard(number)
        epoch = 1 + max(node._moved.get(number, (0, self))[0] for node in self.nodes)
        for node in self.nodes:
            if node in (self, to):
                node._learn(number, epoch, to)
            else:
                world.after(world.random.uniform(0.0, 1.0), partial(node._learn, number, epoch, to))

    def _learn(self, number: int, epoch: int, owner: ClusterNode) -> None:
        if epoch > self._moved.get(number, (0, owner))[0]:
            self._moved[number] = epoch, owner

    def _shift(self, key: bytes, end: int) -> int:
        """By how much that end is another than our scripts said: 0, if they could have said another since."""
        came, shift = self._shifted.get(key, (None, 0))
        return shift if came == end and key not in self._used else 0

    def _touch(self, key: bytes) -> None:
        super()._touch(key)
        self._used.add(key)

    def _expired(self, key: bytes, value: Value, end: int) -> None:
        number = slot(key)
        if (token := last_token(value)) and (number in self.coming or self.owner(number) is self):
            self.forgotten.append(Forgotten(self.process.world.time, key, token, end - self._shift(key, end)))

    def lose(self, seconds: float) -> None:
        before = dict(self.space.values)
        super().lose(seconds)
        self._used.clear()
        for key, value in before.items():
            self._lost(key, last_token(value))

    def evict(self, key: bytes) -> None:
        token = last_token(self.space.get(key))
        super().evict(key)
        self._lost(key, token)

    def _lost(self, key: bytes, token: int) -> None:
        if token > last_token(self.space.values.get(key)):
            self.forgotten.append(Forgotten(self.process.world.time, key, token, None))

    def fail_over(self, down: float, clock: float) -> None:
        """To another machine, which the others send people to from now on."""
        self._streams.stop_listening(self._address)
        self._address, self._replica = self._replica, self._address
        super().fail_over(down, clock)


_LATER = "TRYAGAIN Multiple keys request during rehashing of slot"


def _shown(address: Address) -> str:
    return f"{address[0]}:{address[1]}"
