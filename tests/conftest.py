"""Settings for all tests."""

import gc
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from holdfast import Locks
from holdfast.testing.manual import Manual, connect

# A shell starts what runs in its background deaf to Ctrl-C, and children inherit that: tests of signals need ears.
for _ignored, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, _usual)


# Tests that take seconds each, since most are a run of pytest: their files come early, or all would wait for them at the end.
SLOW = ("mistakes", "mutants", "fire", "seeds", "model", "browser")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first."""
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: -tests[item.path] * (12 if any(word in item.path.name for word in SLOW) else 1))


def pytest_collection_finish() -> None:
    """A dozen thousand tests are a great many objects. Whenever garbage is collected, and some tests ask for that, they would all
    be looked through, for seconds each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the source, to make a mistake in: see mutants/spoiling.py."""
    shutil.copytree(Path(__file__).parents[1] / "src" / "holdfast", tmp_path / "holdfast")
    return tmp_path


@pytest.fixture
def driver() -> Manual:
    """The clock in hand."""
    return Manual()


@pytest.fixture
def locks(driver: Manual) -> Locks:
    return connect(driver)
