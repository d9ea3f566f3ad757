"""`why`: who is in whose way, in sentences."""

from __future__ import annotations

from collections import deque

from ..claim import KEPT, Holding, Snapshot
from ..waitfor import Edge, WaitGraph
from .table import is_rwlock, share
from .text import ago, line

_LATE = 1.0  # seconds that a renewal may take on a busy machine
_MANY = 5  # holders or waiters are named up to here, then counted
_LONG = 20  # sentences of who waits for whom


def tell(snapshot: Snapshot, graph: WaitGraph, url: str | None = None, file: str | None = None) -> list[str]:
    name = line(snapshot.name)
    if not snapshot.capacity:
        sentences = [f"{name} is free: nobody holds it and nobody waits. Whoever asks gets it at once."]
        return sentences + _eviction(snapshot)
    sentences = [*_holders(snapshot), *_waiters(snapshot), *_chains(snapshot, graph)]
    deadlocks = [edges for edges in graph.deadlocks() if any(edge.name == snapshot.name for edge in edges)]
    sentences += [cycle(edges) for edges in deadlocks]
    sentences += _eviction(snapshot)
    return sentences + _advice(snapshot, bool(deadlocks), url, file)


def _holders(snapshot: Snapshot) -> list[str]:
    name = line(snapshot.name)
    if not snapshot.holders:
        return [f"Nobody holds {name} at this moment; the first in line is about to enter."]
    told = []
    for one in snapshot.holders[:_MANY]:
        what = share(snapshot, one)
        told.append(
            f"{line(one.owner)} has held {name}{f' {what}' if is_rwlock(snapshot) else ''}"
            f"{f' ({what})' if what and not is_rwlock(snapshot) else ''} for {ago(one.age)}, with token {one.token}; "
            f"unless it renews, that ends in {ago(one.left)}."
        )
        if one.note.startswith(KEPT):
            told.append(
                f"It is {line(one.note)} (keep=), so perhaps nobody is inside: whoever waits is told of, and gets it at once, or "
                "when the section under way has ended."
            )
        told += _renewals(one)
    if len(snapshot.holders) > _MANY:
        told.append(f"So do {len(snapshot.holders) - _MANY} others.")
    if snapshot.used < snapshot.capacity and not is_rwlock(snapshot):
        told.append(f"{snapshot.capacity - snapshot.used} of its {snapshot.capacity} units are free.")
    return told


def _renewals(one: Holding) -> list[str]:
    """Does it live? A holder renews when a third of its ttl is gone; where the store says what that is, one can tell."""
    if not one.ttl:
        return ["This store does not say when it last renewed: one that hangs cannot be told from one that lives."]
    silent = one.ttl - one.left
    if silent < 0:
        return []
    if silent <= one.ttl / 3 + _LATE:
        return (
            [f"It renewed {ago(silent)} ago, of a ttl of {ago(one.ttl)}: it is alive."]
            if one.age - silent > _LATE
            else []
        )
    told = f"It has not renewed for {ago(silent)} of {ago(one.ttl)}, and should have after {ago(one.ttl / 3)}"
    if one.age - silent < _LATE:  # never: some do not want to
        return [f"{told}, unless it was taken with renew=False or once: then it has its own end."]
    return [
        f"{told}: it is paused, cut off from the store, or dead. If it does not come back, the lock is free in {ago(one.left)}."
    ]


def _waiters(snapshot: Snapshot) -> list[str]:
    if not snapshot.waiters:
        return ["Nobody waits for it."]
    first, *rest = snapshot.waiters
    what = f" {share(snapshot, first)}" if is_rwlock(snapshot) else ""
    told = [f"First in line{what} is {line(first.owner)}, waiting for {ago(first.age)}."]
    named = ", ".join(f"{line(one.owner)} ({ago(one.age)})" for one in rest[: _MANY - 1])
    if rest:
        more = f" and {len(rest) - _MANY + 1} more" if len(rest) >= _MANY else ""
        told.append(f"After it: {named}{more}.")
    return told


def _chains(snapshot: Snapshot, graph: WaitGraph) -> list[str]:
    """The holders of this lock may be waiting themselves: for what, and for whom?"""
    waited_for: dict[str, list[Snapshot]] = {}
    for one in graph.snapshots:
        for owner in {waiting.owner for waiting in one.waiters} if one.holders else ():
            waited_for.setdefault(owner, []).append(one)
    told: list[str] = []
    more = 0
    seen: set[str] = set()
    entered: set[str] = set()  # a lock's holders are looked at once, however many wait for it
    ahead = deque(one.owner for one in snapshot.holders)
    while ahead:
        owner = ahead.popleft()
        if owner in seen:
            continue
        seen.add(owner)
        for other in waited_for.get(owner, ()):
            if len(told) < _LONG:
                told.append(f"{line(owner)} itself waits for {line(other.name)}, which {_held_by(other)}.")
            else:
                more += 1
            if other.name not in entered:
                entered.add(other.name)
                ahead.extend(one.owner for one in other.holders)
    return [*told, f"And so on: {more} more of them wait."] if more else told


def _held_by(snapshot: Snapshot) -> str:
    """Who holds it, by name if they are few."""
    names = ", ".join(line(one.owner) for one in snapshot.holders[:_MANY])
    others = len(snapshot.holders) - _MANY
    return f"{names}{f' and {others} more' if others > 0 else ''} {'hold' if len(snapshot.holders) > 1 else 'holds'}"


def cycle(edges: tuple[Edge, ...]) -> str:
    steps = ", ".join(f"{line(edge.waiter)} waits for {line(edge.name)} of {line(edge.holder)}" for edge in edges)
    return f"This is a deadlock: {steps}. None of them can go on until one is released or gives up waiting."


def _eviction(snapshot: Snapshot) -> list[str]:
    out = snapshot.eviction
    if out is None:
        return []
    return [
        f"{ago(out.age)} ago {line(out.by)} evicted {line(out.owner)} (token {out.evicted_token}); "
        f"token {out.token} outranks it."
    ]


def _advice(snapshot: Snapshot, deadlocked: bool, url: str | None, file: str | None) -> list[str]:
    if not snapshot.holders:
        return []
    oldest = max(snapshot.holders, key=lambda one: one.age)
    if deadlocked:
        told = ["What you can do: end one of them, or put one out:"]
    elif not snapshot.waiters:
        told = ["What you can do: wait; or, if the holder hangs, end it where it runs, or put it out:"]
    else:
        told = ["What you can do: wait; a holder that has died is gone when its time is up. If it hangs, put it out:"]
    return [*told, f"  {release_command(snapshot, oldest, url, file)}"]


def release_command(snapshot: Snapshot, one: Holding, url: str | None = None, file: str | None = None) -> str:
    """To copy into a shell: so no name in it may be more than a word there."""
    from shlex import quote

    from ..secret import redacted

    word = quote(snapshot.name) if snapshot.name.isprintable() else _ansi_c(snapshot.name)
    dashes = "-- " if snapshot.name.startswith("-") else ""
    where = ""
    if file is not None:
        where = f" --url-file {quote(file)}"
    elif url:  # a password is not shown, so it cannot be copied either
        where = f" --url {quote(url)}" if redacted(url) == url else ' --url "$HOLDFAST_URL"'
    if dashes:
        return f"holdfast release{where} --token {one.token} {dashes}{word}"
    return f"holdfast release {word}{where} --token {one.token}"


def _ansi_c(name: str) -> str:
    r"""bash's and zsh's $'…', in which \x1b is typed rather than sent."""
    return "$'" + "".join(f"\\x{byte:02x}" for byte in name.encode()) + "'"


def forewarn(snapshot: Snapshot, one: Holding) -> list[str]:
    """What `release` is about to do."""
    told = [
        f"This puts out {line(one.owner)}, which has held {line(snapshot.name)} for {ago(one.age)} with token {one.token}."
    ]
    told.append("It is told at its next renewal. Only storage that checks tokens can stop what it writes until then.")
    if snapshot.waiters:
        told.append(f"Next in line is {line(snapshot.waiters[0].owner)}.")
    return told
