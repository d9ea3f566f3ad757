"""The rules of Redlock. Pure: no clock, no I/O; the exhaustive model in the tests runs these very functions.

A client proposes one token to all nodes. A node accepts it if there is room and it is higher than any that it accepted
before. With the acceptance of a majority the claim is granted. Any two majorities share a node, and that node accepted the
later grant after the earlier one, with a higher token: so tokens rise from grant to grant, whatever any clock says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

DRIFT = 0.01  # of the ttl: how differently two machines' clocks may run, as in the original algorithm
DRIFT_LEAST = 0.002
_LOOKED_AT = 4096  # slots


def majority(nodes: int) -> int:
    return nodes // 2 + 1


def validity(ttl: float) -> float:
    """How long a grant lasts, from before it was asked for."""
    return ttl - ttl * DRIFT - DRIFT_LEAST


class Tally(NamedTuple):
    """What the nodes said to a proposal. An answer is None when none came (in time)."""

    yes: int
    full: int  # no room
    low: int  # the proposal must be higher
    silent: int
    highest: int  # token that a node told us of
    wake_us: int  # when the first of those in the way is out of time on some node; 0: nobody is
    capacity: int  # of those in the way, if they disagree with ours; else 0
    agreed: int  # the most nodes that have no room for the same grant

    def granted(self, nodes: int, proposed: int) -> bool:
        """A majority said yes. If a node knows a higher token than ours, somebody forgot: better to ask again."""
        return self.yes >= majority(nodes) and self.highest < proposed

    def worth_raising(self, nodes: int) -> bool:
        """Would a higher proposal have been granted?"""
        return self.yes + self.low >= majority(nodes) and self.low > 0

    def split(self, nodes: int) -> bool:
        """Several asked at once, each got some nodes, and for all that we know nobody got a majority of them."""
        return self.reachable(nodes) and self.full > 0 and self.capacity == 0 and self.agreed < majority(nodes)

    def reachable(self, nodes: int) -> bool:
        return nodes - self.silent >= majority(nodes)


def tally(answers: Sequence[Any]) -> Tally:
    yes = full = low = silent = highest = wake = capacity = 0
    full_for: dict[int, int] = {}
    for answer in answers:
        if answer is None:
            silent += 1
        elif type(answer) is int:
            yes += 1
        elif answer[0] == 0:
            full += 1
            highest = max(highest, answer[2])
            full_for[answer[2]] = full_for.get(answer[2], 0) + 1
            wake = min(wake or answer[1], answer[1])
        elif answer[0] == 1:
            full += 1
            capacity = answer[1]
        else:
            low += 1
            highest = max(highest, answer[1])
    return Tally(yes, full, low, silent, highest, wake, capacity, max(full_for.values(), default=0))


def decided(answers: Sequence[Any], nodes: int) -> bool:
    """Enough is known of a claim, whatever the others will say."""
    yes = open_ = 0
    for answer in answers:  # asked after every answer that comes in: a plain loop is twice as fast as two sums
        if answer is None:
            open_ += 1
        elif type(answer) is int:
            yes += 1
    return yes >= majority(nodes) or yes + open_ < majority(nodes)


def are_few(answers: Sequence[Any], to_come: int = 0) -> bool:
    """No majority has given an answer, or may still do so. An error is none."""
    given = to_come
    for answer in answers:
        if answer is not None and not isinstance(answer, Exception):
            given += 1
    return 2 * given <= len(answers)


def is_gone(answers: Sequence[Any], nodes: int) -> bool:
    """Enough is known of a release: whether it was there, whatever the others will say."""
    return present(answers, nodes) is not None


def present(answers: Sequence[Any], nodes: int) -> bool | None:
    """Of answers 1 (was there), 0 (was not) and None: was it there on a majority? None: not to be known."""
    there, absent = answers.count(1), answers.count(0)
    if there >= majority(nodes):
        return True
    if absent > nodes - majority(nodes):
        return False
    return None if nodes - there - absent > 0 else False


# ---- semaphores
#
# Counting units by majority would let too many in (five nodes with two units each have room for three holders with three nodes
# each). So a semaphore of n is n mutexes: its units have numbers, its *slots*, and a claim names those that it wants.


def choose(units: int, capacity: int, taken: Iterable[str], uniform: Callable[[float, float], float]) -> str:
    """Numbers of free slots, at random so that two who choose at once seldom choose the same; "" is never chosen."""
    busy = {int(slot) for slots in taken for slot in slots.split()}
    free = [slot for slot in range(min(capacity, _LOOKED_AT + len(busy) + units)) if slot not in busy]
    if len(free) < units:  # none to be had: ask for any, and be told how long to wait
        return " ".join(map(str, range(units)))
    start = int(uniform(0, len(free))) % len(free)
    return " ".join(str(free[(start + step) % len(free)]) for step in range(units))
