"""From the names of locks, of which there are as many as invoices, to the few that a time series may have."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..claim import printable

LIMIT = 100  # distinct names that are told apart; a series costs memory here and in whatever scrapes it
LONGEST = 80
OTHER = "(other)"

# A UUID; a word of hexadecimal digits as long as a hash; a number.
_IDS = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b[0-9a-fA-F]{16,}\b|[0-9]+")


def template(name: str) -> str:
    """`name` without the ids in it.

    >>> template("invoice:42"), template("user/3f2b8c1e-9d4a-4b7e-8f00-1a2b3c4d5e6f/avatar")
    ('invoice:{n}', 'user/{id}/avatar')
    """
    return _IDS.sub(lambda found: "{n}" if found[0].isdigit() else "{id}", name)


class Names:
    """Templates, and never more than `limit` of them: who comes later is `(other)`."""

    def __init__(self, of: Callable[[str], str] = template, limit: int = LIMIT) -> None:
        self._of = of
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        short = printable(str(self._of(name))[:LONGEST])  # a page of metrics is looked at in terminals
        if short not in self._known:
            if len(self._known) >= self._limit:
                return OTHER
            self._known.add(short)
        return short
