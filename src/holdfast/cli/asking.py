"""`ls`, `show`, `why`, `release`: connect, look, and print for people or as JSON."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from ..claim import Snapshot
from ..errors import Unavailable
from ..sync import Locks, connect
from . import exits, story, table
from .options import Options
from .terminal import Paint, room, wrapped
from .text import ago, line, shown


def ls(options: Options) -> int:
    with connect(options.get("url"), observe=[]) as locks:
        if options.flag("watch"):
            return _watched(options, locks)
        _tell(options, _listed(options, locks))
    return exits.OK


def _listed(options: Options, locks: Locks) -> list[Snapshot]:
    found = [locks.inspect(name) for name in locks.names(options.name)]
    snapshots = [one for one in found if one.capacity]  # one may have become free while we looked at the others
    if (age := options.get("older_than")) is not None:
        snapshots = [one for one in snapshots if any(holding.age >= age for holding in one.holders)]
    return snapshots


def _tell(options: Options, snapshots: list[Snapshot]) -> None:
    if options.flag("json"):
        _json([as_data(one) for one in snapshots], indent=None if options.flag("watch") else 2)
    elif snapshots:
        print(table.of_locks(snapshots, Paint(sys.stdout), room(sys.stdout)), flush=True)
    else:
        age = options.get("older_than")
        begins = f" whose name begins with {line(options.name)!r}" if options.name else ""
        held = f" for {ago(age)} or longer" if age is not None else ""
        print(
            f"No locks are in use{begins}{held}.", file=sys.stdout if options.flag("watch") else sys.stderr, flush=True
        )


def _watched(options: Options, locks: Locks) -> int:
    """Again and again: on a terminal in place of the last time, elsewhere below it. A store that is away is waited for."""
    end = time.monotonic() + options.get("for", float("inf"))
    clear = Paint(sys.stdout).rich
    shown_at = ""
    away: Unavailable | None = None
    while True:
        try:
            snapshots: list[Snapshot] | None = _listed(options, locks)
        except Unavailable as error:
            snapshots = None
            if away is None:  # once, or it would soon have pushed away what is shown
                old = f"; what is shown is of {shown_at}" if shown_at else ""
                told = f"holdfast: {shown(str(error))}{old}; it is asked again and again"
                print(told, file=sys.stderr, flush=True)
            away = error
        if snapshots is not None:
            away, shown_at = None, time.strftime("%H:%M:%S")
            print("\x1b[H\x1b[J" if clear and not options.flag("json") else "", end="")
            _tell(options, snapshots)
        left = end - time.monotonic()
        if left <= 0:
            if away is not None:
                raise away
            return exits.OK
        time.sleep(min(max(0.05, options.get("interval", 1.0)), left))


def show(options: Options) -> int:
    with connect(options.get("url"), observe=[]) as locks:
        snapshot = locks.inspect(options.name)
    if options.flag("json"):
        return _json(as_data(snapshot))
    print(table.of_one(snapshot, Paint(sys.stdout), room(sys.stdout)))
    return exits.OK


def why(options: Options) -> int:
    with connect(options.get("url"), observe=[]) as locks:
        snapshot = locks.inspect(options.name)
        graph = locks.wait_graph()
    sentences = story.tell(snapshot, graph, options.get("url"), options.get("url_file"))
    if options.flag("json"):
        edges = [edge._asdict() for edge in graph.edges]
        deadlocks = [[edge._asdict() for edge in cycle] for cycle in graph.deadlocks()]
        return _json({**as_data(snapshot), "story": sentences, "waits_for": edges, "deadlocks": deadlocks})
    print("\n".join(wrapped(sentences, sys.stdout)))
    return exits.OK


def release(options: Options) -> int:
    token: int = options.get("token")
    logging.getLogger("holdfast").addHandler(
        logging.NullHandler()
    )  # the eviction is told by us, and need not be logged here
    with connect(options.get("url"), label="holdfast release", observe=[]) as locks:
        snapshot = locks.inspect(options.name)
        found = [one for one in snapshot.holders if one.token == token]
        if not found:
            return _nobody(options, snapshot, token)
        if not options.flag("json"):
            print("\n".join(wrapped(story.forewarn(snapshot, found[0]), sys.stdout)))
            if sys.stdin.isatty() and sys.stdout.isatty() and not options.flag("yes") and not _agreed():
                print("Nothing was done.", file=sys.stderr)
                return exits.NO
        return _put_out(options, locks, token, found[0].owner)


def _put_out(options: Options, locks: Locks, token: int, owner: str) -> int:
    past = locks.force_release(options.name, token=token)
    if past is None:
        return _nobody(options, locks.inspect(options.name), token)
    if options.flag("json"):
        data = {"name": options.name, "released": True, "owner": owner, "token": token, "new_token": past}
        return _json(data)
    print(f"Released. Token {past} outranks it.")
    return exits.OK


def _nobody(options: Options, snapshot: Snapshot, token: int) -> int:
    if options.flag("json"):
        _json({"name": options.name, "released": False, "token": token, "new_token": None})
    else:
        holders = ", ".join(f"{line(one.owner)} with token {one.token}" for one in snapshot.holders)
        now = f"it is held by {holders}" if holders else "it is free"
        print(f"Nobody holds token {token} of {line(options.name)} now: {now}.", file=sys.stderr)
    return exits.NO


def _agreed() -> bool:
    try:
        return input("Go on? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def as_data(snapshot: Snapshot) -> dict[str, Any]:
    """For machines. Times are seconds; a capacity of null is without limit, 0 means not in use."""
    return {
        "name": snapshot.name,
        "kind": table.kind(snapshot),
        "capacity": None if table.is_rwlock(snapshot) else snapshot.capacity,
        "used": len(snapshot.holders) if table.is_rwlock(snapshot) else snapshot.used,
        "holders": [_units(snapshot, one._asdict()) for one in snapshot.holders],
        "waiters": [_units(snapshot, one._asdict()) for one in snapshot.waiters],
        "eviction": snapshot.eviction._asdict() if snapshot.eviction else None,
    }


def _units(snapshot: Snapshot, data: dict[str, Any]) -> dict[str, Any]:
    if "ttl" in data:
        data["ttl"] = data["ttl"] or None
    if table.is_rwlock(snapshot):
        return {**data, "units": 1, "writes": data["units"] == snapshot.capacity}
    return data


def _json(data: object, indent: int | None = 2) -> int:
    import json

    print(json.dumps(data, indent=indent), flush=True)  # ASCII only, so control characters are escaped in it as well
    return exits.OK


COMMANDS: dict[str, Callable[[Options], int]] = {"ls": ls, "show": show, "why": why, "release": release}
