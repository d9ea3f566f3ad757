"""redis://, rediss://, unix://, redis+sentinel://, redis+cluster://."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ..drivers.base import finish
from ..drivers.dialing import is_local
from ..errors import HoldfastError, Unavailable
from ..stores.redis.cluster import ClusterWire
from ..stores.redis.dialing import as_sentinel
from ..stores.redis.keys import pack
from ..stores.redis.replies import Reply, ReplyError, worded
from ..stores.redis.url import Address, Target, parse, show
from ..stores.redis.wire import BlockingWire
from .findings import Finding, Ward, ok, problem, unseen, warning
from .network import almighty, clocks, compare, members, secrecy

MATTERS = "leases end by the server's clock, and after a failover to one that lags, tokens may be refused for that long"
_FULL = 0.9


class Node:
    """One server, asked on a connection of ours."""

    def __init__(self, wire: BlockingWire, where: str) -> None:
        self.wire = wire
        self.where = where

    def ask(self, *words: str | int) -> Reply:
        (reply,) = self.wire.converse([pack(*words)], self.wire.target.timeout)
        if isinstance(reply, ReplyError):
            raise Unavailable(f"{self.where}: {worded(reply)}")
        return reply

    def info(self, section: str) -> dict[str, str]:
        reply = self.ask("INFO", section)
        lines = reply.decode(errors="replace").splitlines() if isinstance(reply, bytes) else []
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def config(self, *names: str) -> dict[str, str]:
        """Empty where the user may not look, or a provider hides it."""
        try:
            reply = [word for name in names for word in _listed(self.ask("CONFIG", "GET", name))]
        except Unavailable:
            return {}
        words = [word.decode() for word in reply if isinstance(word, bytes)]
        return dict(zip(words[::2], words[1::2], strict=False))

    def time(self) -> float:
        seconds, micros = _listed(self.ask("TIME"))
        return int(seconds) + int(micros) / 1e6

    def close(self) -> None:
        finish(self.wire.close())


def _listed(reply: Reply) -> Sequence[bytes]:
    if not isinstance(reply, list):
        raise Unavailable(f"an answer that no Redis gives: {reply!r:.80}")
    return reply


def node(target: Target, address: Address) -> Node:
    """The very server at this address, whatever group it belongs to."""
    alone = target._replace(kind="redis", addresses=(address,), service="")
    return Node(BlockingWire(alone), show(address))


class NodesWard(Ward):
    """Servers of which each is asked by itself."""

    matters: str  # why their clocks do
    scheme: str  # the URL's, with TLS

    def __init__(self, target: Target, nodes: list[Node]) -> None:
        self.target = target
        self.nodes = nodes

    def close(self) -> None:
        for one in self.nodes:
            one.close()

    def version(self) -> Iterator[Finding]:
        return each(self.nodes, version)

    def persistence(self) -> Iterator[Finding]:
        return each(self.nodes, persistence)

    def eviction(self) -> Iterator[Finding]:
        return each(self.nodes, eviction)

    def clock(self) -> Iterator[Finding]:
        return clocks([(one.where, compare(one.time)) for one in self.nodes], self.matters)

    def tls_and_login(self) -> Iterator[Finding]:
        hosts = [host for host, _ in self.target.addresses]
        login = bool(self.target.password or self.target.cert)
        yield from secrecy(hosts, tls=self.target.tls, login=login, scheme=self.scheme)
        yield from each(self.nodes, open_doors)
        if login:
            yield from each(self.nodes, rights)


class RedisWard(NodesWard):
    matters = MATTERS

    def __init__(self, target: Target) -> None:
        self._cluster: ClusterWire | None = None
        if target.kind == "cluster":
            self._cluster = ClusterWire(target, BlockingWire)
            parts = finish(self._cluster.parts(target.timeout))
            nodes = [Node(part, part.where) for part in parts if isinstance(part, BlockingWire)]
        else:
            where = f"the master of {target.service!r}" if target.kind == "sentinel" else target.shown()
            nodes = [Node(BlockingWire(target), where)]
        super().__init__(target, nodes)
        group = target.kind in ("sentinel", "cluster")
        self.scheme = f"rediss+{target.kind}://" if group else "rediss://"
        quorum = ("quorum",) if group else ()
        self.order = ("version", *quorum, "persistence", "eviction", "replicas", "clock", "tls and login")

    def close(self) -> None:
        if self._cluster is not None:
            finish(self._cluster.close())
        super().close()

    def quorum(self) -> Iterator[Finding]:
        return self.sentinels() if self.target.kind == "sentinel" else self.cluster()

    def replicas(self) -> Iterator[Finding]:
        for one in self.nodes:
            yield from replicas(one, self.target)

    def sentinels(self) -> Iterator[Finding]:
        there: list[str] = []
        silent: list[tuple[str, object]] = []
        for address in self.target.addresses:
            sentinel = node(as_sentinel(self.target), address)
            try:
                said = sentinel.wire.converse([pack("SENTINEL", "CKQUORUM", self.target.service)], self.target.timeout)[
                    0
                ]
                there.append(sentinel.where)
            except (HoldfastError, OSError) as error:
                silent.append((sentinel.where, error))
                continue
            finally:
                sentinel.close()
            if isinstance(said, ReplyError):
                if str(said).startswith(("NOPERM", "NOAUTH")):
                    yield unseen(f"{sentinel.where}: {worded(said)}")
                else:
                    yield problem(
                        f"{sentinel.where}: {worded(said)}", "without that quorum nobody takes over from a dead master"
                    )
        yield from members(there, silent, "Sentinel")

    def cluster(self) -> Iterator[Finding]:
        for one in self.nodes:
            said = one.ask("CLUSTER", "INFO")
            text = said.decode() if isinstance(said, bytes) else ""
            facts = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            if facts.get("cluster_state") == "ok":
                yield ok(f"{one.where}: the cluster is complete, {facts['cluster_size']} masters")
            else:
                lost = facts.get("cluster_slots_fail", "?")
                yield problem(
                    f"{one.where}: the cluster is not complete (slots without a node: {lost})",
                    "locks whose names fall there cannot be had: redis-cli --cluster check",
                )


def each(nodes: Sequence[Node], check: Callable[[Node], Iterable[Finding]]) -> Iterator[Finding]:
    """One that cannot be looked at does not hide the others."""
    for one in nodes:
        try:
            found = list(check(one))
        except (HoldfastError, OSError, ValueError, LookupError) as error:
            found = [unseen(error)]
        for finding in found:
            named = finding.text if len(nodes) == 1 or one.where in finding.text else f"{one.where}: {finding.text}"
            yield finding._replace(text=named)


def version(one: Node) -> Iterator[Finding]:
    facts = one.info("server")
    kind = "Valkey" if "valkey_version" in facts else "Redis"
    number = facts.get("valkey_version") or facts.get("redis_version", "?")
    yield ok(f"{one.where}: {kind} {number}, up {int(facts.get('uptime_in_seconds', 0)) // 86400} days")


def persistence(one: Node) -> Iterator[Finding]:
    facts = one.info("persistence")
    if facts.get("aof_last_write_status", "ok") != "ok" or facts.get("rdb_last_bgsave_status", "ok") != "ok":
        yield problem("it cannot write to its disk", "look at its log and at the disk: it may soon refuse all writes")
    said = one.config("appendfsync", "save")
    fsync = said.get("appendfsync", "")
    forgets = "held locks are forgotten in a crash and may be granted again; only fenced storage stays right then"
    if facts.get("aof_enabled") == "1":
        if fsync == "always":
            yield ok("AOF, fsync before every answer: nothing that was granted is forgotten")
        elif fsync == "no":
            yield warning(f"AOF, fsync when the system likes: {forgets}", "CONFIG SET appendfsync everysec, or always")
        elif fsync:
            yield ok("AOF, fsync every second: a crash of the machine forgets the last second")
        else:
            yield unseen("how often its AOF is synced (CONFIG GET is not allowed)")
    elif said.get("save", "?"):
        yield warning(f"snapshots only: since the last one, {forgets}", "CONFIG SET appendonly yes")
    else:
        yield warning(f"no persistence: {forgets}", "CONFIG SET appendonly yes")


def eviction(one: Node) -> Iterator[Finding]:
    facts = one.info("memory")
    limit, policy = int(facts.get("maxmemory", 0)), facts.get("maxmemory_policy", "?")
    used = int(facts.get("used_memory", 0))
    if not limit:
        yield ok(f"no memory limit, so nothing is evicted (maxmemory-policy {policy})")
        return
    full = f", {used / limit:.0%} of {limit >> 20} MB used"
    if policy == "noeviction":
        if used > limit * _FULL:
            yield warning(f"nothing is evicted{full}: soon no lock can be had", "raise maxmemory")
        else:
            yield ok(f"nothing is evicted (noeviction){full}")
    elif policy == "volatile-ttl":
        yield warning(
            f"evicts what ends soonest (volatile-ttl){full}: locks may be among it, and then two hold one",
            "CONFIG SET maxmemory-policy noeviction, or a Redis of its own for locks",
        )
    else:
        yield problem(
            f"evicts locks that are held ({policy}){full}: then two hold one",
            "CONFIG SET maxmemory-policy noeviction, or a Redis of its own for locks",
        )


def replicas(one: Node, target: Target) -> Iterator[Finding]:
    facts = one.info("replication")
    if facts.get("role") != "master":
        yield problem(f"{one.where} is a replica: it grants no locks", "name its master, or use redis+sentinel://")
        return
    there = int(facts.get("connected_slaves", 0))
    wanted = target.replicas
    has = f"{one.where} has {there} replica{'' if there == 1 else 's'}"
    if wanted > there:
        yield problem(
            f"{has}, and the URL waits for {wanted}: no claim is confirmed",
            "bring the replicas back, or ask for fewer with ?replicas=",
        )
    elif wanted:
        yield ok(f"{has}, and a claim waits for {wanted} of them (WAIT)")
    elif there:
        how = "add ?replicas=1 to the URL: it makes that rarer, and only fenced storage makes it harmless"
        if target.kind == "cluster":
            how = "only fenced storage makes that harmless (?replicas= is for redis:// and redis+sentinel://)"
        yield warning(
            f"{has}, and no claim waits for {'it' if there == 1 else 'them'}: a failover may forget a lock", how
        )
    elif target.kind == "sentinel":
        yield problem(f"{one.where} has no replicas: there is nobody to fail over to", "add a replica")
    else:
        yield ok(f"{one.where} has no replicas, and so no failover that forgets a lock")


def open_doors(one: Node) -> Iterator[Finding]:
    """Who else gets in: the server's own settings, where they may be seen."""
    said = one.config("bind", "requirepass", "protected-mode")
    if said:
        yield from listening(said.get("bind", ""), said.get("protected-mode") == "yes", _lets_anybody_in(one, said))


def rights(one: Node) -> Iterator[Finding]:
    """Of who has logged in. Who has not is told of elsewhere."""
    try:
        who = one.ask("ACL", "WHOAMI")
        facts = _listed(one.ask("ACL", "GETUSER", who.decode()))
    except Unavailable:
        yield ok("this user is no administrator: it may not ask who it is")
        return
    said = dict(zip(facts[::2], facts[1::2], strict=False))
    if said.get(b"commands") == b"+@all":
        yield almighty(f"the user {who.decode()}")
    else:
        yield ok(f"the user {who.decode()} may not do everything")


def _lets_anybody_in(one: Node, said: dict[str, str]) -> bool:
    if said.get("requirepass"):
        return False
    try:
        facts = _listed(one.ask("ACL", "GETUSER", "default"))
    except Unavailable:
        return not said.get("requirepass")
    flags = facts[1] if len(facts) > 1 else []
    return isinstance(flags, list) and b"nopass" in flags and b"on" in flags


def listening(bind: str, protected: bool, anybody: bool) -> Iterator[Finding]:
    """By what it is bound to: `* -::*` or nothing is every address."""
    addresses = [word.lstrip("-") for word in bind.split()] or ["*"]
    if anybody and not protected and not all(is_local(one) for one in addresses):
        yield problem(
            f"it listens on {', '.join(addresses)} and asks nobody for a password",
            "set requirepass or an ACL, and give holdfast the rights that `holdfast migrate --acl` prints",
        )


def admit(url: str) -> Ward:
    return RedisWard(parse(url))
