"""Servers that the run starts itself, in a folder and on ports of their own: these may be restarted, paused and beheaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from ..errors import Misuse
from ..testing import servers
from ..testing.servers.base import NotInstalled

ALONE = ("redis", "valkey", "postgresql", "mariadb")
TOGETHER = ("etcd", "zookeeper", "consul")  # three members, one of which leads
REDLOCK = "redlock"  # three Redis that know nothing of each other
KINDS = (*ALONE, *TOGETHER, REDLOCK)
MEMBERS = 3


class Own:
    def __init__(self, kind: str) -> None:
        if kind not in KINDS:
            raise Misuse(f"there is no server {kind!r} to start; there are {', '.join(KINDS)}")
        self.kind = kind
        self._stack: Any
        try:
            if kind in ALONE:
                self._stack = server = servers.start(kind)
                self.members: list[Any] = [server]
                self.url: str = server.url
            else:
                self._stack = cluster = servers.cluster("redis" if kind == REDLOCK else kind, MEMBERS)
                self.members = list(cluster.members)
                self.url = f"redlock://{cluster.hosts}" if kind == REDLOCK else cluster.url
        except NotInstalled as error:
            raise Misuse(str(error)) from None

    @property
    def has_leader(self) -> bool:
        return self.kind in TOGETHER

    def restart(self, chance: random.Random, sleep: Callable[[float], None]) -> str:
        """kill -9, and back with what it had on its disk."""
        return self._fell(chance.choice(self.members), chance, sleep)

    def leader(self, chance: random.Random, sleep: Callable[[float], None]) -> str:
        return self._fell(self._stack.leader(), chance, sleep)

    def pause(self, chance: random.Random, sleep: Callable[[float], None], most: float) -> str:
        member = chance.choice(self.members)
        member.pause()
        try:
            sleep(chance.uniform(0.1, most))
        finally:
            member.resume()
        return self._called(member)

    def heal(self) -> None:
        """Everything runs again and takes writes."""
        self._stack.mend()

    def stop(self) -> None:
        self._stack.stop()

    def _fell(self, member: Any, chance: random.Random, sleep: Callable[[float], None]) -> str:
        member.kill()
        sleep(chance.uniform(0.05, 0.5))
        member.restart()
        return self._called(member)

    def _called(self, member: Any) -> str:
        return f"server {self.members.index(member) + 1}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
