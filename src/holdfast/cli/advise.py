"""`holdfast advise`: do you need the lock at all? Asks, explains, and ends in code to run, or in an honest no."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..advice import QUESTIONS, STORES, Leaf, Question, Step, sample, walk
from ..advice.tree import ALTERNATIVE, LOCK, LOCKS_ONLY, REDESIGN, sampled
from ..errors import Misuse
from . import exits
from .options import Options, Usage
from .terminal import Paint, wrapped
from .text import line

_SCHEMES = {
    "sqlite": "sqlite",
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "redlock": "redlock",
    "redlocks": "redlock",
    "etcd": "etcd",
    "etcds": "etcd",
    "zookeeper": "zookeeper",
    "zookeepers": "zookeeper",
    "consul": "consul",
    "consuls": "consul",
}
_DRAWN = ("mermaid", "svg")


def advise(options: Options) -> int:
    if options.name == "ttl":
        return _ttl(options)
    if options.name == "store":
        from .advise_store import advise_store

        return advise_store(options)
    if drawn := options.get("graph"):
        return _draw(drawn)
    answers = {key: options.get(key) for key in QUESTIONS if options.get(key) is not None}
    store = _store(options)
    asking = sys.stdin.isatty() and sys.stdout.isatty() and not options.flag("json")
    try:
        steps, end = walk(answers)
    except Misuse as error:
        raise Usage(str(error), "advise") from None
    while isinstance(end, Question) and asking:
        answers[end.key] = _ask(end)
        steps, end = walk(answers)
    if options.flag("json"):
        return _json(steps, end, store)
    if isinstance(end, Question):
        raise Usage(_unanswered(end), "advise")
    if options.flag("code"):
        return _code(end, store)
    _tell(steps, end, store, _elsewhere(options, end, store))
    return exits.OK


def _ttl(options: Options) -> int:
    from ..advice.observed import observed
    from ..advice.ttl import size

    seen = observed(options.get("lock"), options.get("from"))
    if not seen.holds.number and not (seen.margins and seen.margins.number):
        print(f"Nothing is known of {line(seen.name)} in {line(seen.source)}.", file=sys.stderr)
        return exits.NO
    sizing = size(seen, options.get("ttl"))
    if options.flag("json"):
        import json

        print(json.dumps({"name": seen.name, "holds": seen.holds.number, **sizing._asdict()}, indent=2))
    else:
        print("\n".join(wrapped([line(one) for one in sizing.sentences], sys.stdout)))
    return exits.OK


def _draw(how: str) -> int:
    from ..advice import drawing

    if how not in _DRAWN:
        raise Usage(f"--graph is one of {', '.join(_DRAWN)}, not {how!r}", "advise")
    print(drawing.svg() if how == "svg" else drawing.mermaid(), end="")
    return exits.OK


def _scheme(options: Options) -> str:
    url = options.get("url") or os.environ.get("HOLDFAST_URL", "")
    return str(url).partition(":")[0].partition("+")[0]


def _elsewhere(options: Options, leaf: Leaf, store: str) -> str:
    """Why a sample is for another store than was asked for, which keeps locks and no data that a sample could have."""
    scheme = options.get("store") or _scheme(options)
    if not scheme or (scheme in _SCHEMES and sampled(leaf, store) == store):
        return ""
    return (
        f"{line(scheme)}:// keeps the locks: with HOLDFAST_URL set, connect() finds them there. Data, where there is any, is in "
        "SQLite here; if yours is elsewhere: --store postgresql, mysql or redis."
    )


def _store(options: Options) -> str:
    said = options.get("store")
    if said is None:
        return _SCHEMES.get(_scheme(options), "sqlite")
    if said not in (*STORES, *LOCKS_ONLY):
        raise Usage(f"--store is one of {', '.join((*STORES, *LOCKS_ONLY))}, not {said!r}", "advise")
    return str(said)


def _ask(question: Question) -> str:
    paint = Paint(sys.stdout)
    print(*wrapped([paint("bold", question.text), paint("dim", question.why)], sys.stdout), sep="\n")
    choices = list(question.answers)
    for number, answer in enumerate(choices, 1):
        print(f"  {number}. {paint('cyan', answer)}: {question.answers[answer]}")
    while True:
        try:
            said = input(f"{', '.join(choices)}? ").strip().lower()
        except EOFError:
            raise KeyboardInterrupt from None
        if said.isdigit() and 1 <= int(said) <= len(choices):
            said = choices[int(said) - 1]
        found = [answer for answer in choices if said and answer.startswith(said)]
        if len(found) == 1:
            print()
            return found[0]
        print(f"Please say one of: {', '.join(choices)}")


def _unanswered(question: Question) -> str:
    return f"{question.text} Say {question.flag} {'|'.join(question.answers)}"


def _tell(steps: list[Step], leaf: Leaf, store: str, elsewhere: str) -> None:
    paint = Paint(sys.stdout)
    lines = []
    for step in steps:
        lines += [f"{QUESTIONS[step.question].text} {paint('cyan', step.answer)}", f"  {step.means}"]
    style = {ALTERNATIVE: "green", LOCK: "yellow"}.get(leaf.kind, "red")
    title = f"{leaf.title}." if leaf.kind == REDESIGN else f"{leaf.title} ({leaf.kind})."
    lines += ["", paint("bold", paint(style, title)), leaf.advice]
    lines.append(f"What it does not give: {leaf.limits}")
    print(*wrapped(lines, sys.stdout), sep="\n")
    if code := sample(leaf, store):
        print(f"\nFor {sampled(leaf, store)} (as a file: the same command with --code):\n")
        if elsewhere:
            print(*wrapped([elsewhere], sys.stdout), sep="\n", end="\n\n")
        print("".join(f"    {line}" if line.strip() else line for line in code.splitlines(keepends=True)), end="")


def _code(leaf: Leaf, store: str) -> int:
    code = sample(leaf, store)
    if not code:
        print(f"holdfast advise: {leaf.title}: there is no code for that. {leaf.advice}", file=sys.stderr)
        return exits.NO
    print(code, end="")
    return exits.OK


def _json(steps: list[Step], end: Leaf | Question, store: str) -> int:
    import json

    found: dict[str, Any] = {
        "store": store if isinstance(end, Question) else sampled(end, store),
        "steps": [step._asdict() for step in steps],
    }
    if isinstance(end, Question):
        found["question"] = {**end._asdict(), "answers": dict(end.answers), "flag": end.flag}
    else:
        found["advice"] = {**end._asdict(), "sample": sample(end, store) or None}
    print(json.dumps(found, indent=2, ensure_ascii=False))
    return exits.NO if isinstance(end, Question) else exits.OK
