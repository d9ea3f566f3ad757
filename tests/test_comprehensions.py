"""Python 3.13.0 does not protect a comprehension that leaves something out: interrupted just then, it passes by the `finally` and
the `with` around it, and a mutex stays taken. So where an end must not be missed, those are generators: `tuple(... if ...)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

PACKAGE = Path(holdfast.__file__).parent
# What runs in threads of its own, where no signal comes, or has nothing that must be given back.
APART = ("testing", "cli", "contrib", "dashboard", "doctor")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def unprotected(node: ast.AST, guarded: bool = False) -> Iterator[ast.expr]:
    if isinstance(node, FUNCTIONS):
        guarded = False
    if guarded and isinstance(node, COMPREHENSIONS) and any(one.ifs for one in node.generators):
        yield node
    for child in ast.iter_child_nodes(node):
        ends = isinstance(node, ast.With | ast.AsyncWith) or (isinstance(node, ast.Try) and _must_end(node))
        yield from unprotected(child, guarded or ends)


def _must_end(node: ast.Try) -> bool:
    return bool(node.finalbody) or any(
        isinstance(one.type, ast.Name) and one.type.id == "BaseException" for one in node.handlers
    )


@pytest.mark.parametrize(
    "path",
    sorted(path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in APART),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_no_interruption_passes_by_an_end(path: Path) -> None:
    found = [node.lineno for node in unprotected(ast.parse(path.read_text()))]
    assert not found, f"{path}: a comprehension with an `if` inside a `with` or `try`, in line {found}"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("with mutex:\n    some = [one for one in all if one]", 1),
        ("try:\n    some = {one for one in all if one}\nfinally:\n    end()", 1),
        ("try:\n    some = {one: 1 for one in all if one}\nexcept BaseException:\n    raise", 1),
        ("with mutex:\n    some = tuple(one for one in all if one)", 0),
        ("with mutex:\n    some = [one for one in all]", 0),
        ("some = [one for one in all if one]", 0),
    ],
)
def test_what_is_looked_for_is_found(text: str, found: int) -> None:
    assert len(list(unprotected(ast.parse(text)))) == found
