"""A Redis Cluster as one wire: every request goes to the node that has its slot. All keys of a name share one.

Where a slot is, is learnt from the nodes themselves: asked for one that it does not have, a node says who has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import Unavailable
from .keys import pack, slot
from .replies import Reply, ReplyError, explained
from .store import Ear, Wire
from .url import Address, Target

_HOPS = 6  # between nodes, for one request
_ASKING = pack("ASKING")


class ClusterWire:
    def __init__(self, target: Target, open_wire: Callable[[Target], Wire]) -> None:
        self._target = target
        self._open_wire = open_wire
        self._wires: dict[Address, Wire] = {}
        self._slots: dict[int, Address] = {}
        self._seed = 0
        self.where = target.shown()
        # A message published on one node reaches all, so one ear is enough for bells from everywhere. It, and questions to
        # the cluster as such, go to the first node of the URL that answers.
        self._home = open_wire(target)

    @property
    def ear(self) -> Ear:
        return self._home.ear

    async def ask(self, request: bytes) -> Reply:
        (reply,) = await self._routed([request], None)
        return reply

    async def ask_all(self, requests: Sequence[bytes]) -> list[Reply]:
        """What names no key, as loading a script, goes to every node."""
        if not any(map(_has_key, requests)):
            return [reply for wire in await self.parts() for reply in await wire.ask_all(requests)]
        return await self._routed(requests, None)

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        if not any(map(_has_key, requests)):
            return [reply for wire in await self.parts() for reply in await wire.ask_apart(requests, within)]
        return await self._routed(requests, within)

    async def parts(self) -> Sequence[Wire]:
        """The wires of all masters."""
        reply = await self._home.ask(pack("CLUSTER", "SLOTS"))
        if isinstance(reply, ReplyError):
            raise explained(reply, self.where, self._target.prefix)
        for first, last, master, *_ in reply:
            address = master[0].decode() or self._target.addresses[0][0], int(master[1])
            for number in range(first, last + 1):
                self._slots[number] = address
        return [self._wire(address) for address in dict.fromkeys(self._slots.values())]

    def reset(self) -> None:
        self._slots.clear()
        for wire in (self._home, *self._wires.values()):
            wire.reset()

    def forked(self) -> None:
        for wire in (self._home, *self._wires.values()):
            wire.forked()

    async def close(self) -> None:
        for wire in (self._home, *self._wires.values()):
            await wire.close()

    def _wire(self, address: Address) -> Wire:
        if address not in self._wires:
            self._wires[address] = self._open_wire(self._target._replace(addresses=(address,)))
        return self._wires[address]

    def _address(self, request: bytes) -> Address:
        seeds = self._target.addresses
        return self._slots.get(_slot(request)) or seeds[self._seed % len(seeds)]

    async def _routed(self, requests: Sequence[bytes], within: float | None) -> list[Reply]:
        replies: list[Reply] = [None] * len(requests)
        open_ = list(range(len(requests)))
        for _ in range(_HOPS):
            by_node: dict[Address, list[int]] = {}
            for index in open_:
                by_node.setdefault(self._address(requests[index]), []).append(index)
            open_ = []
            for address, indices in by_node.items():
                some = [requests[index] for index in indices]
                for index, reply in zip(indices, await self._ask_node(address, some, within), strict=True):
                    replies[index] = await self._redirected(requests[index], reply)
                    if replies[index] is None:
                        open_.append(index)
            if not open_:
                return replies
        raise Unavailable(f"the Redis Cluster at {self.where} sends us from node to node: it is being rearranged")

    async def _ask_node(self, address: Address, requests: Sequence[bytes], within: float | None) -> list[Reply]:
        try:
            wire = self._wire(address)
            return await (wire.ask_all(requests) if within is None else wire.ask_apart(requests, within))
        except Unavailable:
            # Perhaps it is gone for good: ask another node for its slots next time.
            self._slots = {number: where for number, where in self._slots.items() if where != address}
            self._seed += 1
            raise

    async def _redirected(self, request: bytes, reply: Reply) -> Reply:
        """The reply; None: ask again, where we now know to ask."""
        if not isinstance(reply, ReplyError):
            return reply
        code, _, rest = str(reply).partition(" ")
        if code not in ("MOVED", "ASK"):
            return reply
        number, _, place = rest.partition(" ")
        host, _, port = place.rpartition(":")
        address = host or self._target.addresses[0][0], int(port)
        if code == "MOVED":
            self._slots[int(number)] = address
            return None
        return (await self._wire(address).ask_all([_ASKING, request]))[-1]


def _has_key(request: bytes) -> bool:
    return request.find(b"EVALSHA", 0, 24) > 0


def _slot(request: bytes) -> int:
    """Of its first key; all keys of a request of ours are in braces alike."""
    return slot(request) if _has_key(request) else 0
