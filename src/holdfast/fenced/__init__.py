"""Storage that refuses whoever was overtaken: the half of fencing that most libraries leave to their users.

    from holdfast import fenced

    with locks.lock("invoice:42") as lease:
        with fenced.transaction(db, lease) as tx:     # StaleToken if somebody newer has been here
            tx.execute("UPDATE …")                    # reads in here are covered as well

A guard knows a resource's name and a token: a lease, or a pair (name, token). For asyncio the same names are in
`holdfast.fenced.aio`. What is here is imported when it is first used, and so are the drivers it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .mark import MAX_MARK, Fenced, Mark, Ticket, subscribe

if TYPE_CHECKING:
    from . import aio
    from .etcd import Etcd
    from .files import File
    from .memory import Memory
    from .objects import Object
    from .redis import Redis
    from .sql import Row, schema
    from .sql.threads import create_table, seal, transaction
    from .zookeeper import ZooKeeper

__all__ = [
    "transaction",
    "seal",
    "Row",
    "create_table",
    "schema",
    "aio",
    "Redis",
    "Etcd",
    "ZooKeeper",
    "Object",
    "File",
    "Memory",
    "Fenced",
    "Mark",
    "Ticket",
    "MAX_MARK",
    "subscribe",
]

_WHERE = {
    "transaction": "sql.threads",
    "seal": "sql.threads",
    "create_table": "sql.threads",
    "Row": "sql",
    "schema": "sql",
    "Redis": "redis",
    "Etcd": "etcd",
    "ZooKeeper": "zookeeper",
    "Object": "objects",
    "File": "files",
    "Memory": "memory",
}


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module(f"{__name__}.aio")
    if name in _WHERE:
        found = globals()[name] = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
