"""What a signal handler that raises may find locked: only what is let go of again, wherever it was interrupted.

`with` on a bare lock takes and lets go in single steps of the interpreter. Conditions and events are written in Python: between
taking the lock and the beginning of the `with` there is a step, in which an exception leaves it locked for ever.
"""

from __future__ import annotations

import ast
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent
# Run in processes, or threads, of their own, in which nobody catches Ctrl-C and goes on.
TOOLS = {"testing", "verify", "cli", "lab", "dashboard", "contrib"}
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in TOOLS]


def _made(tree: ast.AST, kind: str) -> set[str]:
    """Names, and attributes, that are given one of threading's."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func) in (kind, f"threading.{kind}"):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {ast.unparse(target).rpartition(".")[2] for target in targets}
    return found


def test_nobody_enters_a_condition() -> None:
    wrong = []
    for path in FILES:
        tree = ast.parse(path.read_text())
        conditions = _made(tree, "Condition")
        for node in ast.walk(tree):
            if isinstance(node, ast.With):
                entered = {ast.unparse(item.context_expr).rpartition(".")[2] for item in node.items}
                wrong += [f"{path.relative_to(SOURCE)}:{node.lineno} with {one}" for one in entered & conditions]
    assert not wrong, f"enter the lock that it is made of: {wrong}"


def test_nobody_waits_for_an_event() -> None:
    wrong = [
        str(path.relative_to(SOURCE))
        for path in FILES
        if "threading.Event()" in path.read_text() and path.name != "dashboard.py"
    ]
    assert not wrong, f"drivers.threads.Flag does the same, and locks nothing: {wrong}"
