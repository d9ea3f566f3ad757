"""The site is built without network and without a warning: no broken link, no page that nobody reaches."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.options import Usage, parse

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


BLOCK = re.compile(r"^ *```([^\n`]*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
TYPED_IN = (
    "cli.md",
    "which-store.md",
)  # what stands in their consoles is typed in, and read, by tests/cli/test_page.py
# Blocks of other languages than Python that no test runs as they stand: by page and language, and why.
_INSTALLS = "installs or starts what the reader's project has; the code on the page is run"
_ACL = "written for servers of the reader's; tests/cli/test_migrate.py and the tests of tenants run what it prints"
_SHOWN = "what is printed or drawn, and not typed in"
NOT_RUN = {
    ("README.md", "console"): "make and pip: scripts/check-dist does both; `holdfast run` and `why` are run on cli.md",
    ("index.md", "console"): "as in the README",
    ("architecture.md", ""): _SHOWN,
    ("cli.md", ""): _SHOWN,
    ("cli.md", "sh"): "pipes into psql: tests/cli/test_migrate.py applies what is printed",
    **{("doctor.md", one): "it depends on the reader's server: tests/doctor" for one in ("", "sh")},
    ("operating.md", ""): "it depends on the reader's exporter: tests/cli/test_advise_ttl.py",
    ("lockfree/advise.md", ""): "a conversation: tests/cli/test_advise.py has it on a terminal",
    ("dashboard.md", "sh"): "opens a page: tests/dashboard",
    ("lab.md", "console"): "opens a page: tests/lab",
    ("operating.md", "sh"): "writes where the reader's Grafana and Prometheus read: tests/observe",
    ("proof.md", "sh"): "takes minutes: tests/verify and tests/simulation run short ones",
    ("proof.md", "text"): _SHOWN,
    ("fenced/triggers.md", "console"): "applies to a database of the reader's: tests/fenced/test_triggers.py",
    **{
        (f"{one}.md", "console"): _INSTALLS
        for one in ("django", "celery", "apscheduler", "flask", "fastapi", "recipes")
    },
    ("recipes.md", "ini"): "needs systemd",
    ("recipes.md", "yaml"): "needs Kubernetes",
    ("writing-a-store.md", "toml"): "belongs into the reader's project",
    **{(f"{one}.md", "sh"): _ACL for one in ("security", "consul", "etcd", "redis", "postgresql", "mysql")},
    **{(f"{one}.md", ""): _ACL for one in ("security", "consul", "etcd", "redis", "zookeeper")},
    ("postgresql.md", "sql"): _ACL,
}


def blocks() -> Iterator[tuple[str, str, str]]:
    """Page, what stands behind the backquotes, and the block."""
    for page in (DOCS.parent / "README.md", *sorted(DOCS.glob("**/*.md"))):
        name = page.relative_to(DOCS).as_posix() if DOCS in page.parents else page.name
        for info, body in BLOCK.findall(page.read_text()):
            yield name, info, body


def test_every_block_on_every_page_is_run_or_says_why_not() -> None:
    """Python is run by test_docs.py, unless the block says `skip: ` and why; all of docs/start by test_start.py."""
    for path in (DOCS.parent / "README.md", *DOCS.glob("**/*.md")):
        indented = re.search(r"\n\n    [^\n]*", BLOCK.sub("", path.read_text()))
        assert not indented, f"{path.name}: a block without a fence is not looked at: {indented}"
    silent, left_out = [], set()
    for page, info, body in blocks():
        language, _, rest = info.partition(" ")
        if page.startswith("start/") or language.startswith("{") or (page in TYPED_IN and language == "console"):
            continue
        if language == "python":
            if rest and not rest.startswith("skip: "):
                silent.append((page, info))
        elif (page, language) in NOT_RUN:
            left_out.add((page, language))
        else:
            silent.append((page, f"{info}: {body[:60]}"))
    assert not silent
    assert left_out == NOT_RUN.keys()


def commands() -> list[str]:
    """Every `holdfast …` that a page tells the reader to type."""
    found = []
    for _, info, body in blocks():
        if info.partition(" ")[0] in {"console", "sh", "", "ini", "yaml"}:
            found += re.findall(r"^(?:\$ )?(holdfast [a-z][^|>&;#\n]*)", body, re.MULTILINE)
    return sorted(
        {
            one.strip()
            for one in found
            if not re.search(r"…|\$[(a-z]", one) and one.count("'") % 2 == one.count('"') % 2 == 0
        }
    )


def test_every_command_that_a_page_tells_to_type_is_understood() -> None:
    known = commands()
    assert len(known) > 40
    for command in known:
        parse(shlex.split(command)[1:])
    with pytest.raises(Usage):
        parse(["run", "x", "--tll", "3", "--", "true"])
