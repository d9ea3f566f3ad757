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
TIMES = 24  # what runs beside it now and then (a renewal, an answer in two pieces) is not there every time


class Way(NamedTuple):
    files: int
    hops: int

    def is_within(self, most: Way) -> bool:
        return self.files <= most.files and self.hops <= most.hops


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


def undisturbed(found: list[Way]) -> Way:
    return Way(min(one.files for one in found), min(one.hops for one in found))


def in_threads(url: str) -> Way:
    found = []
    with holdfast.connect(url) as locks:
        for _ in range(TIMES):
            steps: list[str] = []
            with recorded(steps), locks.lock("hops"):
                pass
            found.append(way(steps))
    return undisturbed(found)


async def in_asyncio(url: str) -> Way:
    found = []
    async with aio.connect(url) as locks:
        for _ in range(TIMES):
            steps: list[str] = []
            with recorded(steps):
                async with locks.lock("hops"):
                    pass
            found.append(way(steps))
    return undisturbed(found)


@cache
def bounds() -> dict[str, tuple[Way, Way]]:
    rows = re.findall(r"^\| (.+) \| (\d+) / (\d+) \| (\d+) / (\d+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        store: (Way(int(files), int(hops)), Way(int(files_in_asyncio), int(hops_in_asyncio)))
        for store, files, hops, files_in_asyncio, hops_in_asyncio in rows
    }


def check_the_way(store: str, url: str) -> None:
    most_in_threads, most_in_asyncio = bounds()[store]
    assert in_threads(url).is_within(most_in_threads)
    assert asyncio.run(in_asyncio(url)).is_within(most_in_asyncio)
