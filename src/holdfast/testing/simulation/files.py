"""Openers for stores that live in a file, which every process of one simulated machine opens for itself."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, TypeVar
from unittest import mock

from ...drivers.simulated import Process
from ...errors import Unavailable
from ...stores.base import Store
from ...stores.sqlite import SqliteStore, machine
from ...stores.sqlite import database as databases
from ...stores.sqlite import store as stores
from ...stores.sqlite.database import BUSY_PATIENCE, Database, Execute
from .local import Local, moment
from .workload import Workload

T = TypeVar("T")


class _Unreliable(Database):
    """A busy file, as slow and as faulty as the workload's network: fails before it did anything, or after."""

    def __init__(self, database: Database, workload: Workload, process: Process) -> None:
        super().__init__(database.path, database._driver, database._now, database._boot)
        self._was_open = database if database._connection is not None else None
        self._process = process
        self._random = workload.random.random
        self._network = workload.network

    def open(self) -> sqlite3.Connection:
        """At first use, as any other; but what was opened to look at the file serves as well, and opening takes long."""
        before, self._was_open = self._was_open, None
        if before is None or before._connection is None:
            return super().open()
        connection, before._connection = before._connection, None
        before._closing.detach()
        self.real, self._identity = before.real, before._identity
        self._connection, self._cursor = connection, before._cursor
        self._closing = weakref.finalize(self, connection.close)
        return connection

    def close(self) -> None:
        super().close()
        if self._was_open is not None:
            self._was_open.close()

    def at_once(self, statement: str, parameters: Sequence[Any], now: float) -> bool:
        return self._random() >= self._network.faults.slow and super().at_once(statement, parameters, now)

    async def transact(self, work: Callable[[Execute], T], within: float = BUSY_PATIENCE) -> T:
        faults = self._network.faults
        await moment(self._process)
        if self._random() < faults.lose_request:
            raise Unavailable("the file failed")
        result = await super().transact(work, within)
        await moment(self._process)  # between a change and its bell others may run, and we may be killed
        if self._random() < faults.lose_reply:
            raise Unavailable("the file failed, though it was done")
        return result


@contextmanager
def _one_machine() -> Iterator[None]:
    """What the system says of the machine is the same in every run: it is asked once."""
    with ExitStack() as asked:
        for module, name in ((databases, "file_system_of"), (stores, "boot_id"), (machine, "clock_offset")):
            asked.enter_context(mock.patch.object(module, name, cache(getattr(module, name))))
        yield


@contextmanager
def sqlite_files() -> Iterator[Callable[[Workload, Process], Store]]:
    """An opener for `run`: one new file a run, in memory where the system has such a place."""
    memory = "/dev/shm"
    with (
        _one_machine(),
        tempfile.TemporaryDirectory(prefix="holdfast-", dir=memory if os.path.isdir(memory) else None) as folder,
    ):

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
