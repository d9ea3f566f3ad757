"""`holdfast advise store`: which one, of those that you run."""

from __future__ import annotations

import sys
from typing import Any

from ..advice.store import Choice, choose
from ..errors import Misuse
from . import exits
from .options import Options, Usage
from .terminal import Paint, wrapped


def advise_store(options: Options) -> int:
    have, need = _list(options, "have"), _list(options, "need")
    machines, data = options.get("machines"), options.get("data")
    if not have and machines is None and data is None:
        raise Usage(
            "what do you run? Say --have redis,postgresql, or --machines one if all is on one machine", "advise"
        )
    try:
        choice = choose([one for one in have if one != "nothing"], need, machines or "many", data)
    except Misuse as error:
        raise Usage(str(error), "advise") from None
    if options.flag("json"):
        import json

        print(json.dumps(_told(choice), indent=2))
    else:
        print(*wrapped(_lines(choice), sys.stdout), sep="\n")
    return exits.NO if choice.missing else exits.OK


def _list(options: Options, key: str) -> list[str]:
    return [one.strip() for one in (options.get(key) or "").split(",") if one.strip()]


def _lines(choice: Choice) -> list[str]:
    paint, best = Paint(sys.stdout), choice.best
    lines = [
        f"{paint('bold', paint('yellow' if choice.missing else 'green', best.name))}: {best.because}.",
        f"  install  {best.install}    in a checkout",
        f'  connect  holdfast.connect("{best.url}")',
        f"  read     holdfast docs {best.page}",
    ]
    lines += [f"Not with it: {one}." for one in choice.missing]
    if choice.missing:
        lines.append(
            "None of what you run does. Fence the storage, so that a lock granted twice harms nothing, or run another."
        )
    lines += [f"{one.name} would do as well: {one.because}." for one in choice.others]
    lines += [f"Not {name}: {why}." for name, why in choice.refused.items()]
    return [*lines, "No store keeps a second holder out while the first is paused longer than its ttl: check tokens."]


def _told(choice: Choice) -> dict[str, Any]:
    best = choice.best
    return {
        "store": best.name,
        "url": best.url,
        "install": best.install,
        "because": best.because,
        "missing": list(choice.missing),
        "others": [one.name for one in choice.others],
        "refused": dict(choice.refused),
    }
