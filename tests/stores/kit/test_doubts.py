"""When a connection that is silent is taken for the one to blame, and how often one asks."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

import holdfast
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores.kit.doubts import Doubts
from holdfast.testing import servers
from holdfast.testing.manual import Manual
from holdfast.testing.network import Network

REST = 1.0
MANY = 16


class Line:
    closed = False

    def close(self) -> None:
        self.closed = True


class Server:
    """How it takes newcomers: it answers, or is silent for as long as they wait."""

    def __init__(self, driver: Manual) -> None:
        self._driver = driver
        self.is_well = True
        self.lines: list[Line] = []
        self.spoke = False

    async def answers(self, within: float) -> Line:
        self.lines.append(Line())
        if not self.is_well:
            self._driver.time += within
            raise TimeoutError
        return self.lines[-1]

    async def speaks(self, within: float) -> bool:
        self._driver.time += within
        return self.spoke


@pytest.fixture
def server(driver: Manual) -> Server:
    return Server(driver)


@pytest.fixture
def doubts(driver: Manual) -> Doubts:
    return Doubts(driver)


def asked(doubts: Doubts, server: Server, within: float = 2.0) -> Line | None:
    return finish(doubts.instead(server.answers, server.speaks, within))


def test_who_is_alone_with_its_silence_is_replaced(doubts: Doubts, server: Server) -> None:
    for _ in range(2):  # and the next one as well, at once
        another = asked(doubts, server)
        assert another is server.lines[-1]
        assert not another.closed
    assert len(server.lines) == 2


def test_a_silent_server_is_asked_once_and_then_not_for_a_while(doubts: Doubts, server: Server, driver: Manual) -> None:
    server.is_well = False
    before = driver.time
    assert asked(doubts, server) is None
    assert driver.time <= before + 0.5, "whoever waits there looks away for too long"
    assert doubts.rest
    for _ in range(3):
        assert asked(doubts, server) is None
        driver.time += REST / 4
    assert len(server.lines) == 1
    driver.time += REST / 4 + 0.001
    assert asked(doubts, server) is None
    assert len(server.lines) == 2


def test_what_was_on_its_way_is_heard_and_the_newcomer_is_sent_home(doubts: Doubts, server: Server) -> None:
    server.spoke = True
    assert asked(doubts, server) is None
    assert server.lines[0].closed
    assert asked(doubts, server) is None
    assert len(server.lines) == 1, "the server is slow, and asked again at once whether it is"


def test_nobody_is_asked_for_longer_than_there_is_time(doubts: Doubts, server: Server, driver: Manual) -> None:
    server.is_well = False
    before = driver.time
    assert asked(doubts, server, within=0.1) is None
    assert driver.time == pytest.approx(before + 0.1)


def test_interrupted_the_newcomer_is_not_left_open(doubts: Doubts, server: Server) -> None:
    async def speaks(within: float) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finish(doubts.instead(server.answers, speaks, 1.0))
    assert server.lines[0].closed


def test_of_many_at_once_one_asks_and_the_others_believe_it() -> None:
    doubts = Doubts(Threads())
    lines: list[Line] = []
    found: list[Line | None] = []

    async def answers(within: float) -> Line:
        lines.append(Line())
        time.sleep(0.1)  # noqa: ASYNC251 - run by threads
        raise TimeoutError

    async def speaks(within: float) -> bool:
        return False

    def doubt() -> None:
        found.append(finish(doubts.instead(answers, speaks, 2.0)))

    many = [threading.Thread(target=doubt) for _ in range(16)]
    for one in many:
        one.start()
    for one in many:
        one.join(20)
    assert found == [None] * 16
    assert len(lines) == 1


def test_when_many_are_silent_at_once_all_are_replaced_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A firewall that forgets one connection forgets all. One after the other, the last would have had to wait as before."""
    monkeypatch.setattr("holdfast.stores.kit.doubts.ANSWER", 20.0)
    doubts = Doubts(Threads())
    found: list[Line | None] = []
    looking = itertools.count()
    all_the_others = threading.Barrier(MANY - 1)

    async def answers(within: float) -> Line:
        return Line()

    async def speaks(within: float) -> bool:
        if next(looking):
            all_the_others.wait(5)
            return False
        deadline = time.monotonic() + 20  # the first: when all others are in line
        while len(doubts._turns._line) < MANY:
            assert time.monotonic() < deadline
            time.sleep(0.001)  # noqa: ASYNC251 - run by threads
        return False

    def doubt() -> None:
        found.append(finish(doubts.instead(answers, speaks, 20.0)))

    many = [threading.Thread(target=doubt) for _ in range(MANY)]
    for one in many:
        one.start()
    for one in many:
        one.join(60)
    assert not all_the_others.broken
    assert len(found) == MANY
    assert None not in found
    assert not doubts.rest


def test_after_that_a_server_that_is_silent_is_asked_by_one_again(
    doubts: Doubts, server: Server, driver: Manual
) -> None:
    assert asked(doubts, server) is not None
    server.is_well = False
    assert asked(doubts, server) is None
    assert doubts.rest
    assert asked(doubts, server) is None
    assert len(server.lines) == 2


@pytest.mark.server
@pytest.mark.parametrize("kind", ["etcd", "consul"])
def test_where_there_is_one_server_it_is_asked_on_another_connection(kind: str) -> None:
    """With several, whoever is silent is left for the next one anyway."""
    with servers.start(kind) as server, Network(server.url) as network, holdfast.connect(network.url) as locks:
        locks.lock("warm").acquire(timeout=10).release()
        network.stick()
        lease = locks.lock("x").acquire(timeout=1)
        network.stick()
        assert lease.release() is True
        assert network.stuck == 2
