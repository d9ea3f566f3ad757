"""Actors: each key has a mailbox, and its messages are handled one at a time, so that its state needs no lock.

    from holdfast.lockfree import mailbox

    class Account:
        def __init__(self, key):
            self.balance = 0

        def receive(self, message):          # never two at once for one key
            self.balance += message
            return self.balance

    with mailbox.Mailboxes(Account) as accounts:
        accounts.tell("alice", 10)
        accounts.ask("alice", 5)             # 15

Between processes, `Post(queue)` sends and `serve(queue, accounts)` handles, through a `partition.Queue` that they share.
For asyncio the same names are in `mailbox.aio`; there, `receive` may be an `async def`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...errors import GaveUp, MailboxFull
from .box import Record
from .remote import Post, serve
from .threads import Mailboxes

if TYPE_CHECKING:
    from . import aio

__all__ = ["Mailboxes", "Record", "Post", "serve", "MailboxFull", "GaveUp", "aio"]


def __getattr__(name: str) -> Any:
    if name == "aio":
        return import_module(f"{__name__}.aio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
