"""docs/faults.md names tests that exist, and every test with a fault's number has its row there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "faults.md").read_text()
SOURCES = [*(ROOT / "src/holdfast/testing").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
TESTS = {name for source in SOURCES for name in re.findall(r"def (test_\w+)", source.read_text())}
OF_EVERY_STORE = {
    name
    for source in (ROOT / "src/holdfast/testing/conformance").glob("*.py")
    for name in re.findall(r"def (test_\w+)", source.read_text())
}
NUMBERED = re.compile(r"test_(\d{1,2}(?:_\d{1,2})*)_[a-z]")
ROWS = {
    int(cells[1]): cells for line in PAGE.splitlines() if (cells := line.split("|"))[1:] and cells[1].strip().isdigit()
}


def named(cell: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", cell))


def test_every_fault_has_a_row_and_a_test() -> None:
    assert sorted(ROWS) == list(range(1, len(ROWS) + 1))
    assert [number for number, cells in ROWS.items() if not named(cells[4]) | named(cells[5])] == []


def test_every_test_that_is_named_exists_where_the_page_says() -> None:
    assert set().union(*(named(cells[4]) for cells in ROWS.values())) - OF_EVERY_STORE == set()
    assert set().union(*(named(cells[5]) for cells in ROWS.values())) - (TESTS - OF_EVERY_STORE) == set()


def test_every_test_with_a_number_is_in_the_row_of_that_number() -> None:
    lost = [
        name
        for name in sorted(TESTS)
        if (match := NUMBERED.match(name)) and not any(name in named(ROWS[int(one)][5]) for one in match[1].split("_"))
    ]
    assert lost == []
