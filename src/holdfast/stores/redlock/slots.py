"""A semaphore among nodes that do not know each other. Pure.

Counting units by majority would let too many in (five nodes with two units each have room for three holders with three
nodes each). So a semaphore of n is n mutexes: its units have numbers, and a claim names those that it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_LOOKED_AT = 4096


def choose(units: int, capacity: int, taken: Iterable[str], uniform: Callable[[float, float], float]) -> str:
    """Numbers of free slots, at random so that two who choose at once seldom choose the same; "" is never chosen."""
    busy = {int(slot) for slots in taken for slot in slots.split()}
    free = [slot for slot in range(min(capacity, _LOOKED_AT + len(busy) + units)) if slot not in busy]
    if len(free) < units:  # none to be had: ask for any, and be told how long to wait
        return " ".join(map(str, range(units)))
    start = int(uniform(0, len(free))) % len(free)
    return " ".join(str(free[(start + step) % len(free)]) for step in range(units))
