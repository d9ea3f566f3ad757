"""Messages to actors in other processes, as a queue carries them."""

from __future__ import annotations

import re
import time
from secrets import token_hex
from typing import Any, NamedTuple

from ...claim import printable, valid_timeout
from ...drivers.base import boot_time
from ...errors import HoldfastError, Misuse

_REPLY = re.compile("/reply/[0-9a-f]{16}")  # after the name of the queue


class Letter(NamedTuple):
    message: Any
    reply_to: str = ""  # a queue of the asker's own
    until: float = 0.0  # wall time, since it is read on another machine: past it, nobody waits any more

    @staticmethod
    def read(data: Any, queue: str) -> Letter:
        """Answers go to where a Post waits for them: whoever can leave a message in this queue gets nothing put into another."""
        try:
            letter = Letter(data["message"], data["reply_to"], float(data["until"]))
        except (TypeError, KeyError, ValueError, OverflowError):
            raise _none(data) from None
        to = letter.reply_to
        if to != "" and not (type(to) is str and to.startswith(queue) and _REPLY.fullmatch(to[len(queue) :])):
            raise _none(data)
        return letter

    def written(self) -> dict[str, Any]:
        return self._asdict()

    def withdrawn(self) -> bool:
        return bool(self.reply_to) and time.time() > self.until


def _none(data: Any) -> Misuse:
    return Misuse(f"this is no message of a Post: {data!r:.80}")


def question(message: Any, name: str, timeout: float | None) -> tuple[Letter, float]:
    """And when to give up, by the clock of deadlines."""
    wait = valid_timeout(timeout)
    if wait is None:
        raise Misuse("an ask to another process needs a timeout: that one may be gone")
    return Letter(message, f"{name}/reply/{token_hex(8)}", time.time() + wait), boot_time() + wait


def answer_of(key: str, data: Any) -> Any:
    if "error" in data:
        raise HoldfastError(f"the actor {key!r}, in another process, failed: {printable(str(data['error']))}")
    return data["answer"]


def failure(error: BaseException) -> dict[str, str]:
    return {"error": f"{type(error).__name__}: {str(error)[:500]}"}


def unanswered(key: str, letter: Letter, error: BaseException, *, begun: bool, closed: bool) -> dict[str, str] | None:
    """The actors raised it, or nobody has handled the letter; an asker knows which by the answer. None: it stays in its queue."""
    if not begun and closed:
        raise error
    if not begun and not letter.reply_to:
        _tell_refusal(key, error)
        return None
    return failure(error)


def _tell_refusal(key: str, error: BaseException) -> None:
    import logging

    logging.getLogger("holdfast").warning(
        "a message for %r stays in its queue, since nobody handles it: %s", key, printable(str(error))
    )
