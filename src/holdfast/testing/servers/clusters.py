"""Several servers that start, settle and stop together."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Generic, TypeVar

from holdfast.testing.closing import Closes
from holdfast.testing.servers.base import MEND_SECONDS, START_SECONDS, Server, mend, poll

Member = TypeVar("Member", bound=Server)


class Cluster(Closes, Generic[Member]):
    """Servers of one kind. `members` may be paused, killed and restarted one by one."""

    def __init__(self, kind: str, members: Sequence[Member]) -> None:
        self.kind = kind
        self.members = list(members)

    @property
    def servers(self) -> list[Member]:
        """All that runs, members or not."""
        return self.members

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [member.address for member in self.members]

    @property
    def hosts(self) -> str:
        """As most clients want them: 127.0.0.1:1,127.0.0.1:2"""
        return ",".join(f"{member.host}:{member.port}" for member in self.members)

    @property
    def url(self) -> str:
        return f"{self.members[0].scheme}://{self.hosts}"

    def start(self, timeout: float = START_SECONDS) -> None:
        """Launch all, and only then wait: a member answers when it has found a quorum of others."""
        deadline = time.monotonic() + timeout
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.await_answer(deadline - time.monotonic())
        self.settle(deadline - time.monotonic())

    def settle(self, timeout: float = START_SECONDS) -> None:
        """Wait until the members have become one cluster. Servers that know nothing of each other have no need to."""

    def leader(self, timeout: float = START_SECONDS) -> Member:
        """The running member that leads, waiting out an election."""
        found: list[Member] = []

        def elected() -> bool:
            found[:] = [member for member in self.members if member.running and _leads(member)]
            return len(found) == 1

        poll(elected, timeout, f"{self} to have one leader")
        return found[0]

    def whole(self) -> bool:
        """Every member takes writes. Any OSError, too, means not yet."""
        return all(member.writes() for member in self.members)

    def mend(self, patience: float = MEND_SECONDS) -> None:
        """Before it is used again, by another test for one: all of it runs and takes writes, whatever was done to it.

        What a member says of itself is not enough. A ZooKeeper of which a quorum was paused may have a leader and followers
        ever after, and commit nothing. It is restarted then, and said so: a broken cluster is no defect of who uses it.
        """
        mend(self, self.servers, self.whole, patience)

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def close(self) -> None:
        self.stop()

    def __str__(self) -> str:
        return f"{self.kind} at {self.hosts}"


def _leads(member: Server) -> bool:
    try:
        return member.leads()
    except OSError:
        return False
