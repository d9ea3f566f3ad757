"""An exception out of nothing, in the one place where it was once fatal."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.claim import Claim
from holdfast.stores.etcd.claiming import Record

from ...interrupting import Stop
from ..hands import Connect, until

pytestmark = pytest.mark.server


def test_a_downgrade_that_is_interrupted_when_etcd_has_agreed_leaves_nothing_behind(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = connect(), connect()
    becomes = Record.becomes

    def interrupted(self: Any, claim: Claim) -> None:
        monkeypatch.setattr(Record, "becomes", becomes)
        raise Stop

    with pytest.raises(Stop), a.rwlock("x", ttl=600).write() as lease:
        monkeypatch.setattr(Record, "becomes", interrupted)
        lease.downgrade()
    until(lambda: not b.names())
    assert b.rwlock("x").write().acquire(timeout=5).release()
