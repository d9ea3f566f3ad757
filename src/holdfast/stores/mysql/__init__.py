"""Locks in MySQL or MariaDB: a table of leases by default, the server's own named locks with `?mode=session`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...drivers.base import Driver
from .definitions import schema
from .url import parse

if TYPE_CHECKING:
    from .session import SessionStore
    from .store import MySqlStore

__all__ = ["open_store", "schema"]


def open_store(url: str, driver: Driver) -> MySqlStore | SessionStore:
    """`mysql://user[:password]@host[:port]/database[?option=value&…]`; `mariadb://` is the same."""
    from ...drivers.aio import Asyncio
    from .connections import Dial

    target = parse(url)
    dial: Dial
    if isinstance(driver, Asyncio):
        from .connection_aio import dial, ping_all
    else:
        from .connection import dial, ping_all
    if target.mode == "session":
        from .session import SessionStore

        return SessionStore(target, dial, ping_all, driver)
    from .store import MySqlStore

    return MySqlStore(target, dial, driver)
