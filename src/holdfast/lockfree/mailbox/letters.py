"""Messages to actors in other processes, as a queue carries them."""

from __future__ import annotations

import time
from secrets import token_hex
from typing import Any, NamedTuple

from ...claim import valid_timeout
from ...drivers.base import boot_time
from ...errors import HoldfastError, Misuse


class Letter(NamedTuple):
    message: Any
    reply_to: str = ""  # a queue of the asker's own
    until: float = 0.0  # wall time, since it is read on another machine: past it, nobody waits any more

    @staticmethod
    def read(data: Any) -> Letter:
        try:
            return Letter(data["message"], data["reply_to"], float(data["until"]))
        except (TypeError, KeyError, ValueError):
            raise Misuse(f"this is no message of a Post: {data!r:.80}") from None

    def written(self) -> dict[str, Any]:
        return self._asdict()

    def withdrawn(self) -> bool:
        return bool(self.reply_to) and time.time() > self.until


def question(message: Any, name: str, timeout: float | None) -> tuple[Letter, float]:
    """And when to give up, by the clock of deadlines."""
    wait = valid_timeout(timeout)
    if wait is None:
        raise Misuse("an ask to another process needs a timeout: that one may be gone")
    return Letter(message, f"{name}/reply/{token_hex(8)}", time.time() + wait), boot_time() + wait


def answer_of(key: str, data: Any) -> Any:
    if "error" in data:
        raise HoldfastError(f"the actor {key!r}, in another process, failed: {data['error']}")
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
        "a message for %r stays in its queue, since nobody handles it: %s", key, error
    )
