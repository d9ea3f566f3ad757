"""Every library under the same: `python -m holdfast.verify.libraries.matrix [NAME…] [--seconds S] [--json FILE]`.

Prints a table in Markdown, with the versions and this command. Those that are not installed are named, and left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from ...errors import Misuse
from ...secret import Secret
from ..judging import judge
from ..own import Own
from ..plan import Plan
from ..running import run
from .adapters import LIBRARIES, Adapter, adapter
from .probes import PROBES, Bench, ask

TTL = 2.0
LEAST = {"consul": 10.0}
_LOST = "updates lost under pauses"


def measure(name: str, found: type[Adapter], seconds: float, probes: Sequence[str]) -> dict[str, str]:
    ttl = LEAST.get(found.kind, TTL)
    answers = {"library": f"{name} {found.version()}", "on": found.kind, "renews": "yes" if found.renews else "no"}
    with tempfile.TemporaryDirectory(prefix="holdfast-library-") as folder, ExitStack() as until_the_end:
        if seconds:
            answers[_LOST] = lost_updates(name, found, seconds * ttl / TTL, ttl, Path(folder))
        server = None if found.kind == "file" else until_the_end.enter_context(Own(found.kind, False))
        bench = Bench(name, found, folder if server is None else server.url, ttl, server)
        return {**answers, **ask(bench, probes)}


def lost_updates(name: str, found: type[Adapter], seconds: float, ttl: float, folder: Path) -> str:
    """As `holdfast verify --library NAME --faults pause` counts them."""
    plan = Plan(seconds=seconds, seed=1, ttl=ttl, lanes=1, library=name, fenced=found.fences)
    own = None if found.kind == "file" else found.kind
    url = Secret(str(folder)) if own is None else None
    record = run(url, own, plan, ["pause"], folder / "history", lambda *_: None)
    figures = judge(record).figures
    lost, updates, pauses = figures["lost"], figures["updates"], figures["faults"].get("pause", 0)
    rate = f"{1000 * lost / updates:.1f}" if updates else "?"
    refused = f", {figures['refused']} refused" if found.fences else ""
    return (
        f"{'**' if lost else ''}{rate} per 1,000{'**' if lost else ''} ({lost} of {updates}; {pauses} pauses{refused})"
    )


def table(rows: list[dict[str, str]]) -> str:
    """A row a library."""
    titles = list(dict.fromkeys(title for row in rows for title in row))
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    lines += [f"| {' | '.join(row.get(title, '') for title in titles)} |" for row in rows]
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m holdfast.verify.libraries.matrix")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(LIBRARIES)}; all, if none is said")
    parser.add_argument("--seconds", type=float, default=30.0, help="of pauses each; 0: none (default 30)")
    parser.add_argument("--probes", help="only these, by a word of their title, separated by commas")
    parser.add_argument(
        "--json", metavar="FILE", help="answers, one line a library; those that are there are not asked again"
    )
    told = parser.parse_args(words)
    probes = [title for title in PROBES if told.probes is None or any(one in title for one in told.probes.split(","))]
    known = _known(told.json)
    rows, absent = [], []
    for name in told.names or LIBRARIES:
        try:
            found = adapter(name)
        except Misuse as error:
            absent.append(str(error))
            continue
        key = f"{name} {found.version()}"
        if key not in known:
            known[key] = measure(name, found, told.seconds, probes)
            if told.json is not None:
                with open(told.json, "a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(known[key])}\n")
        rows.append(known[key])
    about = f"Python {platform.python_version()}, ttl {TTL:g} s (Consul {LEAST['consul']:g} s)."
    sys.stdout.write("\n".join([table(rows), "", about, *absent, ""]))


def _known(path: str | None) -> dict[str, Any]:
    if path is None or not Path(path).exists():
        return {}
    rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return {row["library"]: row for row in rows}


if __name__ == "__main__":
    main(sys.argv[1:])
