"""What is published, and what it stands on: nothing but what is listed, and within bounds."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Of our own source, and nothing that runs by itself or hides something: no archive, no compiled code.
KINDS = {".py", ".lua", ".sql", ".js", ".html", ".css", ".typed", ".yml", ".json", ".c", ".md", ".svg", ".png"}
ABOUT = {"METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE", "RECORD"}
TOP = {
    "src",
    "tests",
    "benchmarks",
    "docs",
    "scripts",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
}
TOP |= {"Makefile", "pyproject.toml", "PKG-INFO", ".gitignore"}
# Whose private parts we use, and which test looks at each of them, so that it fails first when they change.
PRIVATE = {
    "kazoo": "tests/stores/zookeeper/test_kazoo.py",
    "PyMySQL": "tests/stores/mysql/test_private_parts.py",
    "asyncmy": "tests/stores/mysql/test_private_parts.py",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling builds what is published; only the main environment has it")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    return folder


def ours() -> set[str]:
    return {
        file.relative_to(ROOT / "src").as_posix()
        for package in ("holdfast", "holdfast_command", "holdfast_pytest")
        for file in (ROOT / "src" / package).glob("**/*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def pages() -> set[str]:
    """`holdfast docs` shows them."""
    folder = ROOT / "docs"
    return {
        f"holdfast/docs/{file.relative_to(folder).as_posix()}"
        for file in folder.glob("**/*")
        if file.is_file() and "__pycache__" not in file.parts
    }


def test_the_wheel_has_our_source_and_what_is_said_about_it_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    about = {name.partition(".dist-info/")[2] for name in names if ".dist-info/" in name}
    code = {name for name in names if ".dist-info/" not in name}
    assert about == ABOUT
    assert code == ours() | pages()
    assert {Path(name).suffix for name in code} <= KINDS


def test_the_sdist_has_what_is_listed_and_nothing_else(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        members = opened.getmembers()
    assert {member.name.split("/")[1] for member in members} == TOP
    assert all(member.isfile() for member in members), "a link may lead anywhere"
    odd = [
        member.name
        for member in members
        if re.search(r"(^|/)(\.venv|\.env|.*\.pem|.*\.key|__pycache__)(/|$)", member.name)
    ]
    assert odd == []


def test_holdfast_itself_needs_nothing_and_what_stores_need_has_bounds_on_both_sides() -> None:
    assert PROJECT["project"]["dependencies"] == []
    extras = PROJECT["project"]["optional-dependencies"]
    for store in ("redis", "etcd", "zookeeper", "consul", "postgresql", "mysql", "prometheus"):
        for requirement in extras[store]:
            assert re.fullmatch(r"[\w.-]+(\[\w+\])?>=[\d.]+,<[\d.]+", requirement), requirement


@pytest.mark.parametrize("package", PRIVATE)
def test_private_parts_are_looked_at_by_a_test_of_their_own(package: str) -> None:
    text = (ROOT / PRIVATE[package]).read_text()
    assert package.lower() in text.lower()


def test_the_rules_of_security_are_on_and_no_file_of_ours_is_left_out_of_them() -> None:
    """Single rules may be off, with their reason beside them; never all of S, and never for all of src."""
    lint = PROJECT["tool"]["ruff"]["lint"]
    assert "S" in lint["select"]
    off = [
        rule for rules in (lint["ignore"], *lint["per-file-ignores"].values()) for rule in rules if rule.startswith("S")
    ]
    assert all(re.fullmatch(r"S\d{3}|SIM\d{3}", rule) for rule in off), off
    for pattern, rules in lint["per-file-ignores"].items():
        assert not (pattern in ("src/**", "src/holdfast/**") and any(rule.startswith("S") for rule in rules)), pattern
