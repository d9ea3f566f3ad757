"""What a node may answer to a question, and what it is when it answers something else: that node's own trouble, and no answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..redis.replies import NONSENSE, Reply, ReplyError, foreign, nonsense
from ..redis.scanning import is_scanned

Fits = Callable[[Reply], bool]
Enough = Callable[[Sequence[Reply]], bool]
_FOREIGN = [3]


class Question(NamedTuple):
    """Put to all nodes, until `enough` is true of their answers. None: no answer (yet)."""

    request: bytes
    fits: Fits
    enough: Enough
    key: str = ""  # of the name that it is about
    leaving: bool = False

    def understood(self, reply: Reply, where: str) -> Reply:
        """The answer; or, as one of our errors, why it is none. An error of the server's is left as it is."""
        try:
            if self.fits(reply):
                return reply
        except NONSENSE:
            pass
        if isinstance(reply, ReplyError):
            return reply
        return foreign(self.key, where) if reply == _FOREIGN else nonsense(reply, where)


def are_few(answers: Sequence[Reply], to_come: int = 0) -> bool:
    """No majority has given an answer, or may still do so. An error is none."""
    given = to_come
    for answer in answers:
        if answer is not None and not isinstance(answer, Exception):
            given += 1
    return 2 * given <= len(answers)


def _numbers(reply: Reply, *kinds: int) -> bool:
    """A list of whole numbers, of which the first says how many there are."""
    return type(reply) is list and reply[0] in kinds and list(map(type, reply)) == [int] * (3 if reply[0] == 0 else 2)


def of_claim(token: int) -> Fits:
    return lambda reply: reply == token if type(reply) is int else _numbers(reply, 0, 1, 2)


def of_release(reply: Reply) -> bool:
    return type(reply) is int and reply in (0, 1)


def of_eviction(reply: Reply) -> bool:
    return of_release(reply) or _numbers(reply, 2)


def of_renewal(count: int) -> Fits:
    return lambda reply: type(reply) is bytes and len(reply) == count and not reply.strip(b"01")


def of_loading(reply: Reply) -> bool:
    return type(reply) is bytes


def of_scan(reply: Reply) -> bool:
    return is_scanned(reply)


def of_inspection(reply: Reply) -> bool:
    mark, inside, waiting, evicted = reply
    return (
        type(mark) is int
        and all(_like(one, bytes, int, int, int, int, bytes, int, bytes, int) and _slots(one[7]) for one in inside)
        and all(_like(one, bytes, bytes, int, int, int, int) for one in waiting)
        and (evicted == [] or _like(evicted, bytes, int, int, bytes, int))
    )


def _like(values: Reply, *types: type) -> bool:
    return type(values) is list and list(map(type, values)) == list(types)


def _slots(text: bytes) -> bool:
    return all(slot.isdigit() for slot in text.split())
