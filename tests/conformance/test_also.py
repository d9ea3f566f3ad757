"""Two stores as one, by `also=`, pass the suite too: here two in memory."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from holdfast import connecting
from holdfast.drivers.base import Driver
from holdfast.stores.also.another import Another
from holdfast.stores.also.both import Both
from holdfast.stores.memory import MemoryStore
from holdfast.testing.conformance import Suite


def open_store(url: str, driver: Driver) -> Both:
    space = url.partition("://")[2]
    return Both(MemoryStore(driver, space), Another(MemoryStore(driver, f"{space}-old")), driver)


class TestAlso(Suite):
    @pytest.fixture
    def url(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
        monkeypatch.setitem(connecting.BUILT_IN, "memory+also", __name__)
        yield f"memory+also://{uuid4().hex}"
