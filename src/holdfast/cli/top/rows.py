"""What a lock looks like as a row: which columns there is room for, what stands in them, and in which order rows come. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..table import kept
from ..terminal import cut, padded
from ..text import line

Lock = dict[str, Any]  # as the board tells it
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MINUTE = 60.0


class Column(NamedTuple):
    key: str
    head: str
    width: int  # at least
    share: int  # of the room that is left over
    right: bool
    sort: Callable[[Lock, float], Any]
    falls: bool  # the interesting ones are the high ones


# In the order in which they stand. Of those that do not fit, the last one of _DISPENSABLE goes first.
COLUMNS = (
    Column("name", "NAME", 14, 3, False, lambda lock, _: (lock["name"], lock["store"]), False),
    Column("store", "STORE", 8, 0, False, lambda lock, _: (lock["store"], lock["name"]), False),
    Column("holders", "HOLDER", 14, 4, False, lambda lock, _: [one["owner"] for one in lock["holders"]], False),
    Column("age", "AGE", 4, 0, True, lambda lock, now: age(lock, now) or 0.0, True),
    Column("left", "TTL", 8, 0, False, lambda lock, now: least(lock, now), False),
    Column(
        "token", "TOKEN", 5, 0, True, lambda lock, _: max((one["token"] for one in lock["holders"]), default=0), True
    ),
    Column("line", "LINE", 4, 0, True, lambda lock, _: len(lock["waiters"]), True),
    Column("wait", "WAIT", 4, 0, True, lambda lock, now: oldest_wait(lock, now) or 0.0, True),
    Column("rate", "/MIN", 4, 0, True, lambda lock, now: rate(lock["acquired"], now), True),
)
_DISPENSABLE = ("name", "left", "line", "age", "wait", "holders", "store", "token", "rate")
_GAP = 1
ATTENTION = ("deadlock", "in danger", "starving", "held unusually long")  # worst first


def columns(width: int, several: bool, token_width: int) -> list[tuple[Column, int]]:
    """Those that fit into so many cells, and how wide each is."""
    chosen = [one for one in COLUMNS if one.key != "store" or several]
    widths = {one.key: max(one.width, token_width) if one.key == "token" else one.width for one in chosen}
    for key in reversed(_DISPENSABLE):
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= width:
            break
        widths.pop(key, None)
    chosen = [one for one in chosen if one.key in widths]
    over = max(0, width - sum(widths.values()) - _GAP * (len(chosen) - 1))
    shares = sum(one.share for one in chosen) or 1
    return [(one, widths[one.key] + over * one.share // shares) for one in chosen]


def cells(lock: Lock, now: float, room: Sequence[tuple[Column, int]]) -> list[str]:
    return [_cell(column.key, lock, now, width, column.right) for column, width in room]


def heads(room: Sequence[tuple[Column, int]], sort: str, falls: bool) -> list[str]:
    told = []
    for column, width in room:
        mark = ("▼" if falls else "▲") if column.key == sort else ""
        told.append(padded(f"{column.head}{mark}"[:width], width, right=column.right))
    return told


def matching(locks: Iterable[Lock], text: str) -> list[Lock]:
    """Those with these letters in the name, an owner, the store or what is wrong with them."""
    wanted = text.casefold()
    return [lock for lock in locks if not wanted or any(wanted in one.casefold() for one in _words(lock))]


def _words(lock: Lock) -> list[str]:
    owners = [one["owner"] for one in (*lock["holders"], *lock["waiters"])]
    return [lock["name"], line(lock["name"]), lock["store"], *lock["attention"], *owners]


def ordered(locks: Iterable[Lock], sort: str, falls: bool, now: float) -> list[Lock]:
    """`sort` is the key of a column, or "" for what needs attention first."""
    if not sort:
        return sorted(locks, key=lambda lock: (urgency(lock), lock["name"], lock["store"]))
    [column] = [one for one in COLUMNS if one.key == sort]
    by_name = sorted(locks, key=lambda lock: (lock["name"], lock["store"]))
    return sorted(by_name, key=lambda lock: column.sort(lock, now), reverse=falls)


def urgency(lock: Lock) -> int:
    return min((ATTENTION.index(one) for one in lock["attention"]), default=len(ATTENTION))


def age(lock: Lock, now: float) -> float | None:
    return max((now - one["since"] for one in lock["holders"]), default=None)


def oldest_wait(lock: Lock, now: float) -> float | None:
    return max((now - one["since"] for one in lock["waiters"]), default=None)


def least(lock: Lock, now: float) -> float:
    """The part of the ttl that is left to the holder who is nearest its end."""
    parts = [(one["ends"] - now) / one["ttl"] for one in lock["holders"] if one["ttl"] > 0]
    return min(max(min(parts, default=0.0), 0.0), 1.0)


def rate(acquired: Sequence[float], now: float) -> float:
    """Acquisitions a minute, of those that were seen. Only the last thirty are remembered: then so many in their time."""
    recent = [at for at in acquired if now - at <= _MINUTE]
    if len(recent) == len(acquired) >= 30:
        return len(recent) * _MINUTE / max(now - recent[0], 1.0)
    return float(len(recent))


def bar(part: float, width: int) -> str:
    eighths = round(min(max(part, 0.0), 1.0) * width * 8)
    full = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return full.ljust(width)


def short(seconds: float) -> str:
    """A length of time in four cells: 0.4s, 59s, 12m, 3h, 9d."""
    seconds = max(0.0, seconds)
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit}"
    return f"{int(seconds)}s"


def _cell(key: str, lock: Lock, now: float, width: int, right: bool) -> str:
    return padded(cut(_text(key, lock, now, width), width), width, right=right)


def _text(key: str, lock: Lock, now: float, width: int) -> str:
    holders = lock["holders"]
    if key == "name":
        return line(lock["name"])
    if key == "store":
        return str(lock["store"])
    if key == "holders":
        if not holders:
            return "-"
        more = kept(holders[0]["note"]) + (f" +{len(holders) - 1}" if len(holders) > 1 else "")
        return cut(line(holders[0]["owner"]), width - len(more)) + more
    if key == "left":
        return bar(least(lock, now), width) if holders else "-"
    if key == "token":
        return str(max(one["token"] for one in holders)) if holders else "-"
    if key == "line":
        return str(len(lock["waiters"])) if lock["waiters"] else "-"
    if key == "rate":
        return f"{rate(lock['acquired'], now):.0f}"
    seconds = age(lock, now) if key == "age" else oldest_wait(lock, now)
    return "-" if seconds is None else short(seconds)
