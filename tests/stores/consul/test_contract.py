"""Consul keeps what the core relies on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.stores.consul import open_store
from holdfast.testing import servers
from holdfast.testing.servers.base import Server

from ..contract import Contract

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.start("consul", "-hcl", 'session_ttl_min = "100ms"') as one:
        yield one


class TestConsul(Contract):
    open_store = staticmethod(open_store)

    def url(self, address: tuple[str, int], options: str = "") -> str:
        return f"consul://127.0.0.1:{address[1]}{options}"

    def forget_sessions(self, store: Any) -> None:
        store.sessions._by_ttl.clear()

    def asleep(self, store: Any) -> set[Any]:
        found: set[Any] = store.sleepers._bells
        return found
