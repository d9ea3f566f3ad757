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


# Found by attack: by item, its cells; a test is named with its file, or with its theme of the conformance suite.
ITEMS = {
    cells[1].strip(): cells
    for line in PAGE.splitlines()
    if re.match(r"\| [ABC]\d+[ |]", line) and (cells := line.split("|"))
}
EVERY_ITEM = {f"A{n}" for n in range(1, 8)} | {f"B{n}" for n in range(1, 11)} | {f"C{n}" for n in range(1, 12)}
MENTIONED = re.compile(r"`([\w/.]+)::(\w+)`")


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


def test_what_was_found_by_attack_has_its_tests() -> None:
    assert {item.split()[0] for item in ITEMS} == EVERY_ITEM
    assert [item for item, cells in ITEMS.items() if not MENTIONED.search(cells[4])] == []


def test_these_tests_are_where_the_page_says() -> None:
    lost = [
        f"{item}: {where}::{name}"
        for item, cells in ITEMS.items()
        for where, name in MENTIONED.findall(cells[4])
        if not is_there(ROOT / (where if "/" in where else f"src/holdfast/testing/conformance/{where}.py"), name)
    ]
    assert lost == []


def is_there(file: Path, name: str) -> bool:
    """A test; or a scenario, which a test of that file is given."""
    text = file.read_text() if file.exists() else ""
    given = name.startswith("test_") or len(re.findall(rf"\b{name}\b", text)) > 1
    return given and re.search(rf"def {name}\(", text) is not None


def test_a_test_that_is_gone_is_missed() -> None:
    here = Path(__file__)
    assert is_there(here, "test_a_test_that_is_gone_is_missed")
    assert not is_there(here, "test_a_test_that_is_go")
    assert not is_there(here, "is_there_not")
    assert not is_there(here.with_name("test_no_such_file.py"), "test_a_test_that_is_gone_is_missed")
