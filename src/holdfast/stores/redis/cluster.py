"""A Redis Cluster as one wire: every request goes to the node that has its slot. All keys of a name share one.

Where a slot is, is learnt from the nodes themselves: asked for one that it does not have, a node says who has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...drivers.base import boot_time
from ...errors import HoldfastError, Misuse, Unavailable
from .keys import SLOTS, pack, slot
from .replies import NONSENSE, Reply, ReplyError, explained, nonsense, sent_to
from .url import Address, Target
from .wiring import Ear, Wire

_HOPS = 6  # between nodes, for one request
MOST_NODES = 1000  # as many as Redis itself recommends
_ASKING = pack("ASKING")


class NodeWire(Wire, Protocol):
    """A wire that can be asked together with others of its kind."""

    @staticmethod
    async def ask_each_apart(asked: Sequence[tuple[Any, Sequence[bytes]]], within: float) -> list[list[Reply]]:
        """`ask_apart` of each, all at once: trouble of one is its own."""
        ...


class ClusterWire:
    def __init__(
        self, target: Target, open_wire: Callable[[Target], NodeWire], now: Callable[[], float] = boot_time
    ) -> None:
        self._target = target
        self._now = now
        self._open_wire = open_wire
        self._wires: dict[Address, NodeWire] = {}
        self._slots: dict[int, Address] = {}
        self._seed = 0
        self._reached = False
        self._closed = False
        self.where = target.shown()
        # A message published on one node reaches all, so one ear is enough for bells from everywhere. It, and questions to
        # the cluster as such, go to the first node of the URL that answers.
        self._home = open_wire(target)

    @property
    def ear(self) -> Ear:
        return self._home.ear

    @property
    def reached(self) -> bool:
        self._reached = self._reached or any(wire.reached for wire in (self._home, *self._wires.copy().values()))
        return self._reached

    async def ask(self, request: bytes, within: float) -> Reply:
        (reply,) = await self._routed([request], within, once=True)
        return reply

    async def ask_all(self, requests: Sequence[bytes], within: float, *, once: bool = False) -> list[Reply]:
        """What names no key, as loading a script, goes before what does, wherever that goes; what it is told is not told here."""
        return await self._routed(requests, within, once=once)

    async def ask_slowly(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        return await self.ask_all(requests, within, once=True)

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        try:
            return await self._routed(requests, within, apart=True)
        except HoldfastError as error:
            return [error] * len(requests)

    async def parts(self, within: float) -> Sequence[Wire]:
        """The wires of all masters."""
        (reply,) = await self._home.ask_all([pack("CLUSTER", "SLOTS")], within)
        if isinstance(reply, ReplyError):
            raise explained(reply, self.where, self._target.prefix)
        slots: dict[int, Address] = {}
        told = 0
        try:
            for first, last, master, *_ in reply:
                address = sent_to(master[0].decode(), master[1], self._target.addresses[0][0])
                some = range(max(first, 0), min(last + 1, SLOTS))
                told += len(some)
                if told > SLOTS:  # a short answer that is much work: all slots, and all again, ten thousand times
                    raise ValueError("a slot is told twice")
                slots.update(dict.fromkeys(some, address))
        except NONSENSE as error:
            raise nonsense(reply, self.where) from error
        self._slots = slots
        return [self._wire(address) for address in dict.fromkeys(slots.values())]

    def reset(self) -> None:
        self._slots = {}
        for wire in (self._home, *self._wires.copy().values()):
            wire.reset()

    def forked(self) -> None:
        for wire in (self._home, *self._wires.values()):
            wire.forked()

    async def close(self) -> None:
        self._closed = True
        for wire in (self._home, *self._wires.copy().values()):
            await wire.close()

    def _wire(self, address: Address) -> NodeWire:
        wire = self._wires.get(address)
        if wire is None:
            if self._closed:
                raise Misuse(f"this connection to the Redis Cluster at {self.where} was closed")
            self._make_room()
            opened = self._open_wire(self._target._replace(addresses=(address,)))
            wire = self._wires.setdefault(address, opened)  # another thread may have been quicker
        return wire

    def _make_room(self) -> None:
        """Nodes come and go, under new addresses; and what answers may send us anywhere. Forget those that have no slot."""
        if len(self._wires) < MOST_NODES:
            return
        self._reached = True
        known = {*self._target.addresses, *self._slots.copy().values()}
        for address in [one for one in self._wires.copy() if one not in known]:
            if (gone := self._wires.pop(address, None)) is not None:
                gone.reset()
        if len(self._wires) >= MOST_NODES:
            self._slots = {}
            raise Unavailable(f"the Redis Cluster at {self.where} sends us to more than {MOST_NODES} nodes")

    def _address(self, number: int) -> Address:
        seeds = self._target.addresses
        return self._slots.get(number) or seeds[self._seed % len(seeds)]

    async def _routed(
        self, requests: Sequence[bytes], within: float, *, apart: bool = False, once: bool = False
    ) -> list[Reply]:
        """Each to its node. Apart from user work, trouble of a node is the answer to what it was asked; else it is raised."""
        deadline = self._now() + within
        replies: list[Reply] = [None] * len(requests)
        slots = {index: _slot(request) for index, request in enumerate(requests) if _has_key(request)}
        first = [request for request in requests if not _has_key(request)]
        open_ = list(slots)
        for _ in range(_HOPS):
            by_node: dict[Address, list[int]] = {}
            for index in open_:
                by_node.setdefault(self._address(slots[index]), []).append(index)
            asked = [
                (self._wire(address), [*first, *(requests[index] for index in some)])
                for address, some in by_node.items()
            ]
            answers = await self._asked(asked, deadline - self._now(), apart=apart, once=once)
            open_ = []
            for (address, indices), some in zip(by_node.items(), answers, strict=True):
                if any(isinstance(reply, Unavailable) for reply in some):
                    self._forget(address)
                for index, reply in zip(indices, some[len(first) :], strict=True):
                    replies[index] = await self._redirected(
                        [*first, _ASKING, requests[index]], reply, deadline, once=once
                    )
                    if replies[index] is None:
                        open_.append(index)
                    elif not isinstance(
                        reply, Exception
                    ):  # learnt: else it would be looked for where another was not found
                        self._slots[slots[index]] = address
            if not open_ or self._now() >= deadline:
                break
        lost = Unavailable(f"the Redis Cluster at {self.where} sends us from node to node: it is being rearranged")
        for index in open_:
            replies[index] = lost
        if not apart:
            for reply in replies:
                if isinstance(reply, HoldfastError):
                    raise reply
        return replies

    async def _asked(
        self, asked: Sequence[tuple[NodeWire, Sequence[bytes]]], within: float, *, apart: bool, once: bool
    ) -> list[list[Reply]]:
        if apart:
            return await self._home.ask_each_apart(asked, within)
        answers: list[list[Reply]] = []
        for wire, some in asked:
            try:
                alone = once and len(some) == 1
                answers.append(
                    [await wire.ask(some[0], within)] if alone else await wire.ask_all(some, within, once=once)
                )
            except HoldfastError as error:
                answers.append([error] * len(some))
        return answers

    def _forget(self, address: Address) -> None:
        """Perhaps it is gone for good: ask another node for its slots next time."""
        # Of a copy: other threads learn of slots meanwhile.
        self._slots = {number: where for number, where in self._slots.copy().items() if where != address}
        self._seed += 1

    async def _redirected(self, asking: Sequence[bytes], reply: Reply, deadline: float, *, once: bool) -> Reply:
        """The reply; None: ask again, where we now know to ask. `asking`: how to ask a node that is just getting the slot."""
        if not isinstance(reply, ReplyError):
            return reply
        code, _, rest = str(reply).partition(" ")
        if code not in ("MOVED", "ASK"):
            return reply
        try:
            number, place = rest.split(" ")
            host, _, port = place.rpartition(":")
            address = sent_to(host, port, self._target.addresses[0][0])
            if code == "MOVED":
                self._slots[int(number) % SLOTS] = address  # there are no more, whatever it says
                return None
        except ValueError:
            return nonsense(reply, self.where)
        try:
            return (await self._wire(address).ask_all(asking, deadline - self._now(), once=once))[-1]
        except HoldfastError as error:
            return error


def _has_key(request: bytes) -> bool:
    return request.find(b"EVALSHA", 0, 24) > 0


def _slot(request: bytes) -> int:
    """Of its first key; all keys of a request of ours are in braces alike."""
    return slot(request)
