"""kazoo's and Curator's lock nodes: ephemeral, numbered by the server, the lowest has the lock. They live with a session."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...claim import Claim
from ...drivers.base import Driver
from ...errors import Misuse
from ..zookeeper.url import parse
from .errands import Errands
from .old import Kept, Names, mark

# Whoever has one stands in this line, a reader or a writer of theirs included. In Curator's names the dash before it is no sign.
_NUMBER = re.compile(r"((?:(?<=__)-)?\d{10})$")
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")  # by ZooKeeper
_PATIENCE = 3.0  # seconds to connect
_SESSION = 30.0  # seconds to ask for; the server may give less, and then a lease lives no longer
_SECONDS = 3.0  # for one question: kazoo keeps them until it is connected again, which may be never


class Node(NamedTuple):
    """What stands in the line for one claim, or may: a creation that was not answered is found by its prefix."""

    parent: str
    prefix: str
    name: str = ""


def open_format(whose: str, url: str, names: Names, driver: Driver) -> Nodes:
    return Nodes(whose, url, names.checked(), driver)


class Nodes:
    mutexes_only = True

    def __init__(self, whose: str, url: str, names: Names, driver: Driver) -> None:
        self._target = target = parse(url)
        self.whose = whose
        self._names = names
        # Without a path in the URL the old code's nodes are where `as` says, from the root on.
        self._root = (
            target.root if url.partition("?")[0].partition("://")[2].rpartition("@")[2].partition("/")[2] else ""
        )
        self._client: Any = None
        self._nodes: dict[str, Node] = {}  # by holder
        self._errands = Errands(driver, f"ZooKeeper at {target.hosts}{self._root}", self._let_go)

    async def take(self, claim: Claim, within: float) -> float:
        self._parent(claim.name)  # or Misuse
        return await self._errands.do(lambda: self._take(claim), within)

    async def keep(self, claims: Sequence[Claim], within: float) -> Sequence[Kept]:
        return await self._errands.do(lambda: [self._keep(claim) for claim in claims], within)

    async def give_back(self, claim: Claim, within: float) -> None:
        with contextlib.suppress(Misuse):  # by such a name nothing was ever taken
            self._parent(claim.name)
            await self._errands.do(lambda: self._give_back(claim), within)

    async def is_taken(self, name: str, within: float) -> bool:
        parent = self._parent(name)
        return await self._errands.do(lambda: bool(self._line(parent)), within)

    def forked(self) -> None:
        self._client = None  # its threads and its session are the parent's
        self._nodes = {}
        self._errands.forked()

    async def close(self, within: float) -> None:
        await self._errands.close(self._hang_up, within)  # with its session go its nodes

    # ---- in the thread

    def _take(self, claim: Claim) -> float:
        client, node = self._connected(), Node(self._parent(claim.name), self._prefix(claim))
        # First: what is not answered may have happened, and would stand in the line for as long as this process lives.
        self._nodes[claim.holder] = node
        self._errands.hold(claim.holder, claim.ttl)
        self._ask(client.ensure_path_async(node.parent))
        line = self._line(node.parent)
        node = node._replace(name=self._found(node, line))
        if not node.name:
            made = self._ask(client.create_async(f"{node.parent}/{node.prefix}", b"", ephemeral=True, sequence=True))
            node = node._replace(name=made.rpartition("/")[2])
            line = self._line(node.parent)
        self._nodes[claim.holder] = node
        if line and line[0] == node.name:
            return self._lives(claim)
        if not claim.queue:
            self._give_back(claim)
        return 0.0

    def _found(self, node: Node, line: Sequence[str]) -> str:
        """Ours, if it was made before, and perhaps the answer was lost. One of a session that is over is about to vanish."""
        for name in [one for one in line if one.startswith(node.prefix)]:
            if self._is_ours(node._replace(name=name)):
                return name
            self._delete(f"{node.parent}/{name}")
        return ""

    def _is_ours(self, node: Node) -> bool:
        found = self._ask(self._connected().exists_async(f"{node.parent}/{node.name}"))
        session = self._connected().client_id
        return found is not None and session is not None and found.ephemeralOwner == session[0]

    def _keep(self, claim: Claim) -> float:
        node = self._nodes.get(claim.holder)
        if node is None or not node.name or not self._is_ours(node):
            return 0.0
        self._errands.hold(claim.holder, claim.ttl)
        return self._lives(claim)

    def _give_back(self, claim: Claim) -> None:
        self._remove(Node(self._parent(claim.name), self._prefix(claim)))
        self._errands.forget(claim.holder)
        self._nodes.pop(claim.holder, None)

    def _let_go(self, holder: str) -> None:
        if (node := self._nodes.get(holder)) is not None:
            self._remove(node)
            del self._nodes[holder]

    def _remove(self, node: Node) -> None:
        for name in self._line(node.parent):
            if name.startswith(node.prefix):
                self._delete(f"{node.parent}/{name}")

    def _delete(self, path: str) -> None:
        from kazoo.exceptions import NoNodeError

        with contextlib.suppress(NoNodeError):
            self._ask(self._connected().delete_async(path))

    def _line(self, parent: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            children = self._ask(self._connected().get_children_async(parent))
        except NoNodeError:
            return []
        numbered = [(int(found[1]), child) for child in children if (found := _NUMBER.search(child))]
        return [child for _, child in sorted(numbered)]

    def _ask(self, question: Any) -> Any:
        return question.get(timeout=_SECONDS)

    def _lives(self, claim: Claim) -> float:
        """The server has just heard of us, so the session lasts for its timeout at least, from before we asked."""
        negotiated: float = self._client._session_timeout / 1000
        return min(claim.ttl, negotiated)

    def _prefix(self, claim: Claim) -> str:
        sign = mark(claim.holder)
        if self.whose == "kazoo":
            return f"{sign}__lock__"
        return f"_c_{sign[:8]}-{sign[8:12]}-{sign[12:16]}-{sign[16:20]}-{sign[20:]}-lock-"

    def _parent(self, name: str) -> str:
        """Misuse: such a node would be out of its place, or stand in the line of another lock, for ever."""
        path = self._names.of(name).removeprefix("/")
        if any(part in ("", ".", "..") for part in path.split("/")) or _FORBIDDEN.search(path):
            raise Misuse(
                f"{name!r:.80} makes no path of a node: no part of it may be empty, . or .. or a control character"
            )
        if any(_NUMBER.search(part) for part in name.removeprefix("/").split("/")[1:]):
            raise Misuse(
                f"{name!r:.80}: what follows a / must not end in ten digits, as nodes in the line of {self.whose} do"
            )
        return f"{self._root}/{path}"

    def _connected(self) -> Any:
        if self._client is None:
            from kazoo.security import CREATOR_ALL_ACL

            from ..zookeeper.wire import Client

            client = Client(self._target, _SESSION, lambda *_: None)
            client.default_acl = CREATOR_ALL_ACL if self._target.acl == "creator" else None
            try:
                client.start(timeout=_PATIENCE)
            except BaseException:
                client.end(keep=False)
                raise
            self._client = client
        return self._client

    def _hang_up(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.end(keep=False)
