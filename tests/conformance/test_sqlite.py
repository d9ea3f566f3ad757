"""The SQLite store passes the suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.testing.conformance import Suite


class TestSqlite(Suite):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/locks.db"
