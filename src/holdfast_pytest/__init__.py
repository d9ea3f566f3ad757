"""What pytest loads wherever holdfast is installed: two fixtures, and no import that costs those who ask for neither.

All there is to them is in `holdfast.contrib.pytest`. This is a package of its own because to import a part of holdfast is
to import holdfast.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from holdfast.contrib.pytest import Controls, Once


@pytest.fixture
def holdfast(monkeypatch: pytest.MonkeyPatch) -> Iterator[Controls]:
    """Locks in memory, of this test alone, and what can happen to a lock: lose, expire, steal, endanger, unavailable."""
    from holdfast.contrib.pytest import Controls

    with Controls() as controls:
        monkeypatch.setenv("HOLDFAST_URL", controls.url)
        yield controls


@pytest.fixture(scope="session")
def once_across_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """`once_across_workers(name, make, undo)`: made by one worker of pytest-xdist, given to all, undone by the last."""
    from holdfast.contrib.pytest import Once, shared_folder

    with Once(shared_folder(tmp_path_factory)) as once:
        yield once
