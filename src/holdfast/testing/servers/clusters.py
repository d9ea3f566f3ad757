"""Several servers that start, settle and stop together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic, Self, TypeVar

from holdfast.testing.ports import LOOPBACK
from holdfast.testing.servers.base import START_SECONDS, Server, ServerError

Member = TypeVar("Member", bound=Server)


class Cluster(Generic[Member]):
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
        return ",".join(f"{LOOPBACK}:{member.port}" for member in self.members)

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

    def stop(self) -> None:
        for server in self.servers:
            server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __str__(self) -> str:
        return f"{self.kind} at {self.hosts}"


def poll(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Look until the condition holds; that a server cannot be asked just now means not yet."""
    deadline = time.monotonic() + timeout
    last: OSError | None = None
    while True:
        try:
            if condition():
                return
        except OSError as error:
            last = error
        if time.monotonic() > deadline:
            raise ServerError(f"waited {timeout:.1f} s for {what}; the last error was {last!r}")
        time.sleep(0.02)


def _leads(member: Server) -> bool:
    try:
        return member.leads()
    except OSError:
        return False
