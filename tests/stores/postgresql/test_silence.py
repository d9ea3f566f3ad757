"""PostgreSQL may be silent for long, and be at work: on a row that somebody has locked. That is no fault of the connection."""

from __future__ import annotations

import threading

import pytest

from holdfast.testing.network import Network
from holdfast.testing.servers.postgresql import PostgreSQL

from .conftest import Connect
from .test_trouble import a_locked_row

pytestmark = pytest.mark.server
LONGER = 1.2  # than one waits without a doubt; and less than the server is told to wait for a row


def test_who_waits_for_a_row_is_not_taken_for_stuck(postgresql: PostgreSQL, connect: Connect) -> None:
    with Network(postgresql.url) as network:
        locks = connect(network.url)
        locks.lock("x").acquire(timeout=5).release()
        repeated: list[str] = []
        locks._engine.store.tell_repeats_to(repeated.append)  # type: ignore[attr-defined]
        open_before = network.accepted
        with a_locked_row(postgresql, "x") as somebody:
            free = threading.Timer(LONGER, somebody.rollback)
            free.start()
            lease = locks.lock("x").acquire(timeout=10)
            free.join()
        assert repeated == []
        assert network.accepted == open_before + 1, "it was asked once whether it is at work"
        lease.release()
