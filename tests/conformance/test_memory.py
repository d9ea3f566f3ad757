"""The in-process store passes the suite."""

from __future__ import annotations

from uuid import uuid4

import pytest

from holdfast.testing.conformance import Suite


class TestMemory(Suite):
    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid4().hex}"
