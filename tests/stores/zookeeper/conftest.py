from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

import holdfast
from holdfast.sync import Locks
from holdfast.testing import servers

from ..hands import Connect
from .hands import Ensemble


@pytest.fixture(scope="module")
def shared_ensemble() -> Iterator[Ensemble]:
    with servers.cluster("zookeeper", 3, "maxSessionTimeout=100000", "forceSync=no") as cluster:
        yield cluster


@pytest.fixture
def ensemble(shared_ensemble: Ensemble) -> Ensemble:
    """Whole, whatever the test before has done to it."""
    shared_ensemble.mend()
    return shared_ensemble


@pytest.fixture
def root() -> str:
    return f"/test-{uuid4().hex[:8]}"


@pytest.fixture
def connect() -> Iterator[Connect]:
    opened: list[Locks] = []

    def open_one(url: str, label: str = "") -> Locks:
        opened.append(holdfast.connect(url, label=label))
        return opened[-1]

    yield open_one
    for locks in opened:
        locks.close()
