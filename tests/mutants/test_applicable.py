"""Every mistake can still be made: what it replaces is in the source, once. In a second, before the minutes of making them."""

from __future__ import annotations

import importlib
from pathlib import Path

import holdfast

from .spoiling import ROOT, Mutant

SOURCE = Path(holdfast.__file__).parent


def mutants() -> list[Mutant]:
    found = []
    for file in sorted((ROOT / "tests").rglob("test_*mistakes*.py")):
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        found += [one for one in getattr(module, "MUTANTS", ()) if isinstance(one, Mutant)]
    return found


def test_every_mistake_can_be_made_and_its_killer_is_there() -> None:
    every = mutants()
    assert len(every) > 200
    misfits = []
    for what, file, changes, killer in every:
        text = (SOURCE / file).read_text()
        for old, new in changes:
            if text.count(old) != 1:
                misfits.append(f"{what}: the source has changed: {old!r} in {file}")
            text = text.replace(old, new)
        if not (ROOT / killer.partition("::")[0]).exists():
            misfits.append(f"{what}: there is no {killer}")
    assert misfits == []
