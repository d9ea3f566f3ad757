"""ZooKeeper, with kazoo: a node has a version already. In asyncio, kazoo is waited for in a thread.

A node that is deleted and made anew begins at version 0 again: whoever read the old one at 0 takes the new one for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ...databases.wire import settle
from ...databases.zookeeper import cause_of
from ...errors import Misuse
from .cells import Cell
from .retry import ABSENT, Absent, valid_expected

Run = Callable[[Callable[[], Any]], Any | Awaitable[Any]]


class ZooKeeperCells:
    def __init__(self, client: Any, run: Run = lambda work: work()) -> None:
        if not hasattr(client, "transaction"):
            raise Misuse(f"a KazooClient is wanted, not {type(client).__name__}")
        self._client = client
        self._run = run

    def valid_key(self, key: str) -> str:
        if not isinstance(key, str) or not key.startswith("/"):
            raise Misuse(f"a path of ZooKeeper begins with a slash: {key!r:.80}")
        return key

    def valid_expected(self, expected: object) -> int | Absent | None:
        return valid_expected(expected, "a node")

    async def read(self, keys: Sequence[str]) -> list[Cell]:
        found: list[Cell] = await settle(self._run(lambda: [self._read(key) for key in keys]))
        return found

    def _read(self, path: str) -> Cell:
        from kazoo.exceptions import NoNodeError

        try:
            data, status = self._client.get(path)
        except NoNodeError:
            return Cell(path, ABSENT, None)
        return Cell(path, status.version, data)

    def after(self, before: object, answer: object) -> bytes:
        if not isinstance(answer, bytes):
            raise Misuse(f"a change must answer with bytes, or None, not with {type(answer).__name__}")
        return answer

    async def write(self, cells: Sequence[Cell], answers: Sequence[bytes | None]) -> bool:
        return bool(await settle(self._run(lambda: self._write(cells, answers))))

    def _write(self, cells: Sequence[Cell], answers: Sequence[bytes | None]) -> bool:
        from kazoo import exceptions

        transaction = self._client.transaction()
        for cell, answer in zip(cells, answers, strict=True):
            if cell.seen == ABSENT and answer is not None:
                transaction.create(cell.key, answer)
            elif answer is not None:
                transaction.set_data(cell.key, answer, cell.seen)
            elif cell.seen != ABSENT:  # ZooKeeper cannot be asked whether a node is still absent
                transaction.check(cell.key, cell.seen)
        cause = cause_of(transaction.commit())
        if cause is None:
            return True
        if isinstance(cause, exceptions.NoNodeError) and any(cell.seen == ABSENT for cell in cells):
            raise Misuse(
                f"a parent of {', '.join(cell.key for cell in cells)} does not exist: create it first"
            ) from cause
        if isinstance(cause, (exceptions.BadVersionError, exceptions.NodeExistsError, exceptions.NoNodeError)):
            # The server that we read from may lag behind the one that decides.
            self._client.sync(cells[0].key)
            return False
        raise cause
