"""One writer a key: keys belong to partitions, partitions to workers, and each ownership is a lease with a token.

    from holdfast.lockfree import partition

    group = partition.Group(locks, "billing")            # locks: any store of holdfast
    with group.join() as worker:
        with worker.working("customer:42") as lease:     # NotOwner, if the key belongs to somebody else
            with fenced.transaction(db, lease) as tx:    # and what is written too late is refused
                ...

    queue = partition.Queue(db, "billing")               # PostgreSQL or Redis: messages in order for each key
    queue.put("customer:42", {"cents": 10})
    for message in queue.consume():
        ...                                              # acknowledged when the loop comes back for the next

For asyncio the same names are in `partition.aio`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...errors import NotOwner
from .messages import Batch, Message
from .ring import Ring
from .threads import Group, Queue, Worker

if TYPE_CHECKING:
    from . import aio

__all__ = ["Ring", "Group", "Worker", "Queue", "Message", "Batch", "NotOwner", "aio"]


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module(f"{__name__}.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
