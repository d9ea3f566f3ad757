"""A history as `holdfast verify --keep` keeps one: of a run in the laboratory, which is quicker than one of real servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.lab.scenarios import SCENARIOS, Settings
from holdfast.lab.stage import Setup, Stage
from holdfast.verify.record import FORMAT, lines_of

ABOUT: dict[str, Any] = {
    "store": "memory",
    "own": None,
    "library": None,
    "register": "sqlite",
    "seconds": 6.0,
    "seed": 1,
    "workers": 2,
    "ttl": 2.0,
    "fenced": False,
    "allowed": [],
    "left out": {},
    "bound": 9.0,
    "begun": 0.0,
    "healed": 6.0,
    "ended": 6.0,
    "wrong": [],
    "environment": {},
}


def keep_one(path: Path) -> None:
    one = SCENARIOS["pause"]
    stage = Stage(Setup(one, "memory", Settings(), 1, one.strikes))
    stage.play(one.length)
    lines = [json.dumps({"holdfast verify": FORMAT, **ABOUT}), *lines_of(stage.history)]
    path.write_text("".join(f"{line}\n" for line in lines))
