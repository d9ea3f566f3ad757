"""The site is built without network and without a warning: no broken link, no page that nobody reaches."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


def build(source: Path, target: Path, *more: str) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("sphinx", reason="the site is built in the main environment")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", *more]
    return subprocess.run([*command, str(source), str(target)], capture_output=True, text=True, timeout=300)


@pytest.mark.timeout(320)
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = build(DOCS, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "index.html").read_text()
    assert not re.findall(r'(?:src|href)="(?:https?:)?//[^"]*\.(?:js|css|woff2?)', page), "works without network"


def test_a_broken_link_stops_it(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("# A page\n\n[nowhere](nothing.md)\n")
    more = ("-C", "-D", "extensions=myst_parser", "-D", "html_theme=basic")
    assert "nothing.md" in build(tmp_path, tmp_path / "site", *more).stderr


@pytest.mark.parametrize("picture", sorted((DOCS / "pictures").glob("*.svg")), ids=lambda path: path.stem)
def test_a_picture_is_well_formed_and_says_what_it_shows(picture: Path) -> None:
    tree = ET.parse(picture)
    if tree.getroot().get("class") == "rich-terminal":  # taken of a terminal by another test, not drawn
        return
    assert tree.find("{http://www.w3.org/2000/svg}title") is not None


def test_every_block_on_every_page_is_run_or_says_why_not() -> None:
    """Python is run by test_docs.py and test_start.py, unless the block says `skip: ` and why."""
    silent = []
    for page in DOCS.glob("**/*.md"):
        for info in re.findall(r"^ *```([^\n`]+)\n(?:.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE):
            language, _, rest = info.partition(" ")
            if language in {"python", "pycon"} and rest and not rest.startswith("skip: "):
                silent.append((page.name, info))
    assert not silent
