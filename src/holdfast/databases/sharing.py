"""One guarded block at a time on one connection.

Tasks and threads may share a connection, and whether a transaction is open is asked before the first of them has begun one:
both would be let in, and the first to leave would commit what the other has half done, and end its guard.
"""

from __future__ import annotations

from threading import RLock
from weakref import ref

from ..errors import Misuse

_stays: dict[int, ref[Stay]] = {}  # by the identity of the connection
_succeeding = RLock()  # a signal handler may come in between


class Stay:
    """Somebody is in a block, or about to be. Who is forgotten together with the connection has left."""

    def __init__(self, connection: object) -> None:
        """`Misuse`, if somebody is there."""
        self._connection = connection
        self._key = key = id(connection)
        self._ref = mine = ref(self)
        there = _stays.setdefault(key, mine)  # in one step, for threads
        if there is not mine and not _succeeded(key, there, mine):
            raise Misuse(
                "a transaction is open already on this connection, or is being begun by another task or thread, which would "
                "commit what is half done here. Use one connection for each of them"
            )

    def end(self) -> None:
        if _stays.get(self._key) is self._ref:  # nobody else removes, or succeeds, one that is alive
            _stays.pop(self._key, None)


def _succeeded(key: int, there: ref[Stay], mine: ref[Stay]) -> bool:
    """In the place of one who was forgotten inside: of several who find it empty, one is let in."""
    with _succeeding:
        if there() is not None or _stays.get(key) is not there:
            return False
        _stays[key] = mine
        return True
