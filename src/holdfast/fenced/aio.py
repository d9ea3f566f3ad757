"""Fenced storage for asyncio: the same names as in `holdfast.fenced`, with `await`."""

from .etcd import AsyncEtcd as Etcd
from .files import AsyncFile as File
from .mark import MAX_MARK, Fenced, Mark, Ticket, subscribe
from .memory import Memory
from .objects import AsyncObject as Object
from .redis.aio import Redis
from .sql import Row, schema
from .sql.aio import create_table, seal, transaction
from .zookeeper import AsyncZooKeeper as ZooKeeper

__all__ = [
    "transaction",
    "seal",
    "Row",
    "create_table",
    "schema",
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
