"""`holdfast verify URL`: the attack of `holdfast.verify`, told while it runs; then the verdict, which is the exit code."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..connecting import resolve
from ..secret import Secret
from .options import Options, Usage
from .terminal import Paint
from .text import line

if TYPE_CHECKING:
    from ..verify.crew import Crew
    from ..verify.judging import Found, Judgement
    from ..verify.nemesis import Nemesis
    from ..verify.record import Record

_STYLES = {"kept": "green", "broken": "red", "undecided": "yellow"}
_SENTENCES = {
    "kept": "All promises were kept.",
    "broken": "A promise was broken.",
    "undecided": "Nothing was found, but too little happened to conclude anything.",
}
_EVERY = 5.0  # seconds between lines where no terminal is there to write one line over and over
_FINDINGS = 3  # of a promise that are printed; all are in the report


def verify(options: Options) -> int:
    from .. import verify as verifying

    _writable(options)
    with tempfile.TemporaryDirectory(prefix="holdfast-verify-") as folder:
        file = options.get("check")
        record = _run(options, Path(folder)) if file is None else verifying.Record(Path(file))
        judgement = verifying.judge(record)
        if (report := options.get("report")) is not None:
            from ..verify.report import page

            Path(report).write_text(page(record, judgement), encoding="utf-8")
    _tell(options, record.about, judgement)
    return judgement.exit_code


def _run(options: Options, folder: Path) -> Record:
    from .. import verify as verifying

    path = Path(options.get("keep") or folder / "history")

    faults = options.get("faults")
    seed = options.get("seed")
    said = {key: options.get(key) for key in ("seconds", "workers", "ttl") if options.get(key) is not None}
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    plan = verifying.Plan(seed=seed, fenced=not options.flag("no_fence"), **said)
    asked = None if faults is None else [one for one in faults.split(",") if one not in ("", "none")]
    own, url = options.get("own"), options.get("url")
    if (library := options.get("library")) is not None:
        from ..verify.libraries.adapters import adapter

        found = adapter(library)
        plan = replace(plan, library=library, lanes=1, fenced=plan.fenced and found.fences)
        if own is None and url is None:
            own, url = (None, str(folder)) if found.kind == "file" else (found.kind, None)
    before = signal.signal(signal.SIGTERM, _interrupt)  # what was started and taken has to go, whoever ends us
    live = _Live(plan.seconds)
    try:
        store = None if own else resolve(url)
        return verifying.run(store, own, plan, asked, path, live.show, _register(options))
    finally:
        signal.signal(signal.SIGTERM, before)
        live.over()


def _register(options: Options) -> Secret | None:
    told = options.get("register")
    return None if told is None else Secret(told)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _writable(options: Options) -> None:
    """Now, rather than after a run of an hour."""
    for key in ("keep", "report"):
        path = options.get(key)
        if path is not None and not os.access(os.path.dirname(os.path.abspath(path)), os.W_OK):
            raise Usage(f"--{key}: nothing can be written at {path!r}", options.command)


class _Live:
    """One line on standard error that is written over and over; without a terminal, one every few seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._terminal = sys.stderr.isatty()
        self._next = 0.0
        self._began: float | None = None

    def show(self, crew: Crew, nemesis: Nemesis, started: float) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now
            self._next = 0.0 if self._terminal else now + _EVERY
        if now < self._next:
            return
        self._next = now + (0.2 if self._terminal else _EVERY)
        crew.follow()
        workers = crew.workers
        acquired = sum(one.granted for one in workers)
        text = (
            f"{now - self._began:.0f} of {self._seconds:g} s · {acquired} acquired ({acquired / max(now - started, 1):.0f}/s) · "
            f"{sum(one.updates for one in workers)} updates · {len(nemesis.notes)} faults · "
            f"{sum(one.refused for one in workers)} refused · worst wait {max(one.worst_wait for one in workers):.2f} s"
        )
        print(
            f"\r\x1b[2K{text}" if self._terminal else text,
            end="" if self._terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def over(self) -> None:
        if self._terminal and self._began is not None:
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _tell(options: Options, about: dict[str, Any], judgement: Judgement) -> None:
    if options.flag("json"):
        import json

        print(json.dumps({**judgement.as_json(), "run": about}, indent=2))
        return
    paint = Paint(sys.stdout)
    figures = judgement.figures
    print(paint("bold", paint(_STYLES[judgement.verdict], _SENTENCES[judgement.verdict])))
    for promise, found in judgement.promises.items():
        print(f"  {paint('red', 'broken') if found else paint('green', 'kept  ')}  {promise}{_times(found)}")
        for one in found[:_FINDINGS]:
            print(f"          {line(str(one)):.300}")
    for why in judgement.undecided:
        print(f"  {paint('yellow', 'unclear')} {why}")
    faults = ", ".join(f"{line(fault)} {count}" for fault, count in sorted(figures["faults"].items())) or "none"
    print(
        f"{figures['operations']} operations: {figures['acquired']} times a lock was acquired, {figures['updates']} updates were "
        f"made, by {about['workers']} workers in {about['seconds']:g} s on {line(about['store'])}."
    )
    print(f"Faults: {faults}.")
    for fault, why in about["left out"].items():
        print(f"Not struck: {line(fault)} ({line(str(why))}).")
    print(
        f"Overlaps: {figures['overlaps']} (the longest {figures['longest overlap']:.2f} s). Two may both believe that they hold "
        f"a lock; {figures['refused']} times the storage refused the one who was overtaken."
    )
    print(
        f"Waits: half below {figures['wait p50']:.3f} s, 99 % below {figures['wait p99']:.2f} s, the longest "
        f"{figures['wait max']:.2f} s; once all had healed, {about['bound']:.1f} s were allowed."
    )
    if not about["fenced"]:
        print(
            f"The register did not check tokens ({_no_fence(about)}): what was lost is what a lock without a fence loses."
        )
    print(f"Again with the same plan: --seed {about['seed']}")


def _no_fence(about: dict[str, Any]) -> str:
    return f"{line(about['library'])} issues none" if about["library"] else "--no-fence"


def _times(found: Found) -> str:
    return f" ({found.total} findings)" if found.total > 1 else ""
