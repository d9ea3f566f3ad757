"""The tree: which question comes when, and what is advised at its ends. Its words are in `words.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from ..errors import Misuse
from .words import ADVICE, ASKED, LIMITS, MEANS, TITLES, WHY

STORES = ("sqlite", "postgresql", "mysql", "redis")
LOCKS_ONLY = ("redlock", "etcd", "zookeeper", "consul")  # for them, a sample of locks alone; data is elsewhere
# Where samples look for a store: a variable of the environment, and what to take without it.
_URLS = {
    "postgresql": ("POSTGRESQL_URL", "postgresql://localhost/shop"),
    "mysql": ("MYSQL_URL", "mysql://root@localhost/shop"),
    "redis": ("REDIS_URL", "redis://localhost"),
    "redlock": ("REDLOCK_URL", "redlock://a,b,c"),
    "etcd": ("ETCD_URL", "etcd://localhost"),
    "zookeeper": ("ZOOKEEPER_URL", "zookeeper://localhost"),
    "consul": ("CONSUL_URL", "consul://localhost:8500"),
}

ALTERNATIVE, LOCK, REDESIGN = "no lock needed", "a lock", "this design needs changing"


class Question(NamedTuple):
    """What is asked, why, and what each answer means."""

    key: str
    text: str
    why: str
    answers: Mapping[str, str]

    @property
    def flag(self) -> str:
        return f"--{self.key}"


class Node(NamedTuple):
    """A place in the tree: which question is asked there, and where each answer leads (to a node or a leaf)."""

    asks: str
    leads: Mapping[str, str]


class Leaf(NamedTuple):
    """An end: what to do, why, and what it does not give."""

    key: str
    kind: str
    title: str
    advice: str
    limits: str


class Step(NamedTuple):
    question: str
    answer: str
    means: str


QUESTIONS = {key: Question(key, ASKED[key], WHY[key], MEANS[key]) for key in ASKED}

ROOT = "idempotent"
NODES = {
    "idempotent": Node("idempotent", {"yes": "idempotency", "no": "conflicts"}),
    "conflicts": Node("conflicts", {"rare": "check", "frequent": "shard"}),
    "check": Node("storage-check", {"version": "optimistic", "token": "fencing", "no": "goal"}),
    "shard": Node("shard", {"yes": "history", "no": "goal"}),
    "history": Node("history", {"yes": "journal", "no": "one-process"}),
    "one-process": Node("one-process", {"yes": "mailbox", "no": "partition"}),
    "goal": Node("goal", {"efficiency": "simple-lock", "correctness": "check-again"}),
    "check-again": Node("storage-check", {"version": "fencing", "token": "fencing", "no": "ttl"}),
    "ttl": Node("ttl-predictable", {"yes": "careful-lock", "no": "redesign"}),
}

_KINDS = {"fencing": LOCK, "simple-lock": LOCK, "careful-lock": LOCK, "redesign": REDESIGN}
LEAVES = {key: Leaf(key, _KINDS.get(key, ALTERNATIVE), TITLES[key], ADVICE[key], LIMITS[key]) for key in TITLES}


def walk(answers: Mapping[str, str]) -> tuple[list[Step], Leaf | Question]:
    """Follow the answers: the steps taken, and the end; or the question that is to be answered next."""
    for key, answer in answers.items():
        _check(key, answer)
    steps: list[Step] = []
    at = ROOT
    while at in NODES:
        node = NODES[at]
        question = QUESTIONS[node.asks]
        if question.key not in answers:
            return steps, question
        answer = answers[question.key]
        steps.append(Step(question.key, answer, question.answers[answer]))
        at = node.leads[answer]
    return steps, LEAVES[at]


def _check(key: str, answer: str) -> None:
    if key not in QUESTIONS:
        raise Misuse(f"there is no question {key!r}; there are {', '.join(QUESTIONS)}")
    if answer not in QUESTIONS[key].answers:
        raise Misuse(f"--{key} is answered by {' or '.join(QUESTIONS[key].answers)}, not by {answer!r:.40}")


def missing(leaf: Leaf, store: str) -> bool:
    """Is there no sample for this end? A design that needs changing has none."""
    return leaf.kind == REDESIGN or store not in (*STORES, *LOCKS_ONLY)


def sampled(leaf: Leaf, store: str) -> str:
    """Which store the sample is for: one that keeps locks and no data cannot have data in it."""
    alone = (files(__package__ or "") / "samples" / f"{leaf.key}.py").is_file()
    return store if alone or store not in LOCKS_ONLY else "sqlite"


def sample(leaf: Leaf, store: str) -> str:
    """Python to run, for this end and that store; "" where code is not the answer."""
    if missing(leaf, store):
        return ""
    store = sampled(leaf, store)
    folder = files(__package__ or "") / "samples"
    own = folder / f"{leaf.key}_{store}.py"
    if own.is_file():
        return _whole(folder, own.read_text(encoding="utf-8"))
    return _connected((folder / f"{leaf.key}.py").read_text(encoding="utf-8"), store)


def _whole(folder: Traversable, code: str) -> str:
    """What samples of several stores have in common stands in a file of its own, and is put in where they name it."""
    return re.sub(
        r"^# here: (.+)\n", lambda it: (folder / "shared" / it[1]).read_text(encoding="utf-8"), code, flags=re.M
    )


def _connected(code: str, store: str) -> str:
    """A sample of locks alone, which is the same for all stores but for its URL."""
    if store not in _URLS or "holdfast.connect()" not in code:
        return code
    variable, url = _URLS[store]
    code = code.replace("import holdfast\n", "import os\n\nimport holdfast\n", 1)
    return code.replace("holdfast.connect()", f'holdfast.connect(os.environ.get("{variable}", "{url}"))')


def paths(at: str = ROOT, answers: Mapping[str, str] | None = None) -> Iterator[tuple[dict[str, str], str]]:
    """Every way through the tree: the answers, and the leaf. What was answered before is not asked again."""
    known = dict(answers or {})
    if at in LEAVES:
        yield known, at
        return
    node = NODES[at]
    for answer, to in node.leads.items():
        if known.get(node.asks, answer) == answer:
            yield from paths(to, {**known, node.asks: answer})
