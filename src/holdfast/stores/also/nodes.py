"""kazoo's and Curator's lock nodes: ephemeral, numbered by the server, the lowest has the lock. They live with a session."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Any

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
        self._paths: dict[str, str] = {}  # by holder: the node that is ours
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
        self._paths = {}
        self._errands.forked()

    async def close(self) -> None:
        if self._client is not None:
            await self._errands.do(self._hang_up, 3.0)  # with its session go its nodes
        self._errands.stop()

    # ---- in the thread

    def _take(self, claim: Claim) -> float:
        client, parent = self._connected(), self._parent(claim.name)
        client.ensure_path(parent)
        prefix = self._prefix(claim)
        line = self._line(parent)
        mine = next((node for node in line if node.startswith(prefix)), None)
        if mine is None:  # else it was made before, and perhaps the answer was lost
            mine = client.create(f"{parent}/{prefix}", b"", ephemeral=True, sequence=True).rpartition("/")[2]
            line = self._line(parent)
        self._paths[claim.holder] = f"{parent}/{mine}"
        self._errands.hold(claim.holder, claim.ttl)
        if line and line[0] == mine:
            return self._lives(claim)
        if not claim.queue:
            self._give_back(claim)
        return 0.0

    def _keep(self, claim: Claim) -> float:
        path = self._paths.get(claim.holder)
        found = path and self._connected().exists(path)
        if not found or found.ephemeralOwner != self._connected().client_id[0]:
            return 0.0
        self._errands.hold(claim.holder, claim.ttl)
        return self._lives(claim)

    def _give_back(self, claim: Claim) -> None:
        """By its name: a node whose creation was not answered is found, too."""
        from kazoo.exceptions import NoNodeError

        client, parent, prefix = self._connected(), self._parent(claim.name), self._prefix(claim)
        for node in self._line(parent):
            if node.startswith(prefix):
                try:
                    client.delete(f"{parent}/{node}")
                except NoNodeError:
                    continue
        self._errands.forget(claim.holder)
        self._paths.pop(claim.holder, None)

    def _let_go(self, holder: str) -> None:
        path = self._paths.pop(holder, None)
        if path is not None:
            self._connected().delete(path)

    def _line(self, parent: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            children = self._connected().get_children(parent)
        except NoNodeError:
            return []
        numbered = [(int(found[1]), child) for child in children if (found := _NUMBER.search(child))]
        return [child for _, child in sorted(numbered)]

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
