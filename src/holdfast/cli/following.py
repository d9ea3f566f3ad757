"""`holdfast watch`: what happens to the locks of a store, told line by line, by looking at it again and again."""

from __future__ import annotations

import sys
import time

from ..claim import Snapshot
from ..errors import Unavailable
from ..observe.changes import Change, changes
from ..sync import Locks, connect
from . import exits
from .options import Options
from .terminal import Paint
from .text import ago, line, shown

INTERVAL = 1.0
_STYLES = {"acquired": "green", "over": "dim", "waiting": "yellow", "left the line": "dim", "evicted": "red"}


def watch(options: Options) -> int:
    """A store that is away is waited for: what has changed meanwhile is told when it is back."""
    away: Unavailable | None = None
    seen: dict[str, Snapshot] = {}
    interval = max(0.05, options.get("interval", INTERVAL))
    give_up: float | None = options.get("for")
    end = float("inf") if give_up is None else time.monotonic() + give_up
    with connect(options.get("url"), observe=[]) as locks:
        while True:
            try:
                now = look(locks, options.name, seen)
            except Unavailable as error:
                if away is None:
                    print(f"holdfast: {shown(str(error))}; it is asked again and again", file=sys.stderr, flush=True)
                away = error
            else:
                if away is not None:
                    print("holdfast: the store answers again", file=sys.stderr, flush=True)
                    away = None
                for change in changes(seen, now):
                    show(change, as_json=options.flag("json"))
                seen = now
            left = end - time.monotonic()
            if left <= 0:
                if away is not None:
                    raise away
                return exits.OK
            time.sleep(min(interval, left))


def look(locks: Locks, prefix: str, before: dict[str, Snapshot]) -> dict[str, Snapshot]:
    """Those in use, and once more those that were: it may have been by force that they became free."""
    wanted = {*locks.names(prefix), *(name for name, one in before.items() if one.capacity)}
    return {name: locks.inspect(name) for name in wanted}


def show(change: Change, *, as_json: bool) -> None:
    if as_json:
        import json

        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        print(json.dumps({"at": at, **change._asdict()}), flush=True)
        return
    paint = Paint(sys.stdout)
    token = f"  token {change.token}" if change.token else ""
    detail = f"  {line(change.detail)}" if change.detail else ""
    event = paint(_STYLES[change.event], f"{change.event:<13}")
    name = paint("bold", line(change.name))
    print(
        f"{time.strftime('%H:%M:%S')}  {event}  {name}{token}  {line(change.owner)}  {ago(change.seconds)}{detail}",
        flush=True,
    )
