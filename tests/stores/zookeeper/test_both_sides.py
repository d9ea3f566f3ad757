"""An ensemble that falls apart, with a client on either side.

A member that is cut off from its leader goes on answering reads and pings for a while (syncLimit). A holder that believed
them would believe for longer than the leader does, who ends its session and lets the next one in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kazoo.protocol.serialization import Exists

from holdfast import events
from holdfast.errors import Unavailable
from holdfast.stores.zookeeper import store
from holdfast.testing.ports import LOOPBACK
from holdfast.testing.proxy import Proxy
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.zookeeper import ZooKeeper

from ..hands import SOON, Background, Connect, until
from .hands import Ensemble

pytestmark = pytest.mark.server

CONFIG = ("maxSessionTimeout=100000", "forceSync=no", "syncLimit=40")  # eight seconds until it gives up its leader


class Remote(ZooKeeper):
    """A member that reaches the others through proxies."""

    proxies: tuple[Proxy, ...] = ()

    def prepare(self) -> None:
        super().prepare()
        path = self.data / "zoo.cfg"
        text = path.read_text()
        for peer in self.peers:
            if peer is not self:
                proxy = Proxy((LOOPBACK, peer.ports[1]))
                self.proxies += (proxy,)
                text = text.replace(f"={LOOPBACK}:{peer.ports[1]}:", f"={LOOPBACK}:{proxy.port}:")
        self.write(path, text)


@pytest.fixture
def apart() -> Iterator[tuple[Ensemble, Remote]]:
    remote = Remote("zookeeper", CONFIG)
    members = [remote, ZooKeeper("zookeeper", CONFIG), ZooKeeper("zookeeper", CONFIG)]
    for member in members:
        member.peers = members
    with Cluster("zookeeper", members) as ensemble:
        ensemble.start()
        assert ensemble.leader() is not remote  # the first of three is never elected to begin with
        yield ensemble, remote
    for proxy in remote.proxies:
        proxy.close()


def hold_and_cut(
    connect: Connect, ensemble: Ensemble, remote: Remote, root: str
) -> tuple[list[tuple[str, float]], Any]:
    """Our holder is beyond the cut, the next in line on the side of the majority."""
    there = connect(f"{remote.url}{root}?timeout=1")
    here = connect(f"zookeeper://{','.join(f'{LOOPBACK}:{one.port}' for one in ensemble.members[1:])}{root}")
    told: list[tuple[str, float]] = []
    there.subscribe(lambda event: told.append((event.kind, time.monotonic())), [events.RENEWED, events.LOST])
    lease = there.lock("x", ttl=2).acquire()
    waiting = Background(lambda: here.lock("x", ttl=2).acquire(timeout=60))
    until(lambda: told)
    for proxy in remote.proxies:
        proxy.to_server.hold()
        proxy.to_client.hold()
    waiting.result(SOON)
    assert lease.token  # kept until here: one that nobody has is let go
    return told, waiting


def test_the_holder_beyond_the_cut_has_lost_before_the_next_gets_in(
    apart: tuple[Ensemble, Remote], connect: Connect, root: str
) -> None:
    told, waiting = hold_and_cut(connect, *apart, root)
    assert told[-1][0] == events.LOST
    assert told[-1][1] < waiting.ended_at


def test_a_renewal_that_believes_the_member_it_talks_to_is_found_out(
    apart: tuple[Ensemble, Remote], connect: Connect, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mistake that the test above is for: to renew by reading."""

    async def by_reading(groups: list[list[Any]], driver: Any, within: float) -> list[Any]:
        return [
            Unavailable("interrupted")
            if records[0].session.suspended is not None
            else [
                stat is not None for stat in await records[0].session.ask([Exists(one.path, None) for one in records])
            ]
            for records in groups
        ]

    monkeypatch.setattr(store, "ask_who_is_there", by_reading)
    told, waiting = hold_and_cut(connect, *apart, root)
    assert told[-1][0] == events.RENEWED or told[-1][1] > waiting.ended_at
