"""Locks as tables and lists."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..claim import KEPT, Holding, Snapshot, Waiting
from ..recipes import DEFAULT_TTL
from ..rule import EVERYBODY
from .terminal import Paint, cut, padded, width_of
from .text import ago, line

_HEADS = ("NAME", "HOLDERS", "UNITS", "WAITING", "OLDEST", "LEFT", "OWNER")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_NUMBERS = {1, 2, 3, 4, 5}  # columns that are aligned to the right
_SHORTENED = ((6, 16), (0, 14))  # the owner first, to no less than that; then the name
_DISPENSABLE = (2, 1, 4)  # what `show` tells as well: units, holders, the oldest


def is_rwlock(snapshot: Snapshot) -> bool:
    return snapshot.capacity == EVERYBODY


def kind(snapshot: Snapshot) -> str:
    if not snapshot.capacity:
        return "free"
    if is_rwlock(snapshot):
        return "readers and writers"
    return "mutex" if snapshot.capacity == 1 else "semaphore"


def units(snapshot: Snapshot) -> str:
    if not is_rwlock(snapshot):
        return f"{snapshot.used}/{snapshot.capacity}"
    if any(one.units == EVERYBODY for one in snapshot.holders):
        return "writing"
    return "reading" if snapshot.holders else "0"


def of_locks(snapshots: Sequence[Snapshot], paint: Paint, width: int | None = None) -> str:
    """Where it has to fit a width, long names and owners are cut short, and then columns are left out."""
    rows = [_HEADS, *(_row(one) for one in snapshots)]
    widths = _fitted([max(width_of(row[column]) for row in rows) for column in range(len(_HEADS))], width)
    lines = []
    for number, row in enumerate(rows):
        cells = {at: padded(cut(row[at], wide), wide, right=at in _NUMBERS) for at, wide in widths.items()}
        if number == 0:
            lines.append(paint("dim", "  ".join(cells.values()).rstrip()))
            continue
        last = max(cells)
        cells[last] = cells[last].rstrip()
        cells[0] = paint("bold", cells[0])
        if row[3] != "0":
            cells[3] = paint("yellow", cells[3])
        lines.append("  ".join(cells.values()).rstrip())
    return "\n".join(lines)


def _fitted(widths: list[int], room: int | None) -> dict[int, int]:
    """Column → how wide it is."""
    found = dict(enumerate(widths))

    def over() -> int:
        return sum(found.values()) + 2 * (len(found) - 1) - room if room is not None else 0

    for step in (*_SHORTENED, *_DISPENSABLE, *_SHORTENED):
        if over() <= 0:
            break
        if isinstance(step, tuple):
            column, least = step
            found[column] = max(min(found[column], least), found[column] - over())
        else:
            del found[step]
    return found


def _row(snapshot: Snapshot) -> tuple[str, ...]:
    holders = snapshot.holders
    oldest = max(holders, key=lambda one: one.age, default=None)
    owner = f"{line(oldest.owner)}{kept(oldest.note)}" if oldest else "-"
    if len(holders) > 1:
        owner += f" and {len(holders) - 1} more"
    return (
        line(snapshot.name),
        str(len(holders)),
        units(snapshot),
        str(len(snapshot.waiters)),
        ago(oldest.age) if oldest else "-",
        ago(oldest.left) if oldest else "-",
        owner,
    )


def kept(note: str) -> str:
    """Said of an owner in a list: it may well be idle."""
    return " (kept)" if note.startswith(KEPT) else ""


def of_one(snapshot: Snapshot, paint: Paint, width: int | None = None) -> str:
    name = paint("bold", line(snapshot.name))
    if not snapshot.capacity:
        lines = [f"{name} is free: nobody holds it, nobody waits"]
    else:
        used = f"{units(snapshot)} units" if kind(snapshot) == "semaphore" else units(snapshot)
        lines = [f"{name} is a {kind(snapshot)}" if not is_rwlock(snapshot) else f"{name} has readers and writers"]
        lines[0] += "" if kind(snapshot) == "mutex" else f", {used}"
    if snapshot.holders:
        lines.append(paint("dim", "inside"))
        # A snapshot does not say what ttl a holder asked for, so all bars are drawn to one scale.
        scale = max(DEFAULT_TTL, *(one.left for one in snapshot.holders))
        lines += [_holder(snapshot, one, scale, paint, width) for one in snapshot.holders]
    if snapshot.waiters:
        lines.append(paint("dim", "in line"))
        lines += [_waiter(snapshot, one, place, width) for place, one in enumerate(snapshot.waiters, 1)]
    if snapshot.eviction:
        out = snapshot.eviction
        lines.append(paint("dim", "last forced release"))
        lines.append(
            f"  {line(out.owner)} with token {out.evicted_token}, {ago(out.age)} ago, by {line(out.by)}; "
            f"token {out.token} outranks it"
        )
    return "\n".join(lines)


def share(snapshot: Snapshot, who: Holding | Waiting) -> str:
    """What of it somebody has or wants, where that is not plainly all."""
    if is_rwlock(snapshot):
        return "to write" if who.units == EVERYBODY else "to read"
    return "" if snapshot.capacity == 1 else f"{who.units} of {snapshot.capacity} units"


def _holder(snapshot: Snapshot, one: Holding, scale: float, paint: Paint, width: int | None) -> str:
    parts = [f"  token {paint('cyan', str(one.token))}", line(one.owner)]
    if one.note:
        parts.append(f"“{line(one.note)}”")
    if what := share(snapshot, one):
        parts.append(what)
    bar = paint.bar(one.left / scale)
    parts += [f"held {ago(one.age)}", f"{bar} {ago(one.left)} left" if bar else f"{ago(one.left)} left"]
    return _laid(parts, width)


def _waiter(snapshot: Snapshot, one: Waiting, place: int, width: int | None) -> str:
    parts = [f"  {place}. {line(one.owner)}", f"waiting {ago(one.age)}"]
    if what := share(snapshot, one):
        parts.append(what)
    if not one.fair:
        parts.append("passes others")
    return _laid(parts, width)


def _laid(parts: list[str], width: int | None) -> str:
    """On one line; where that does not fit, what does not is on further ones, indented."""
    lines = parts[:1]
    for part in parts[1:]:
        if width is None or width_of(_ESCAPES.sub("", f"{lines[-1]}  {part}")) <= width:
            lines[-1] += f"  {part}"
        else:
            lines.append(f"      {part}")
    return "\n".join(lines)
