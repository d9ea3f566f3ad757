"""`holdfast demo`: updates get lost without a lock, and with one; and not with its token enforced where the data is."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from .. import exits
from ..options import Options
from .acts import Director, Outcome
from .bank import open_bank
from .cast import Actor
from .stage import Stage

CAST = ("ann", "bob", "cat", "dan")


def demo(options: Options) -> int:
    def leave(signum: int, _: FrameType | None) -> None:
        raise SystemExit(exits.SIGNALLED + signum)  # so that the processes and the folder go too

    signal.signal(signal.SIGTERM, leave)
    stage = Stage(silent=options.flag("json"))
    stage.open()
    try:
        outcomes = _play(stage)
    finally:
        stage.close()
    perfect = outcomes[0].lost > 0 and outcomes[1].lost > 0 and outcomes[2].lost == 0 and outcomes[2].refused == 1
    if options.flag("json"):
        _json(outcomes, perfect)
    else:
        _conclude(stage, outcomes, perfect)
    return exits.OK if perfect else exits.NO


def _play(stage: Stage) -> list[Outcome]:
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-", ignore_cleanup_errors=True) as folder:
        bank, url = f"{folder}/bank.db", f"sqlite://{folder}/locks.db"
        open_bank(bank)
        actors: list[Actor] = []
        try:
            for name in CAST:
                with _undisturbed():  # else Ctrl-C could leave one that nobody knows of, and that misses its folder
                    actors.append(Actor(name, bank, url))
            count = "Four processes share one account, and deposit 10 at a time."
            stage.keep(stage.paint("bold", "holdfast demo"), count, "")
            for one in actors:
                one.answer(lambda: None)  # "ready"
            director = Director(stage, actors, bank, url)
            try:
                return [director.without(), director.locked(), director.fenced()]
            finally:
                director.close()
        finally:
            for one in actors:
                one.end()


@contextmanager
def _undisturbed() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _conclude(stage: Stage, outcomes: list[Outcome], perfect: bool) -> None:
    paint = stage.paint
    print(paint("dim", f"{'':29}{'expected':>10}{'actual':>10}{'lost':>8}{'refused':>10}"))
    for number, one in enumerate(outcomes, 1):
        lost = paint("red" if one.lost else "green", f"{one.lost:>8}")
        refused = "-" if one.refused is None else str(one.refused)
        print(f"{number}. {one.title:26}{one.expected:>10}{one.actual:>10}{lost}{refused:>10}")
    print()
    if perfect:
        print("Two clients may both believe that they hold a lock; no stale token changes fenced state.")
    else:
        print("This is not how it should have ended: please report it.", file=sys.stderr)


def _json(outcomes: list[Outcome], perfect: bool) -> None:
    import json

    acts = [{**one._asdict(), "lost": one.lost} for one in outcomes]
    print(json.dumps({"perfect": perfect, "acts": acts}, indent=2))
