"""The verdict as a page: one file that needs nothing from anywhere, and shows no password."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from .drawing import WINDOW, distribution, legend, timeline
from .judging import Judgement
from .record import Record

_TITLES = {
    "kept": "All promises were kept",
    "broken": "A promise was broken",
    "undecided": "Too little happened to conclude anything",
}


def page(record: Record, judgement: Judgement) -> str:
    about = record.about
    history = record.since(max(about["begun"], about["ended"] - WINDOW))
    title = _TITLES[judgement.verdict]
    style = (Path(__file__).parents[1] / "testing" / "page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}: holdfast verify</title><style>{style}</style></head><body>
<h1 class="{judgement.verdict}">{title}</h1>
<p>{_summary(about, judgement)}</p>
{_table(_promises(judgement), heads=("promise", ""))}
{"".join(f"<p>{escape(why)}</p>" for why in judgement.undecided)}
{_findings(judgement)}
<h2>Holds and faults</h2>
<p>{_explained(about)}</p>
{legend()}<div class="scroll">{timeline(history, about)}</div>
<h2>How long people waited</h2><div class="scroll">{distribution(judgement.tally.waits, "Distribution of waits")}</div>
<h2>From a release until the next in line had it</h2>
<div class="scroll">{distribution(judgement.tally.handoffs, "Distribution of handoffs")}</div>
<h2>Figures</h2>{_table(_figures(judgement))}
<h2>Refusals</h2>{_refusals(judgement)}
<h2>Environment</h2>{_table(_environment(about))}
</body></html>
"""


def _summary(about: dict[str, Any], judgement: Judgement) -> str:
    figures = judgement.figures
    fence = "" if about["fenced"] else " The register checked no tokens (<code>--no-fence</code>)."
    return (
        f"{escape(str(about['workers']))} workers on <code>{escape(about['store'])}</code>, {about['seconds']:g} s of faults: "
        f"{figures['acquired']} locks acquired, {figures['updates']} updates made, {figures['refused']} writes or reads of "
        f"overtaken holders refused. {figures['overlaps']} times two believed that they held the same lock; that is no "
        f"broken promise: no stale token changes fenced state.{fence}"
    )


def _explained(about: dict[str, Any]) -> str:
    part = f" The last {WINDOW:g} s are shown." if about["ended"] - about["begun"] > WINDOW else ""
    return (
        f"A lane for each worker process. Left of the dashed line faults were struck; right of it all had healed.{part}"
    )


def _promises(judgement: Judgement) -> Iterable[tuple[str, str]]:
    for promise, found in judgement.promises.items():
        word = "broken" if found else "kept"
        times = f" ({found.total} findings)" if found else ""
        yield escape(promise), f'<span class="{word}">{word}{times}</span>'


def _findings(judgement: Judgement) -> str:
    found = [one for some in judgement.promises.values() for one in some]
    if not found:
        return ""
    return "<h2>Findings</h2>" + "".join(f'<p class="finding">{escape(str(one)[:1000])}</p>' for one in found)


def _figures(judgement: Judgement) -> Iterable[tuple[str, str]]:
    for name, value in judgement.figures.items():
        if isinstance(value, dict):
            value = ", ".join(f"{fault} {count}" for fault, count in sorted(value.items())) or "none"
        elif isinstance(value, float):
            value = f"{value:g} s"
        yield escape(name), escape(str(value))


def _refusals(judgement: Judgement) -> str:
    rows = [
        (
            f"<code>{escape(one.process)} {escape(one.kind)} {escape(one.name)}</code>",
            escape(f"token {one.token} {one.detail}"),
        )
        for one in judgement.tally.refused
    ]
    unsaid = judgement.figures["refused"] - len(rows)
    more = f"<p>{unsaid} more are in the history.</p>" if unsaid else ""
    return _table(rows) + more if rows else "<p>None.</p>"


def _environment(about: dict[str, Any]) -> Iterable[tuple[str, str]]:
    for key in ("own", "seed", "ttl", "bound", "allowed"):
        value = about[key]
        yield key, escape(", ".join(value) or "none" if isinstance(value, list) else f"{value}")
    for fault, why in about["left out"].items():
        yield "not struck", escape(f"{fault}: {why}")
    for key, value in about["environment"].items():
        yield escape(key), escape(str(value))


def _table(rows: Iterable[tuple[str, str]], heads: tuple[str, ...] = ()) -> str:
    head = f"<tr>{''.join(f'<th>{one}</th>' for one in heads)}</tr>" if any(heads) else ""
    return f"<table>{head}{''.join(f'<tr><td>{name}</td><td>{value}</td></tr>' for name, value in rows)}</table>"
