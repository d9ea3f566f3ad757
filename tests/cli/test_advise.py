"""The adviser: every way through its tree ends, and what it prints at the end runs."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.advice import LEAVES, NODES, QUESTIONS, ROOT, STORES, drawing, sample, walk
from holdfast.advice.tree import LOCKS_ONLY, REDESIGN, Leaf, Question, paths, sampled
from holdfast.cli.options import ADVISE
from holdfast.errors import Misuse
from holdfast.testing import servers

from .conftest import HOLDFAST, Commands
from .screen import Screen

WAYS = list(paths())


def words_for(answers: dict[str, str]) -> list[str]:
    return [word for key, answer in answers.items() for word in (f"--{key}", answer)]


# ---- the tree


def test_every_way_ends_and_every_end_is_reached() -> None:
    for answers, leaf in WAYS:
        steps, end = walk(answers)
        assert end is LEAVES[leaf]
        assert {step.question for step in steps} == answers.keys()
    assert {leaf for _, leaf in WAYS} == LEAVES.keys()
    assert len(WAYS) < 50


def test_every_place_is_reached_and_every_answer_leads_somewhere() -> None:
    reached = {to for node in NODES.values() for to in node.leads.values()} | {ROOT}
    assert reached == NODES.keys() | LEAVES.keys()
    for node in NODES.values():
        assert node.leads.keys() == QUESTIONS[node.asks].answers.keys()
    assert {node.asks for node in NODES.values()} == QUESTIONS.keys()


def test_the_two_trees_it_is_made_of_are_kept() -> None:
    def end(**answers: str) -> str:
        found = walk({key.replace("_", "-"): answer for key, answer in answers.items()})[1]
        return found.key

    assert end(idempotent="yes") == "idempotency"
    assert end(idempotent="no", conflicts="rare", storage_check="version") == "optimistic"
    assert end(idempotent="no", conflicts="rare", storage_check="token") == "fencing"
    assert end(idempotent="no", conflicts="frequent", shard="yes", history="no", one_process="no") == "partition"
    frequent = {"idempotent": "no", "conflicts": "frequent", "shard": "no"}
    assert end(**frequent, goal="efficiency") == "simple-lock"
    assert end(**frequent, goal="correctness", storage_check="token") == "fencing"
    assert end(**frequent, goal="correctness", storage_check="no", ttl_predictable="yes") == "careful-lock"
    assert end(**frequent, goal="correctness", storage_check="no", ttl_predictable="no") == "redesign"


def test_a_question_is_never_asked_twice() -> None:
    answers = {"idempotent": "no", "conflicts": "rare", "storage-check": "no", "goal": "correctness"}
    steps, question = walk(answers)
    assert isinstance(question, Question)
    assert question.key == "ttl-predictable"
    assert steps[-1].question == "storage-check"


def test_contention_is_asked_about_once() -> None:
    assert "conflicts" in QUESTIONS
    about = [key for key, question in QUESTIONS.items() if "conten" in question.text or "same moment" in question.text]
    assert about == ["conflicts"]


def test_the_command_has_a_flag_for_each_question() -> None:
    assert {question.flag for question in QUESTIONS.values()} == set(ADVISE) - {
        "--store",
        "--graph",
        "--code",
        *("--from", "--ttl"),  # of `advise ttl`
        *("--have", "--need", "--machines", "--data"),  # of `advise store`
    }


def test_what_is_no_question_or_no_answer_is_refused() -> None:
    with pytest.raises(Misuse, match="there is no question"):
        walk({"mood": "good"})
    with pytest.raises(Misuse, match="answered by yes or no"):
        walk({"idempotent": "perhaps"})


# ---- the samples

NEEDS = {one: f"{one.upper()}_URL" for one in ("postgresql", "mysql", "redis", *LOCKS_ONLY)}
KINDS = {**{one: one for one in NEEDS}, "mysql": "mariadb"}
STORELESS = {"mailbox"}  # in the memory of one process


@pytest.fixture(scope="module")
def urls() -> Iterator[Callable[[str], str]]:
    with contextlib.ExitStack() as running:

        def start(store: str) -> str:
            if store == "redlock":
                nodes = [running.enter_context(servers.start("redis")) for _ in range(3)]
                return "redlock://" + ",".join("{}:{}".format(*node.address) for node in nodes)
            return str(running.enter_context(servers.start(KINDS[store])).url)

        yield functools.cache(start)


def samples() -> list[object]:
    return [
        pytest.param(leaf, store, id=f"{leaf.key}-{store}", marks=[pytest.mark.server] if store in NEEDS else [])
        for leaf in LEAVES.values()
        for store in (*STORES, *LOCKS_ONLY)
        if store in STORES or (sampled(leaf, store) == store and leaf.key not in STORELESS)
    ]


@pytest.mark.parametrize(("leaf", "store"), samples())
def test_every_sample_runs_and_runs_again(leaf: Leaf, store: str, tmp_path: Path, urls: Callable[[str], str]) -> None:
    code = sample(leaf, store)
    if leaf.kind == REDESIGN:
        assert code == ""
        return
    needed = {NEEDS[store]: urls(store)} if store in NEEDS and NEEDS[store] in code else {}
    assert (store in NEEDS and leaf.key not in STORELESS) == bool(needed)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"), **needed}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
    if needed:
        assert list(tmp_path.rglob("*.db")) == [], "it was to be on that store, and made a file of SQLite"


# ---- the command


@pytest.mark.parametrize(("answers", "leaf"), WAYS, ids=[f"{number}-{leaf}" for number, (_, leaf) in enumerate(WAYS)])
def test_every_way_through_the_command_ends_in_its_advice(run: Commands, answers: dict[str, str], leaf: str) -> None:
    done = run("advise", *words_for(answers), "--json", "--store", "sqlite")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["advice"]["key"] == leaf
    assert (told["advice"]["sample"] is None) == (leaf == "redesign")
    assert all(step["means"] for step in told["steps"])


def test_it_explains_each_answer_and_ends_in_code(run: Commands) -> None:
    done = run("advise", "--idempotent", "no", "--conflicts", "rare", "--storage-check", "version", "--store", "redis")
    assert done.returncode == 0
    assert "Then let them work, and have the loser of the rare race try again." in done.stdout
    assert "Use optimistic concurrency: a version in the row (no lock needed)." in done.stdout
    assert "What it does not give: " in done.stdout
    assert "optimistic.Redis(db)" in done.stdout


def test_it_says_honestly_when_nothing_would_be_safe(run: Commands) -> None:
    words = "--idempotent no --conflicts frequent --shard no --goal correctness --storage-check no --ttl-predictable no"
    done = run("advise", *words.split())
    assert done.returncode == 0
    assert "This design needs changing.\n" in done.stdout
    assert "no lock makes that safe, this library's included" in done.stdout
    done = run("advise", *words.split(), "--code")
    assert done.returncode == 1
    assert done.stdout == ""


def test_the_code_alone_can_be_run(run: Commands, tmp_path: Path) -> None:
    done = run("advise", "--idempotent", "yes", "--code")
    again = subprocess.run(
        [sys.executable], input=done.stdout, text=True, cwd=tmp_path, capture_output=True, timeout=60
    )
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "shop.db").exists()


def test_the_store_is_known_by_its_url(run: Commands) -> None:
    for url, sign in (
        ("redis://h", "redis.Redis"),
        ("postgresql://h", "psycopg"),
        ("mariadb://h", "pymysql"),
        ("x:", "sqlite3"),
    ):
        assert sign in run("advise", "--idempotent", "yes", "--code", HOLDFAST_URL=url).stdout


def test_locks_alone_are_shown_in_the_store_of_the_url(run: Commands) -> None:
    only = ["--idempotent", "no", "--conflicts", "frequent", "--shard", "no", "--goal", "efficiency"]
    for store in LOCKS_ONLY:
        told = run("advise", *only, HOLDFAST_URL=f"{store}://h").stdout
        assert f"For {store} (as a file" in told
        assert f'holdfast.connect(os.environ.get("{store.upper()}_URL", "{store}://' in told
        assert "SQLite" not in told
        assert told == run("advise", *only, "--store", store).stdout


def test_where_the_store_of_the_url_keeps_no_data_it_is_said_what_the_sample_is_for(run: Commands) -> None:
    for url in ("etcd://h", "consul://h", "zookeeper://h", "redlock://a,b,c"):
        told = " ".join(run("advise", "--idempotent", "yes", HOLDFAST_URL=url).stdout.split())
        assert f"{url.partition(':')[0]}:// keeps the locks: with HOLDFAST_URL set, connect() finds them there" in told
    assert "keeps the locks" not in run("advise", "--idempotent", "yes", HOLDFAST_URL="redis://h").stdout
    assert (
        "keeps the locks"
        not in run("advise", "--idempotent", "yes", "--store", "mysql", HOLDFAST_URL="etcd://h").stdout
    )


def test_without_a_terminal_a_missing_answer_is_named(run: Commands) -> None:
    done = run("advise", "--idempotent", "no")
    assert done.returncode == 125
    assert "--conflicts rare|frequent" in done.stderr
    done = run("advise", "--idempotent", "no", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["question"]["flag"] == "--conflicts"


@pytest.mark.parametrize(
    ("words", "sign"),
    [
        (["--idempotent", "maybe"], "answered by yes or no"),
        (["--store", "abacus"], "--store is one of"),
        (["--graph", "ascii"], "--graph is one of mermaid, svg"),
        (["--idempotents", "yes"], "did you mean --idempotent?"),
        (["something"], "advise what?"),
        (["--idempotent"], "needs a value"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Commands, words: list[str], sign: str) -> None:
    done = run("advise", *words)
    assert done.returncode == 125
    assert sign in done.stderr


# ---- drawn


def test_the_tree_as_mermaid_has_every_question_end_and_answer(run: Commands) -> None:
    drawn = run("advise", "--graph", "mermaid").stdout
    assert drawn == drawing.mermaid()
    assert drawn.startswith("flowchart TD\n")
    for node in NODES.values():
        assert QUESTIONS[node.asks].text in drawn
        assert all(f"-->|{answer}|" in drawn for answer in node.leads)
    assert all(f'["{leaf.title}"]' in drawn for leaf in LEAVES.values())


def test_the_tree_as_svg_is_well_formed_and_nothing_lies_on_anything(run: Commands) -> None:
    drawn = ET.fromstring(run("advise", "--graph", "svg").stdout)
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        tuple(float(box.attrib[side]) for side in ("x", "y", "width", "height"))
        for box in drawn.iter(f"{space}rect")
        if "x" in box.attrib
    ]
    assert len(boxes) == len(NODES) + len(LEAVES)
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    for x, y, wide, high in boxes:
        assert x >= 0
        assert x + wide <= width
        assert y + high <= height
    for number, (x, y, wide, high) in enumerate(boxes):
        for other_x, other_y, other_wide, other_high in boxes[:number]:
            apart = x >= other_x + other_wide or other_x >= x + wide or y >= other_y + other_high or other_y >= y + high
            assert apart
    lines = [
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        for line in drawn.iter(f"{space}polyline")
    ]
    assert len(lines) == len({(key, to) for key, node in NODES.items() for to in node.leads.values()})
    for line in lines:
        for (x1, y1), (x2, y2) in itertools.pairwise(line):
            for x, y, wide, high in boxes:
                beside = max(x1, x2) < x or min(x1, x2) > x + wide
                assert beside or max(y1, y2) <= y or min(y1, y2) >= y + high, "a line runs through a box"


# ---- on a terminal


def test_on_a_terminal_it_asks_by_number_or_by_word_until_it_understands(run: Commands) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "HOLDFAST_URL")}
    screen = Screen([HOLDFAST, "advise", "--store", "sqlite"], {**environment, "TERM": "xterm"})
    try:
        screen.expect("idempotent, so that doing it twice")
        screen.expect(r"yes, no\? ")
        screen.type("perhaps\n")
        screen.expect("Please say one of: yes, no")
        screen.type("n\n")
        screen.expect(r"rare, frequent\? ")
        screen.type("1\n")
        screen.expect(r"version, token, no\? ")
        screen.type("version\n")
        screen.expect("Use optimistic concurrency")
        assert screen.end() == 0
    finally:
        screen.close()


def test_the_tree_is_not_loaded_by_other_commands(run: Commands) -> None:
    script = (
        "import sys; from holdfast.cli.options import parse; parse(['ls']); print('holdfast.advice' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"
