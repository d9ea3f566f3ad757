"""Actors wherever their partition's owner is, for asyncio: the same names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ...drivers.base import boot_time
from ...errors import Misuse, StaleToken
from ..partition.aio import Queue, taken
from ..partition.messages import Message
from .box import unfinished
from .letters import Letter, answer_of, failure, question, unanswered
from .threads import tell_failure

if TYPE_CHECKING:
    from .aio import Mailboxes


class Reply(asyncio.Future[Any]):
    """`begun`: an actor was given the message. Else whatever is said here, the message was not handled by anybody."""

    begun = False


class Post:
    """Sends to actors that other processes `serve`, through a queue that they share."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._line = queue._line

    def __repr__(self) -> str:
        return f"<Post by {self._queue!r}>"

    async def tell(self, key: str, message: Any) -> None:
        """Leave a message; it is kept until it is handled."""
        await self._queue.put(key, Letter(message).written())

    async def ask(self, key: str, message: Any, *, timeout: float = 30.0) -> Any:
        """Leave a message and wait for the answer. After `TimeoutError` it is not begun any more, by the clock's leave."""
        letter, give_up = question(message, self._line.name, timeout)
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

    A message is acknowledged when its actor is done with it, or has failed at it; one that no Post has left is told to the
    mailboxes' `on_failure`, and acknowledged. If this process dies before, it comes
    again: at least once. A message for which there is no actor (its key was given up, or there are too many) stays in the
    queue, and with it what is behind it in its partition: it comes again, here or elsewhere, after the queue's ttl.
    """
    count = 0
    while (batch := await queue.take(timeout=timeout)) is not None:
        handled = True
        try:
            for message in batch.messages:
                if not (handled := await _handled(queue, mailboxes, message)):
                    break  # not given back: the ttl is the pause before it is tried again
                await queue.ack(batch, message)
                count += 1
        except StaleToken:
            continue  # overtaken: what is left of it is somebody else's
        finally:
            if handled:
                await queue.release(batch)
    return count


async def _handled(queue: Queue, mailboxes: Mailboxes, message: Message) -> bool:
    try:
        letter = Letter.read(message.data, queue._line.name)
    except Misuse as error:  # nobody's: it is not to end the serving of all others, here and wherever it comes next
        tell_failure(mailboxes._on_failure, message.key, message.data, error)
        return True
    if letter.withdrawn():
        return True
    reply = Reply(loop=asyncio.get_running_loop())
    answer: dict[str, Any] | None
    try:
        answer = {"answer": await mailboxes._ask(message.key, letter.message, None, reply)}
    except Exception as error:  # told to the mailboxes' on_failure as well
        answer = unanswered(message.key, letter, error, begun=reply.begun, closed=mailboxes._boxes.closed)
        if answer is None:
            return False
    if letter.reply_to and not letter.withdrawn():
        replies = queue._line.replies(letter.reply_to)
        try:
            await replies.put(message.key, answer)
        except Misuse as error:  # what cannot be written down, or is too long
            await replies.put(message.key, failure(error))
    return True
