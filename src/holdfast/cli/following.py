"""`holdfast watch`: what happens to the locks of a store, told line by line, by looking at it again and again.

A store tells who is inside and who waits, not what happened. So two looks are compared; what began and ended between
them was not seen, and nothing is made up.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from ..claim import Snapshot
from ..sync import Locks, connect
from . import exits
from .options import Options
from .terminal import Paint
from .text import ago, line

INTERVAL = 1.0
_STYLES = {"acquired": "green", "over": "dim", "waiting": "yellow", "left the line": "dim", "evicted": "red"}


class Change(NamedTuple):
    event: str
    name: str
    owner: str
    token: int = 0
    seconds: float = 0.0  # so long it has lasted, or had
    detail: str = ""


def watch(options: Options) -> int:
    seen: dict[str, Snapshot] = {}
    interval = max(0.05, options.get("interval", INTERVAL))
    give_up: float | None = options.get("for")
    end = float("inf") if give_up is None else time.monotonic() + give_up
    with connect(options.get("url")) as locks:
        while True:
            now = look(locks, options.name, seen)
            for change in changes(seen, now):
                show(change, as_json=options.flag("json"))
            seen = now
            left = end - time.monotonic()
            if left <= 0:
                return exits.OK
            time.sleep(min(interval, left))


def look(locks: Locks, prefix: str, before: dict[str, Snapshot]) -> dict[str, Snapshot]:
    """Those in use, and once more those that were: it may have been by force that they became free."""
    wanted = {*locks.names(prefix), *(name for name, one in before.items() if one.capacity)}
    return {name: locks.inspect(name) for name in wanted}


def changes(before: dict[str, Snapshot], after: dict[str, Snapshot]) -> Iterator[Change]:
    """What must have happened between the two, in an order in which it can have."""
    for name in sorted({*before, *after}):
        yield from _of_one(before.get(name, Snapshot(name)), after.get(name, Snapshot(name)))


def _of_one(old: Snapshot, new: Snapshot) -> Iterator[Change]:
    name = new.name
    if new.eviction is not None and (old.eviction is None or old.eviction.token != new.eviction.token):
        out = new.eviction
        yield Change("evicted", name, out.owner, out.evicted_token, out.age, f"by {out.by}")
    inside = {one.token for one in new.holders}
    for one in old.holders:
        if one.token not in inside:
            yield Change("over", name, one.owner, one.token, one.age)
    known = {one.token for one in old.holders}
    for one in new.holders:
        if one.token not in known:
            yield Change("acquired", name, one.owner, one.token, one.age)
    # Somebody in line is known by the owner; two of one name are told apart by their number.
    was, now = [one.owner for one in old.waiters], [one.owner for one in new.waiters]
    for waiting in new.waiters:
        if waiting.owner in was:
            was.remove(waiting.owner)
        else:
            yield Change("waiting", name, waiting.owner, 0, waiting.age)
    entered = [one.owner for one in new.holders if one.token not in known]
    for gone in old.waiters:
        if gone.owner in now:
            now.remove(gone.owner)
        elif gone.owner in entered:
            entered.remove(gone.owner)
        else:
            yield Change("left the line", name, gone.owner, 0, gone.age)


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
