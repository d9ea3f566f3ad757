"""Read, change, write if nobody else wrote meanwhile; and if somebody did, again.

>>> import sqlite3
>>> from holdfast.lockfree import optimistic
>>> db = sqlite3.connect(":memory:", isolation_level=None)
>>> _ = db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INT, version INT NOT NULL DEFAULT 0)")
>>> _ = db.execute("INSERT INTO account (id, balance) VALUES (42, 100)")
>>> optimistic.update(db, "account", 42, lambda row: {"balance": row["balance"] - 30})
{'id': 42, 'balance': 70, 'version': 1}

For asyncio the same names are in `holdfast.lockfree.optimistic.aio`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...databases.connections import THREADS
from ...drivers.base import finish
from ...drivers.threads import Threads
from . import cells, sql
from .cells import Cells
from .etcd import EtcdCells
from .http import HttpCells
from .redis import RedisCells
from .retry import ABSENT, ONCE, Absent, Retry
from .row import Key, Table
from .sql import VERSION, Change, ChangeAll, Record
from .zookeeper import ZooKeeperCells

__all__ = ["update", "update_all", "swap", "Redis", "Etcd", "ZooKeeper", "Http", "Retry", "ONCE", "ABSENT"]

_DRIVER = Threads()


def update(
    connection: Any,
    table: Table,
    key: Key,
    change: Change,
    *,
    version: str = VERSION,
    expected: int | Absent | None = None,
    retry: Retry | None = None,
) -> Record:
    """Read the row, let `change` answer with the columns that change (None: none), and write them if the version is still
    what was read; else again, `retry.attempts` times in all. The row as it was written; `Conflict` if it never was.

    `key` is the value of the column `id`, or a mapping of columns. With `expected` the row is changed only if it is at that
    version, and there is one attempt; `ABSENT` is the version of no row, so what exists is left as it is. `change` may be
    called several times, and should do nothing but compute.
    """
    return finish(sql.update(_DRIVER, THREADS, connection, table, key, change, version, expected, retry))


def update_all(
    connection: Any,
    rows: Sequence[tuple[Table, Key]],
    change: ChangeAll,
    *,
    version: str = VERSION,
    retry: Retry | None = None,
) -> list[Record]:
    """The same for several rows (pairs of table and key) in one transaction: `change` is given them all, and answers with as
    many mappings (or None). All are written or none; the version of a row that was only read is checked, and rises, too.
    """
    return finish(sql.update_all(_DRIVER, THREADS, connection, rows, change, version, retry))


def swap(connection: Any, table: Table, key: Key, changes: str, where: str, **values: object) -> bool:
    """One statement that changes a row if a condition holds, and whether it did; also in a transaction that is open.

    `swap(db, "stock", 7, "quantity = quantity - :n", "quantity >= :n", n=2)`. Both texts are SQL of your own: never put what
    a user has typed into them, but pass it as a value.
    """
    return finish(sql.swap(THREADS, connection, table, key, changes, where, values))


class _Keyed:
    """Updates of a store that keeps one value a key."""

    _cells: Cells

    def update(
        self, key: Any, change: Callable[[Any], Any], *, expected: Any = None, retry: Retry | None = None
    ) -> Any:
        """Read the value, let `change` answer with the new one (None: as it is), and write it if the version is still what
        was read; else again, `retry.attempts` times in all. The value as it was written; `Conflict` if it never was."""
        return finish(cells.update(_DRIVER, self._cells, key, change, expected, retry))

    def update_all(self, keys: Sequence[Any], change: cells.ChangeAll, *, retry: Retry | None = None) -> list[Any]:
        """The same for several keys, all or none: `change` is given a list, and answers with one."""
        return finish(cells.update_all(_DRIVER, self._cells, keys, change, None, retry))


class Redis(_Keyed):
    """Hashes of Redis: `Redis(client).update("account:42", lambda row: {"balance": int(row["balance"]) - 30})`. A field that
    becomes None is deleted; of a key that is not there, the row is empty. In Redis Cluster, several keys need one {tag}."""

    def __init__(self, client: Any) -> None:
        self._cells = RedisCells(client, THREADS)


class Etcd(_Keyed):
    """Keys of etcd: `Etcd(httpx.Client(base_url="http://localhost:2379"))`. Values are bytes; None: there is none."""

    def __init__(self, client: Any) -> None:
        self._cells = EtcdCells(client)


class ZooKeeper(_Keyed):
    """Nodes of ZooKeeper, through a `KazooClient` that is started. Data is bytes; None: there is no such node."""

    def __init__(self, client: Any) -> None:
        self._cells = ZooKeeperCells(client)


class Http(_Keyed):
    """Resources of a service that gives ETags: `Http(httpx.Client()).update(url, change)`. Bodies are bytes; None: 404. With
    `expected`, an ETag. What was read is written back with the same content type, unless `headers` says otherwise."""

    def __init__(self, client: Any, headers: Mapping[str, str] | None = None) -> None:
        self._cells = HttpCells(client, headers)
