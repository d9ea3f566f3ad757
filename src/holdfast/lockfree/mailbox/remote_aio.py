"""Actors wherever their partition's owner is, for asyncio: the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...claim import valid_timeout
from ...drivers.base import boot_time
from ...errors import Misuse
from ..partition.aio import Queue, taken
from .box import unfinished
from .letters import Letter, answer_of, failure, question

if TYPE_CHECKING:
    from .aio import Mailboxes


class Post:
    """Sends to actors that other processes `serve`, through a queue that they share."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._line = queue._line

    async def tell(self, key: str, message: Any) -> None:
        """Leave a message; it is kept until it is handled."""
        await self._queue.put(key, Letter(message).written())

    async def ask(self, key: str, message: Any, *, timeout: float = 30.0) -> Any:
        """Leave a message and wait for the answer. After `TimeoutError` it is not begun any more, by the clock's leave."""
        wait = valid_timeout(timeout)
        if wait is None:
            raise Misuse("an ask to another process needs a timeout: that one may be gone")
        give_up = boot_time() + wait
        letter = question(message, self._line.name, wait)
        replies = self._line.replies(letter.reply_to)
        await self._queue.put(key, letter.written())
        try:
            batch = await taken(replies, 1, max(0.0, give_up - boot_time()))
        finally:
            await replies.shelf.discard()
        if batch is None:
            raise unfinished(key, timeout, begun=True)
        return answer_of(key, batch.messages[0].data)


async def serve(queue: Queue, mailboxes: Mailboxes, *, timeout: float | None = None) -> int:
    """Handle what comes, each key's in order, until nothing came for `timeout` seconds; returns how many.

    A message is acknowledged when its actor is done with it, or has failed at it. If this process dies before, it comes
    again: at least once.
    """
    count = 0
    async for message in queue.consume(timeout=timeout):
        letter = Letter.read(message.data)
        count += 1
        if letter.withdrawn():
            continue
        try:
            answer = {"answer": await mailboxes.ask(message.key, letter.message, timeout=None)}
        except Exception as error:  # told to the mailboxes' on_failure as well
            answer = failure(error)
        if letter.reply_to and not letter.withdrawn():
            await queue._line.replies(letter.reply_to).put(message.key, answer)
    return count
