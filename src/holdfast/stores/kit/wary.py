"""Whoever reads rows takes them for what was asked for. If they are something else, it is the server that is not to be believed.

Said once, around a whole store or one conversation: what goes wrong in taking an answer apart is Unavailable, by that name.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ...claim import MAX_TOKEN, Grant
from ...errors import HoldfastError, Unavailable

NONSENSE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, struct.error)
_ASKED = ("wait", "renew", "release", "watch", "inspect", "names", "close")

S = TypeVar("S", bound=type)
Method = TypeVar("Method", bound=Callable[..., Awaitable[Any]])


def wary(system: str, where: Callable[[Any], str]) -> Callable[[S], S]:
    """Of a class of stores; `where` says of one what its server is called."""

    def decorate(stores: S) -> S:
        for name in _ASKED:
            setattr(stores, name, understood(system, where)(getattr(stores, name)))
        for name, token in (("claim", _of_grant), ("evict", _past)):
            setattr(stores, name, understood(system, where, token)(getattr(stores, name)))
        return stores

    return decorate


def understood(
    system: str, where: Callable[[Any], str], token: Callable[[Any], int | None] | None = None
) -> Callable[[Method], Method]:
    """Of one method; `token` finds in its answer what has to be one."""

    def decorate(method: Method) -> Method:
        @functools.wraps(method)
        async def asked(self: Any, *given: Any, **named: Any) -> Any:
            try:
                answer = await method(self, *given, **named)
                if token is not None and (found := token(answer)) is not None and not 0 < found <= MAX_TOKEN:
                    raise ValueError(f"{found} is no token")
                return answer
            except HoldfastError:  # of which some are of these kinds too
                raise
            except NONSENSE as error:
                raise nonsense(system, where(self), error) from error

        return asked  # type: ignore[return-value]  # with the same signature

    return decorate


def nonsense(system: str, where: str, error: Exception) -> Unavailable:
    """What to raise for one of NONSENSE."""
    return Unavailable(f"what answers at {where} does not speak as {system} does: {error!r:.200}")


def _of_grant(answer: Any) -> int | None:
    return answer.token if type(answer) is Grant else None


def _past(answer: Any) -> int | None:
    return answer  # type: ignore[no-any-return]  # an int, or None: there was no such grant
