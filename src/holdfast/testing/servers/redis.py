"""Redis and Valkey: single nodes, a replicated group under Sentinels, a Redis Cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence

from holdfast.testing.servers import wire
from holdfast.testing.servers.base import PROBE_SECONDS, START_SECONDS, Server, poll
from holdfast.testing.servers.clusters import Cluster

SLOTS = 16384


class Redis(Server):
    """A node that writes every command to disk before it answers, so that kill -9 loses nothing."""

    scheme = "redis"

    def command(self) -> list[str]:
        durable = ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        return [
            self.program,
            "--port",
            str(self.port),
            "--bind",
            self.host,
            "--dir",
            str(self.data),
            "--protected-mode",
            "no",  # at an address of a machine of its own, where nobody else is
            *durable,
            *self.extra,
        ]

    def answers(self) -> bool:
        return self.execute("PING") == b"PONG"

    def execute(self, *words: str | int, timeout: float = PROBE_SECONDS) -> wire.Reply:
        """One command, on a connection of its own."""
        return wire.redis(self.address, *words, timeout=timeout)


class GroupMember(Redis):
    """A node whose role changes: it keeps that in a configuration file, as Sentinels tell it to, and is restarted in it."""

    def __init__(self, extra: tuple[str, ...], replica_of: Redis | None = None) -> None:
        super().__init__("redis", extra)
        self._role = f"replicaof {replica_of.host} {replica_of.port}\n" if replica_of is not None else ""

    def prepare(self) -> None:
        self.write(self.data / "redis.conf", self._role)

    def command(self) -> list[str]:
        program, *options = super().command()
        return [program, str(self.data / "redis.conf"), *options]


class Sentinel(Redis):
    """A Sentinel; it rewrites its configuration file, which thereby is its data."""

    def prepare(self) -> None:
        self.write(self.data / "sentinel.conf", "\n".join(self.extra))

    def command(self) -> list[str]:
        return [
            self.program,
            str(self.data / "sentinel.conf"),
            "--sentinel",
            "--port",
            str(self.port),
            "--bind",
            self.host,
            "--protected-mode",
            "no",
        ]


class SentinelGroup(Cluster[Redis]):
    """A master with replicas (`members`, the first one starts as master) and as many Sentinels (`sentinels`)."""

    NAME = "main"

    def __init__(self, size: int, extra: tuple[str, ...]) -> None:
        # Without a delay before the first sync: the default of five seconds is most of the start.
        first = GroupMember(("--repl-diskless-sync-delay", "0", *extra))
        replicas = [GroupMember(first.extra, first) for _ in range(size - 1)]
        quorum = size // 2 + 1
        lines = (
            f"sentinel monitor {self.NAME} {first.host} {first.port} {quorum}",
            f"sentinel down-after-milliseconds {self.NAME} 500",
            f"sentinel failover-timeout {self.NAME} 3000",
        )
        self.sentinels: Sequence[Redis] = [Sentinel("redis", lines) for _ in range(size)]
        super().__init__("redis-sentinel", [first, *replicas])

    @property
    def servers(self) -> list[Redis]:
        return [*self.members, *self.sentinels]

    @property
    def url(self) -> str:
        hosts = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.NAME}"

    def start(self, timeout: float = START_SECONDS) -> None:
        """The replicas first: a Sentinel asks the master for them at once, and then not again for ten seconds."""
        deadline = time.monotonic() + timeout
        for member in self.members:
            member.start(deadline - time.monotonic())
        poll(self._replicated, deadline - time.monotonic(), f"the replicas of {self} to be in sync")
        for sentinel in self.sentinels:
            sentinel.start(deadline - time.monotonic())
        self.settle(deadline - time.monotonic())

    def settle(self, timeout: float = START_SECONDS) -> None:
        """Wait until every Sentinel knows all the others and all replicas: before that, a failover fails."""
        poll(self.whole, timeout, f"{self} to be complete")

    def whole(self) -> bool:
        return all(self._knows_all(sentinel) for sentinel in self.sentinels)

    def _knows_all(self, sentinel: Redis) -> bool:
        master = sentinel.execute("SENTINEL", "MASTER", self.NAME)
        assert isinstance(master, list)
        facts = dict(zip(master[::2], master[1::2], strict=True))
        others = len(self.sentinels) - 1, len(self.members) - 1
        known = facts[b"num-other-sentinels"], facts[b"num-slaves"]
        return (
            known == tuple(b"%d" % n for n in others)
            and facts[b"flags"] == b"master"
            and any(b"%d" % m.port == facts[b"port"] and _role(m)[0] == b"master" for m in self.members)
        )

    def _replicated(self) -> bool:
        """Every replica has the master's data, so that it can take over."""
        roles = [_role(member) for member in self.members]
        return all(role[0] == b"master" or role[3] == b"connected" for role in roles)

    def leader(self, timeout: float = START_SECONDS) -> Redis:
        """The member that the Sentinels name as master, once it says so itself."""
        found: list[Redis] = []

        def named() -> bool:
            for sentinel in self.sentinels:
                if sentinel.running:
                    address = sentinel.execute("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.NAME)
                    assert isinstance(address, list)
                    found[:] = [
                        m
                        for m in self.members
                        if b"%d" % m.port == address[1] and m.running and _role(m)[0] == b"master"
                    ]
                    return bool(found)
            return False

        poll(named, timeout, f"{self} to name a running master")
        return found[0]


class RedisCluster(Cluster[Redis]):
    """Masters only, the slots shared out evenly among them."""

    def __init__(self, size: int, extra: tuple[str, ...]) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1000", *extra)
        super().__init__("redis-cluster", [RedisClusterNode("redis", options) for _ in range(size)])

    @property
    def url(self) -> str:
        return f"redis+cluster://{self.hosts}"

    def settle(self, timeout: float = START_SECONDS) -> None:
        """Give each node its slots and introduce it to the others; the same again changes nothing."""
        size = len(self.members)
        for index, member in enumerate(self.members):
            if b"cluster_slots_assigned:0" in _info(member):
                member.execute("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
                first, last = SLOTS * index // size, SLOTS * (index + 1) // size - 1
                member.execute("CLUSTER", "ADDSLOTSRANGE", first, last)
        for other in self.members[1:]:
            self.members[0].execute("CLUSTER", "MEET", other.host, other.port, other.ports[1])
        poll(self.whole, timeout, f"{self} to cover all slots")

    def whole(self) -> bool:
        complete = b"cluster_known_nodes:%d" % len(self.members)
        return all(b"cluster_state:ok" in _info(m) and complete in _info(m) for m in self.members)


class RedisClusterNode(Redis):
    """Its second port is the bus to the other nodes. The default, the first port plus 10000, may be taken."""

    port_count = 2

    def command(self) -> list[str]:
        return [*super().command(), "--cluster-port", str(self.ports[1])]


def _role(member: Redis) -> list[wire.Reply]:
    role = member.execute("ROLE")
    assert isinstance(role, list)
    return role


def _info(member: Redis) -> bytes:
    info = member.execute("CLUSTER", "INFO")
    assert isinstance(info, bytes)
    return info
