"""redlock://, redlocks://: every node by itself, and whether they are as independent as they have to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..errors import HoldfastError
from ..stores.redis.url import Target, parse, show
from .findings import Check, Finding, Ward, ok, problem, warning
from .network import clocks, compare, members, secrecy
from .redis import Node, each, eviction, node, open_doors, persistence, rights, version

MATTERS = "a lease is counted by every node's own clock"
_PATIENCE = 2.0  # seconds for one answer: the quarter of a second that a claim has is too little to judge by


class RedlockWard:
    def __init__(self, target: Target) -> None:
        self.target = target._replace(timeout=max(target.timeout, _PATIENCE))
        self.silent: list[tuple[str, object]] = []
        self.nodes: list[Node] = []
        for address in target.addresses:
            one = node(self.target, address)
            try:
                one.ask("PING")
            except (HoldfastError, OSError) as error:
                self.silent.append((show(address), error))
                one.close()
            else:
                self.nodes.append(one)

    def checks(self) -> Iterable[tuple[str, Check]]:
        return (
            ("quorum", self.quorum),
            ("version", lambda: each(self.nodes, lambda one: [version(one)])),
            ("independence", self.independence),
            ("persistence", lambda: each(self.nodes, persistence)),
            ("eviction", lambda: each(self.nodes, eviction)),
            ("clock", lambda: clocks([(one.where, compare(one.time)) for one in self.nodes], MATTERS)),
            ("tls and login", self.doors),
        )

    def close(self) -> None:
        for one in self.nodes:
            one.close()

    def quorum(self) -> Iterator[Finding]:
        return members([one.where for one in self.nodes], self.silent, "node")

    def independence(self) -> Iterator[Finding]:
        """Two names of one server are one vote; a node that fails over to a replica may vote twice."""
        seen: dict[str, str] = {}
        good = True
        for one in self.nodes:
            run = one.info("server").get("run_id", one.where)
            if run in seen:
                good = False
                yield problem(
                    f"{one.where} and {seen[run]} are one and the same server", "name servers that fail independently"
                )
            seen[run] = one.where
            facts = one.info("replication")
            if facts.get("role") != "master":
                good = False
                yield problem(f"{one.where} is a replica: it grants nothing", "name independent masters")
            elif facts.get("connected_slaves", "0") != "0":
                good = False
                yield warning(
                    f"{one.where} has replicas: if one takes over, the node forgets what it granted, and votes again",
                    "run the nodes of a Redlock without replicas, with AOF and fsync",
                )
        if good:
            yield ok(f"{len(self.nodes)} servers that know nothing of each other")

    def doors(self) -> Iterator[Finding]:
        hosts = [host for host, _ in self.target.addresses]
        login = bool(self.target.password or self.target.cert)
        yield from secrecy(hosts, tls=self.target.tls, login=login, scheme="redlocks://")
        yield from each(self.nodes, open_doors)
        if login:
            yield from each(self.nodes, rights)


def admit(url: str) -> Ward:
    return RedlockWard(parse(url))
