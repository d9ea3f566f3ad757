"""A store to look at, and somebody who holds its locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def locks(url: str) -> Iterator[holdfast.Locks]:
    with holdfast.connect(url, label="billing") as connected:
        yield connected
