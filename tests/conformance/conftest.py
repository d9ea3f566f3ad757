"""What the runs of the suite share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.testing.servers.clusters import Cluster

_FAILED = pytest.StashKey[int]()


@pytest.fixture
def mended(request: pytest.FixtureRequest) -> Callable[[Cluster[Any]], None]:
    """Hundreds of tests share a cluster, and do it no harm. If one fails all the same, the others need a whole one."""
    before = request.session.stash.get(_FAILED, 0)

    def mend(cluster: Cluster[Any]) -> None:
        if request.session.testsfailed > before:
            cluster.mend()
            request.session.stash[_FAILED] = request.session.testsfailed

    return mend
