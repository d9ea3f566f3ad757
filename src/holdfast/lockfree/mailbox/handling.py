"""Handling one message: make the actor if there is none, let it receive, write down what it records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...claim import valid_name
from ...databases.wire import settle
from ...errors import Conflict, Misuse
from ...events import report
from .box import Box, Record

_ATTEMPTS = 10


class _Fresh:
    """No snapshot: the actor begins as it is made."""


class Plain:
    """Actors whose state is their own, and ends with the process."""

    def __init__(self, factory: Callable[[str], Any]) -> None:
        if not callable(factory):
            raise Misuse(f"what makes an actor must be callable with a key, not {factory!r:.80}")
        self._factory = factory

    async def handle(self, box: Box, message: Any) -> Any:
        actor = box.actor
        if actor is None:
            actor = box.actor = self._factory(box.key)
        answer = actor.receive(message)
        if hasattr(answer, "__await__"):
            answer = await answer
        if type(answer) is Record:
            raise Misuse(f"the actor {box.key!r} recorded events, and there is no journal: give journal=…")
        return answer


class Journaled:
    """Actors whose state is what the events in their stream come to, wherever they are made anew.

    Two processes may have an actor for one key, at a rebalance, say: the second to append is told, catches up, and
    receives its message again. So `receive` must only decide, and change nothing: `apply` changes.
    """

    def __init__(
        self, factory: Callable[[str], Any], journal: Any, prefix: str, snapshot_every: int, turn: Any
    ) -> None:
        if not callable(factory):
            raise Misuse(f"what makes an actor must be callable with a key, not {factory!r:.80}")
        if type(snapshot_every) is not int or snapshot_every < 1:
            raise Misuse(f"snapshot_every must be an int of at least 1, not {snapshot_every!r:.80}")
        self._factory = factory
        self._journal = journal
        self._prefix = prefix
        self._every = snapshot_every
        self._turn = turn  # one conversation at a time on one connection

    async def handle(self, box: Box, message: Any) -> Any:
        stream = valid_name(self._prefix + box.key, "stream")
        for attempt in range(1, _ATTEMPTS + 1):
            if box.actor is None:
                await self._wake(box, stream)
            answer = box.actor.receive(message)
            if hasattr(answer, "__await__"):
                answer = await answer
            if type(answer) is not Record:
                return answer
            if not answer.events:
                return answer.reply
            try:
                await self._say(self._journal.append, stream, *answer.events, expected=box.version)
            except Conflict:
                box.actor = None
                if attempt == _ATTEMPTS:
                    raise
                continue
            await self._apply(box, stream, answer.events)
            return answer.reply
        raise AssertionError("the last attempt returns or raises")

    async def _wake(self, box: Box, stream: str) -> None:
        def made(state: Any) -> Any:
            if isinstance(state, _Awake):
                return state
            actor = self._factory(box.key)
            if not isinstance(state, _Fresh):
                actor.restore(state)
            return _Awake(actor)

        def apply(state: Any, event: Any) -> Any:
            awake = made(state)
            awake.actor.apply(event)
            return awake

        state, box.version = await self._say(self._journal.replay, stream, apply, _Fresh())
        box.actor = made(state).actor

    async def _apply(self, box: Box, stream: str, events: tuple[Any, ...]) -> None:
        before = box.version
        try:
            for event in events:
                box.actor.apply(event)
        except BaseException:
            box.actor = None  # what is written counts; the next one is made of it
            raise
        box.version += len(events)
        if before // self._every < box.version // self._every and hasattr(box.actor, "snapshot"):
            try:
                await self._say(self._journal.snapshot, stream, box.version, box.actor.snapshot())
            except Exception as error:  # the message is done all the same: a snapshot only makes the next start faster
                report(error, f"a snapshot of the actor {box.key!r}")

    async def _say(self, what: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The turn is a threading.Lock or an asyncio.Lock."""
        await settle(self._turn.acquire())
        try:
            return await settle(what(*args, **kwargs))
        finally:
            self._turn.release()


class _Awake:
    """An actor, as against a snapshot of one."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
