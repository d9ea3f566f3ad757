"""Whom a store tells that it asks for a claim again, since its connection broke: see Store."""

from __future__ import annotations

from collections.abc import Callable


def _nobody(holder: str) -> None:
    """Wants to know."""


class Repeats:
    _repeats: Callable[[str], None] = staticmethod(_nobody)

    def tell_repeats_to(self, listener: Callable[[str], None]) -> None:
        self._repeats = listener
