"""`holdfast advise store`, and `holdfast docs`, to which it points."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from holdfast import connecting
from holdfast.advice.store import KINDS, MACHINES, NAMES, NEEDS, choose
from holdfast.cli import main
from holdfast.errors import Misuse

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("words", "store", "code"),
    [
        ("--have redis", "redis", 0),
        ("--have redis --need failover", "redis", 1),
        ("--have redis,etcd --need failover", "etcd", 0),
        ("--have redis,etcd --need short-ttl", "redis", 0),
        ("--have redis,postgresql --data postgresql", "postgresql", 0),
        ("--have redlock --need failover", "redlock", 0),
        ("--have redlock,redis --need fair", "redis", 0),
        ("--have redlock,zookeeper,consul --need failover,windows", "consul", 0),
        ("--machines one --have nothing", "sqlite", 0),
        ("--machines one --have redis --data mysql", "mysql", 0),
    ],
)
def test_it_names_one_and_says_what_it_does_not_give(
    words: str, store: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", "store", *words.split()]) == code
    told = capsys.readouterr().out
    assert told.startswith(f"{store}: ")
    assert ("None of what you run does" in told) == bool(code)
    assert main(["advise", "store", *words.split(), "--json"]) == code
    assert json.loads(capsys.readouterr().out)["store"] == store


def test_whatever_is_run_and_needed_the_first_that_fits_is_named_and_none_that_does_not() -> None:
    every = [list(some) for size in range(4) for some in itertools.combinations(NAMES[1:], size)]
    for have, need, machines in itertools.product(
        every, [list(some) for size in range(5) for some in itertools.combinations(NEEDS, size)], MACHINES
    ):
        if not have and machines == "many":
            with pytest.raises(Misuse, match="several machines need a store"):
                choose(have, need, machines)
            continue
        choice = choose(have, need, machines)
        run = {*have, *(["sqlite"] if machines == "one" else [])}
        fits = {kind.name for kind in KINDS if kind.name in run and not kind.lacks.keys() & set(need)}
        assert (choice.best.name in fits) == bool(fits) == (not choice.missing)
        assert {choice.best.name, *(one.name for one in choice.others)} >= fits
        assert choice.refused.keys() == run - fits - {choice.best.name}


@pytest.mark.parametrize(
    ("words", "sign"),
    [
        ("", "what do you run"),
        ("--have oracle", "--have is of"),
        ("--have redis --need luck", "--need is of"),
        ("--have redis --machines few", "--machines is of"),
        ("--have nothing", "several machines need a store"),
        ("invoice:42 --have redis", "takes no name"),
    ],
)
def test_what_makes_no_sense_is_refused(words: str, sign: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", "store", *words.split()]) == 125
    assert sign in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_is_said_of_a_store_is_so(kind: object) -> None:
    assert isinstance(kind, type(KINDS[0]))
    assert kind.url.partition(":")[0] in connecting.BUILT_IN
    extras = re.findall(r"^(\w+) = ", (ROOT / "pyproject.toml").read_text().split("optional-dependencies]")[1], re.M)
    assert not kind.extra or kind.extra in extras
    assert (ROOT / "docs" / f"{kind.page}.md").exists()
    page = (ROOT / "docs" / "which-store.md").read_text()
    assert f"`{kind.url.partition(':')[0]}://" in page


def test_the_pages_are_listed_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("which-store", "start/fastapi", "migrating"))
    assert main(["docs", "which-store"]) == 0
    assert capsys.readouterr().out.startswith("# Which store?")
    for spelling in ("docs/which-store.md", "which-store/"):
        assert main(["docs", spelling]) == 0
        assert capsys.readouterr().out == (ROOT / "docs" / "which-store.md").read_text()
    assert main(["docs", "start"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "start" / "index.md").read_text()
    assert main(["docs", "which-stoer"]) == 125
    assert "did you mean which-store?" in capsys.readouterr().err
    assert main(["docs", "--json"]) == 0
    assert Path(json.loads(capsys.readouterr().out)["redis"]).exists()
