"""MySQL may be silent for long, and be at work: on a row that somebody has locked. That is no fault of the connection."""

from __future__ import annotations

import threading

import pytest

import holdfast
from holdfast.testing.network import Network

from .admin import Admin

pytestmark = pytest.mark.server
LONGER = 1.2  # than one waits without a doubt; and less than the server waits for a row


def test_who_waits_for_a_row_is_not_taken_for_stuck(url: str, admin: Admin) -> None:
    with Network(url) as network, holdfast.connect(network.url) as locks:
        held = locks.lock("x", ttl=60).acquire(timeout=5)
        before = list(locks._engine.store._server._everything)  # type: ignore[attr-defined]
        open_before = network.accepted
        admin.run("BEGIN")
        admin.run("SELECT 1 FROM holdfast_claims WHERE name = 'x' FOR UPDATE")
        free = threading.Timer(LONGER, lambda: admin.run("ROLLBACK"))
        free.start()
        held.release()
        free.join()
        assert network.accepted == open_before + 1, "it was asked once whether it is at work"
        assert all(one.alive() for one in before)
