"""What leases in a table and session locks have in common."""

from __future__ import annotations

import itertools
from typing import Generic, TypeVar

from ...drivers.base import Driver
from . import replies
from .greeting import Greeting
from .replies import ServerError
from .statements import SessionStatements, Statements
from .url import Target
from .wire import Wire

SWEEP_EVERY = 64  # releases
SECOND = 1_000_000
LEAST = 0.1  # seconds: a look takes a moment

W = TypeVar("W", bound=Wire)
S = TypeVar("S", Statements, SessionStatements)


class AnyStore(Generic[W, S]):
    def __init__(self, target: Target, wire: W, greeting: Greeting, statements: S, driver: Driver) -> None:
        self._target = target
        self._wire: W = wire
        self._greeting = greeting
        self._sql: S = statements
        self._driver = driver
        # Begins anywhere, so that many short lives sweep as often as one long one.
        self._releases = itertools.count(int(driver.uniform(0, SWEEP_EVERY)))

    @property
    def reached(self) -> bool:
        return self._wire.reached

    def _refused(self, error: ServerError) -> Exception:
        return replies.explained(error, self._wire.where, self._target.schema)
