"""A real etcd of three members passes the suite; also with one of them dead."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import Suite
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.etcd import Etcd

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def etcd() -> Iterator[Cluster[Etcd]]:
    with servers.cluster("etcd", 3) as cluster:
        yield cluster


class TestEtcd(Suite):
    @pytest.fixture
    def url(self, etcd: Cluster[Etcd]) -> str:
        return f"{etcd.url}/{uuid4().hex[:8]}"
