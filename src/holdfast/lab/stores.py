"""The stores that the simulator runs, and what can happen to each. To add one (a simulated Redis, a Redlock of five nodes):
an entry here with what can be done to it; scenarios name what they need, and are then offered with it."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..drivers.simulated import Process
from ..stores.base import Store
from ..stores.memory import MemoryStore
from ..stores.sqlite import SqliteStore
from ..testing.simulation.local import Local
from ..testing.simulation.remote import Remote
from .strikes import CLOCK, CUT, FORGET

if TYPE_CHECKING:
    from .stage import Stage

_runs = itertools.count()


class Kind(NamedTuple):
    title: str
    can: frozenset[str]  # beside pausing and killing processes, which can be done everywhere
    open: Callable[[Stage, Process], Store]


def _memory(stage: Stage, process: Process) -> Store:
    """One store at a server, which every process reaches over the network."""
    if stage.memory is None:
        stage.memory = MemoryStore(stage.server.driver, f"lab-{next(_runs)}")
    return Remote(stage.watched(stage.memory), stage.to_store, process)


def _sqlite(stage: Stage, process: Process) -> Store:
    """A file that every process of one machine opens for itself."""
    if stage.folder is None:
        memory = "/dev/shm"  # noqa: S108 - a folder of our own in it
        stage.folder = tempfile.TemporaryDirectory(prefix="holdfast-", dir=memory if os.path.isdir(memory) else None)
        stage.at_end.append(stage.folder.cleanup)
    store = SqliteStore(os.path.join(stage.folder.name, "locks.db"), process.driver)
    stage.at_end.insert(0, store._database.close)
    stage.at_end.insert(0, store._renewals.close)
    return Local(stage.watched(store), process)


STORES = {
    "memory": Kind("a server (the memory store behind a network)", frozenset({CUT, CLOCK, FORGET}), _memory),
    "sqlite": Kind("an SQLite file on one machine", frozenset(), _sqlite),
}
