"""PyMySQL's connection, for the old lock: bounded as the store's own is, and every question has so long for its answer."""

from __future__ import annotations

from typing import Any

from ...drivers.base import boot_time
from ..mysql.connection import Bounded


class Asking(Bounded):
    def __init__(self, seconds: float, **settings: Any) -> None:
        self._seconds = seconds
        self._begin()
        super().__init__(**settings)

    def _begin(self) -> None:
        self.deadline, self.taken = boot_time() + self._seconds, 0

    def _execute_command(self, command: int, sql: str | bytes) -> None:
        self._begin()
        super()._execute_command(command, sql)  # type: ignore[misc]
