"""Openers for stores that live in a file, which every process of one simulated machine opens for itself."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ...drivers.simulated import Process
from ...errors import Unavailable
from ...stores.base import Store
from ...stores.sqlite import SqliteStore
from ...stores.sqlite.database import BUSY_PATIENCE, Database, Execute
from .local import Local, moment
from .workload import Workload

T = TypeVar("T")


class _Unreliable(Database):
    """A busy file, as slow and as faulty as the workload's network: fails before it did anything, or after."""

    def __init__(self, database: Database, workload: Workload, process: Process) -> None:
        super().__init__(database.path, database._driver, database._now, database._boot)
        database.close()
        self._process = process
        self._random = workload.random.random
        self._network = workload.network

    def at_once(self, statement: str, parameters: Sequence[Any], now: float) -> bool:
        return self._random() >= self._network.faults.slow and super().at_once(statement, parameters, now)

    async def transact(self, work: Callable[[Execute], T], within: float = BUSY_PATIENCE) -> T:
        faults = self._network.faults
        await moment(self._process)
        if self._random() < faults.lose_request:
            raise Unavailable(f"{self.path} failed")
        result = await super().transact(work, within)
        await moment(self._process)  # between a change and its bell others may run, and we may be killed
        if self._random() < faults.lose_reply:
            raise Unavailable(f"{self.path} failed, though it was done")
        return result


@contextmanager
def sqlite_files() -> Iterator[Callable[[Workload, Process], Store]]:
    """An opener for `run`: one new file a run, in memory where the system has such a place."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(prefix="holdfast-", dir=memory if os.path.isdir(memory) else None) as folder:

        def opened(workload: Workload, process: Process) -> Store:
            path = os.path.join(folder, f"{workload.seed}.db")
            if not workload.opened:
                for left in (path, f"{path}-wal", f"{path}-shm"):
                    if os.path.exists(left):
                        os.unlink(left)
            store = SqliteStore(path, process.driver)
            workload.opened.append(store)
            store._database = _Unreliable(store._database, workload, process)
            store._renewals = _Unreliable(store._renewals, workload, process)
            workload.at_end += [store._database.close, store._renewals.close]
            return Local(store, process)

        yield opened
