"""redlock://, redlocks://: every node by itself, and whether they are as independent as they have to be."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import HoldfastError
from ..stores.redis.url import Target, parse, show
from .findings import Finding, Ward, ok, problem, warning
from .network import members
from .redis import NodesWard, node

MATTERS = "a lease is counted by every node's own clock"
_PATIENCE = 2.0  # seconds for one answer: the quarter of a second that a claim has is too little to judge by


class RedlockWard(NodesWard):
    order = ("quorum", "version", "independence", "persistence", "eviction", "clock", "tls and login")
    matters = MATTERS
    scheme = "redlocks://"

    def __init__(self, target: Target) -> None:
        super().__init__(target._replace(timeout=max(target.timeout, _PATIENCE)), [])
        self.silent: list[tuple[str, object]] = []
        for address in target.addresses:
            one = node(self.target, address)
            try:
                one.ask("PING")
            except (HoldfastError, OSError) as error:
                self.silent.append((show(address), error))
                one.close()
            else:
                self.nodes.append(one)

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


def admit(url: str) -> Ward:
    return RedlockWard(parse(url))
