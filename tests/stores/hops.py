"""How far one warm `with` goes: the files of ours that it passes through, and how often it steps from one into another.

What each store may take stands in docs/architecture.md, and is read from there: a layer more is a decision, not an accident.
"""

from __future__ import annotations

import asyncio
import gc
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import holdfast
from holdfast import aio

OURS = str(Path(holdfast.__file__).parent)
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
# What runs beside it is not there every time; but on a busy machine nearly all answers come in two pieces.
CONNECTIONS, TIMES = 8, 60


class Way(NamedTuple):
    files: int
    hops: int

    def is_within(self, most: Way) -> bool:
        return self.files <= most.files and self.hops <= most.hops

    def or_shorter(self, other: Way) -> Way:
        return Way(min(self.files, other.files), min(self.hops, other.hops))


LONGEST = Way(1_000_000, 1_000_000)


@contextmanager
def recorded(steps: list[str]) -> Iterator[None]:
    def called(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            steps.append(frame.f_code.co_filename)

    gc.disable()  # what others left behind is not on this way
    sys.setprofile(called)
    try:
        yield
    finally:
        sys.setprofile(None)
        gc.enable()


def way(steps: list[str]) -> Way:
    return Way(len(set(steps)), sum(one != other for one, other in pairwise(steps)))


def in_threads(url: str, most: Way) -> Way:
    """The shortest, or the first that is short enough."""
    found = LONGEST
    for _ in range(CONNECTIONS):
        with holdfast.connect(url) as locks:
            for _ in range(TIMES):
                steps: list[str] = []
                with recorded(steps), locks.lock("hops"):
                    pass
                found = found.or_shorter(way(steps))
                if found.is_within(most):
                    return found
    return found


async def in_asyncio(url: str, most: Way) -> Way:
    found = LONGEST
    for _ in range(CONNECTIONS):
        async with aio.connect(url) as locks:
            for _ in range(TIMES):
                steps: list[str] = []
                with recorded(steps):
                    async with locks.lock("hops"):
                        pass
                found = found.or_shorter(way(steps))
                if found.is_within(most):
                    return found
    return found


@cache
def bounds() -> dict[str, tuple[Way, Way]]:
    rows = re.findall(r"^\| (.+) \| (\d+) / (\d+) \| (\d+) / (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        store: (Way(int(files), int(hops)), Way(int(files_in_asyncio), int(hops_in_asyncio)))
        for store, files, hops, files_in_asyncio, hops_in_asyncio in rows
    }


def check_the_way(store: str, url: str) -> None:
    most_in_threads, most_in_asyncio = bounds()[store]
    assert in_threads(url, most_in_threads).is_within(most_in_threads)
    assert asyncio.run(in_asyncio(url, most_in_asyncio)).is_within(most_in_asyncio)
