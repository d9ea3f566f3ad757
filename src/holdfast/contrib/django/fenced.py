"""`fenced.atomic(lease)`: as `transaction.atomic(durable=True)`, and refused if somebody with a newer token has been here."""

from __future__ import annotations

from typing import Any

from ... import fenced
from ...fenced import Row, Ticket

__all__ = ["atomic"]


def atomic(lease: Ticket, *more: Ticket, using: str = "default", row: Row | None = None) -> Any:
    """A transaction on the database `using` that begins by recording the token: `StaleToken` if a newer one was here.

    All that is read and written in it is covered. It has to be the outermost transaction (a TestCase's own does not count).
    Without `row`, the mark is in the table `holdfast_fences`, which `manage.py migrate` creates.
    """
    from django.db import connections

    return fenced.transaction(connections[using], lease, *more, row=row)
