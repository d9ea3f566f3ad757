"""Servers of Consul on simulated machines: one log, leaders that come and go, queries that wait for news.

What is modelled, since clients can see it: what quorum.py says; a session ends at the leader only, once or twice its TTL
after it was last renewed, and a new leader gives it that time anew; a leader that was deposed without noticing renews
sessions in its own memory, see `memory_counts`; a query may be told more than it asked for, and less often than something
happened; an index may fall, when what is gone is forgotten. What is not: a restored snapshot, ACLs, other datacenters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from .....drivers.base import Address
from .....drivers.simulated import Bell, Process
from .....drivers.simulated_streams import SimulatedStream, Streams
from .....drivers.world import FOREVER, World
from ..quorum import LOOK, PATIENCE, Member, Quorum
from .space import MOST_OPERATIONS, Failed, Pair, Space

_READS = ("get-tree",)
_TOLD_ANYWAY = 0.3  # how often a query hears of what does not concern it

Said = tuple[int, int, Any]  # the status, the index, and what becomes JSON; bytes are sent as they are


class ConsulMember(Member):
    def __init__(self, cluster: ConsulCluster, process: Process, streams: Streams, address: Address) -> None:
        super().__init__(process, streams, address, self._serve)
        self._cluster = cluster

    async def _serve(self, stream: SimulatedStream) -> None:
        data = b""
        try:
            while True:
                while (end := data.find(b"\r\n\r\n")) < 0:
                    if not (more := await stream.receive(FOREVER)):
                        return stream.close()
                    data += more
                head, data = data[:end], data[end + 4 :]
                _, _, length_and_more = head.partition(b"\r\nContent-Length: ")
                length = int(length_and_more.partition(b"\r\n")[0] or 0)
                while len(data) < length:
                    if not (more := await stream.receive(FOREVER)):
                        return stream.close()
                    data += more
                body, data = data[:length], data[length:]
                method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ", 2)
                stream.put(answered(*await self._answer(method, target, body)))
        except OSError:
            stream.close()

    async def _answer(self, method: str, target: str, body: bytes) -> Said:
        cluster, driver = self._cluster, self.process.driver
        renews = target.startswith("/v1/session/renew/")
        give_up = self.world.time + PATIENCE
        while not cluster.in_touch(self):
            memory = renews and self.believes and cluster.memory_counts(self)
            if memory and (session := target.rpartition("/")[2]) in self.old:
                if cluster.leader is self and session in cluster.space.sessions:  # not deposed yet, perhaps never
                    cluster.renew(session)
                return 200, 0, [{"ID": session}]
            if self.world.time > give_up:
                return 500, 0, b"No cluster leader"
            await driver.sleep(LOOK)
        if method == "GET":
            return await self._query(target)
        return cluster.ask(target, body)

    async def _query(self, target: str) -> Said:
        """Until there is news since the index that was named, or its time is over."""
        path, _, query = target.partition("?")
        key = _key(path)
        asked = dict(one.partition("=")[::2] for one in query.split("&"))
        recurse, least = "recurse" in asked, int(asked.get("index", "0"))
        wait = float(asked.get("wait", "0s").rstrip("s"))
        cluster, now = self._cluster, self.process.driver.now
        give_up = now() + wait * (1 + self.world.random.random() / 16)
        while True:
            index, found = cluster.space.tree(key) if recurse else cluster.space.read(key)
            if not least or index > least or now() >= give_up:
                return 200 if found else 404, max(index, 1), found or b""
            bell = self.process.driver.bell()
            waiting = key, recurse, bell
            cluster.waiting.append(waiting)
            try:
                await bell.wait(give_up - now())
            finally:
                cluster.waiting.remove(waiting)


class ConsulCluster(Quorum[ConsulMember]):
    """`patience`: how many of its TTLs a session really lives. Consul promises 1 (session_ttl.go: "a session is not expired
    before the TTL"), and gives 2 (SessionTTLMultiplier), also when a new leader begins (initializeSessionTimers)."""

    tick = 0.25

    def __init__(self, world: World, streams: Streams, addresses: list[Address], patience: float = 2.0) -> None:
        super().__init__(world)
        self.space = Space(lambda: world.time)
        self.patience = patience
        self.waiting: list[tuple[str, bool, Bell]] = []
        self.members = [ConsulMember(self, Process(world, where[0]), streams, where) for where in addresses]
        self.leader = self.members[0]
        self._led_since = 0.0

    def ask(self, target: str, body: bytes) -> Said:
        space = self.space
        path = target.partition("?")[0]
        if path == "/v1/txn":
            return self._transaction([one["KV"] for one in json.loads(body)])
        if path == "/v1/session/create":
            wish = json.loads(body)
            bits = f"{self.world.random.getrandbits(128):032x}"
            session = f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"
            ttl, delay = (float(wish[field].rstrip("s")) for field in ("TTL", "LockDelay"))
            space.open(session, ttl, delay, wish["Behavior"])
            self.renew(session)
            self.begin_to_tick()
            return 200, 0, {"ID": session}
        session = path.rpartition("/")[2]
        if path.startswith("/v1/session/renew/"):
            if session not in space.sessions:
                return 404, 0, f"Session id '{session}' not found".encode()
            self.renew(session)
            return 200, 0, [{"ID": session}]
        if path.startswith("/v1/session/destroy/"):
            self.end(session)
            return 200, 0, True
        raise NotImplementedError(path)

    def _transaction(self, operations: list[Pair]) -> Said:
        if len(operations) > MOST_OPERATIONS:
            return 413, 0, b"Transaction contains too many operations"
        if all(one["Verb"] in _READS for one in operations):
            return 200, self.space.index, {"Results": _results(self.space.look(operations)), "Errors": None}
        try:
            found = self.space.transact(operations)
        except Failed as failed:
            return 409, 0, {"Results": None, "Errors": [{"OpIndex": failed.at, "What": str(failed)}]}
        self._tell(one["Key"] for one in operations if one["Verb"] not in _READS)
        return 200, 0, {"Results": _results(found), "Errors": None}

    # ---- sessions, and who hears of it

    def renew(self, session: str) -> None:
        found = self.space.sessions[session]
        found.ends = self.world.time + self.patience * found.ttl

    def ends(self) -> dict[str, float]:
        return {session: found.ends for session, found in self.space.sessions.items()}

    def end(self, session: str) -> None:
        held = [key for key, pair in self.space.pairs.items() if pair.get("Session") == session]
        self.space.close(session)
        self._tell(held)

    def _tell(self, keys: Iterable[str]) -> None:
        changed = list(keys)
        for key, recurse, bell in self.waiting:
            concerned = any(one.startswith(key) if recurse else one == key for one in changed)
            if concerned or self.world.random.random() < _TOLD_ANYWAY:
                bell.ring()

    def reap(self) -> None:
        self.space.reap()

    # ---- leaders

    def memory(self) -> set[str]:
        return set(self.space.sessions)

    def memory_counts(self, member: ConsulMember) -> bool:
        """May a leader that was deposed, and does not know it, still renew a session?

        Once another leads, that is a renewal which the other never hears of, and to promise a TTL all the same takes the time
        that Consul gives beyond it. A Consul that ended sessions at their TTL would have to ask the others first. The real
        one steps down within raft's leader lease, which is no longer than the election timeout (config.go of raft), and
        that is shorter than any TTL.
        """
        if self.leader is None or self.leader is member:
            return True
        return self.world.time < self._led_since + (self.patience - 1) * self.election

    def promoted(self) -> None:
        self._led_since = self.world.time
        for session in self.space.sessions:
            self.renew(session)


@lru_cache(256)
def _key(path: str) -> str:
    return unquote(path.removeprefix("/v1/kv/"))


def _results(found: list[Pair]) -> list[Pair]:
    return [{"KV": pair} for pair in found]


def answered(status: int, index: int, said: Any) -> bytes:
    body = said if isinstance(said, bytes) else json.dumps(said).encode()
    at = f"X-Consul-Index: {index}\r\n" if index else ""
    return f"HTTP/1.1 {status} X\r\n{at}Content-Length: {len(body)}\r\n\r\n".encode() + body
