"""`holdfast doctor URL`: what `holdfast.doctor` finds, for people or as JSON; how bad it is, is the exit code."""

from __future__ import annotations

import os
import sys
from textwrap import wrap

from .. import sync
from ..claim import Traits
from ..connecting import resolve
from ..doctor import LEVELS, Finding, examine, worst
from ..secret import redacted
from .options import Options
from .terminal import Paint
from .text import line

_STYLES = {"ok": "green", "warning": "yellow", "problem": "red"}
_WIDTH = 100
_NARROW = 60
_INDENT = " " * 26


def doctor(options: Options) -> int:
    url = resolve(options.get("url"))
    shown = redacted(url.plain)
    found = []
    if options.flag("json"):
        found = list(examine(url))
    else:
        paint, width = Paint(sys.stdout), _width()
        print(paint("bold", line(shown)))
        for one in examine(url):
            found.append(one)
            _show(one, paint, width)
    verdict = worst(found)
    with sync.connect(url, observe=[]) as locks:
        traits = locks.traits
    if options.flag("json"):
        import json

        data = {
            "url": shown,
            "verdict": verdict,
            "findings": [one._asdict() for one in found],
            "traits": traits._asdict(),
        }
        print(json.dumps(data, indent=2))
    else:
        _sum_up(found, traits, paint, width)
    return LEVELS.index(verdict)


def _show(one: Finding, paint: Paint, width: int) -> None:
    indent = _INDENT if width >= _NARROW else " " * 4
    said = wrap(line(one.text), width - len(indent), break_long_words=False, break_on_hyphens=False) or [""]
    beside = said.pop(0) if width >= _NARROW else ""  # on a narrow terminal, all of it goes below
    print(f"  {paint(_STYLES[one.level], f'{one.level:<8}')} {one.check:<14} {beside}".rstrip())
    for more in said:
        print(f"{indent}{more}")
    if one.advice:
        for at, more in enumerate(wrap(line(one.advice), width - len(indent) - 2, break_long_words=False)):
            print(f"{indent}{'→' if at == 0 else ' '} {more}")
    sys.stdout.flush()  # on a pipe too: a store that is slow to answer is watched as it answers


def _sum_up(found: list[Finding], traits: Traits, paint: Paint, width: int) -> None:
    counts = {level: len([one for one in found if one.level == level]) for level in reversed(LEVELS)}
    told = ", ".join(
        f"{count} {level}{'s' if count > 1 and level != 'ok' else ''}" for level, count in counts.items() if count
    )
    print(paint("bold", f"{told}."))
    print("\n".join(wrap("What this store gives, and what it does not, whatever its settings:", width)))
    rows = {
        "scope": f"exclusion reaches as far as one {traits.scope}"
        if traits.scope != "network"
        else "all machines that reach it",
        "tokens": traits.fenced,
        "line": "first come, first served" if traits.fair else "no order: whoever asks at the right moment",
        "waking": "the next in line is woken" if traits.bell else "waiters poll",
        "durable": traits.durable,
        "clock": traits.clock,
        "survives": traits.survives,
    }
    for name, text in rows.items():
        first, *rest = wrap(text, width - 12, break_long_words=False)
        print(f"  {paint('dim', f'{name:<9}')} {first}")
        for more in rest:
            print(f"{' ' * 12}{more}")


def _width() -> int:
    return max(40, os.get_terminal_size(sys.stdout.fileno()).columns) if sys.stdout.isatty() else _WIDTH
