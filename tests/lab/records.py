"""A history as `holdfast verify --keep` keeps one: of a run in the laboratory, which is quicker than one of real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.lab.scenarios import SCENARIOS, Settings
from holdfast.lab.stage import Setup, Stage
from holdfast.verify.journal import keep

ABOUT: dict[str, Any] = {
    "store": "memory",
    "own": None,
    "seconds": 6.0,
    "seed": 1,
    "workers": 2,
    "ttl": 2.0,
    "fenced": False,
    "allowed": [],
    "bound": 9.0,
    "begun": 0.0,
    "healed": 6.0,
    "wrong": [],
    "environment": {},
}


def keep_one(path: Path) -> None:
    one = SCENARIOS["pause"]
    stage = Stage(Setup(one, "memory", Settings(), 1, one.strikes))
    stage.play(one.length)
    keep(stage.history, ABOUT, path)
