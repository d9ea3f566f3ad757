"""From what the user gives to a ledger: a connection, a client of Redis, or a function that opens one for a `with`."""

from __future__ import annotations

from typing import Any

from ...databases.connections import is_connection
from ...databases.redis import is_client
from ...databases.wire import settle
from ...drivers.base import Driver
from ...errors import Misuse
from .ledger import Close, Ledger, Open, nothing_to_close
from .redis import RedisLedger
from .sql import SqlLedger


def ledger_for(driver: Driver, world: str, store: Any) -> Ledger:
    return RedisLedger(store, world) if is_client(store) else SqlLedger(driver, world, store)


def opener(driver: Driver, world: str, store: Any) -> Open:
    if is_client(store) or is_connection(store) or not callable(store):
        ledger_for(driver, world, store)  # refuses at once what is nothing of the kind

        async def same() -> tuple[Ledger, Close]:
            return ledger_for(driver, world, store), nothing_to_close

        return same

    async def opened() -> tuple[Ledger, Close]:
        context = store()
        asynchronous = hasattr(context, "__aenter__")
        if not asynchronous and not hasattr(context, "__enter__"):
            raise Misuse(
                f"the function that opens a connection must give something for a `with`, not {type(context).__name__}: "
                "pool.connection, engine.connect, or lambda: contextlib.closing(…)"
            )
        connection = await settle(context.__aenter__() if asynchronous else context.__enter__())

        async def close(error: BaseException | None) -> None:
            leave = context.__aexit__ if asynchronous else context.__exit__
            if error is None:
                await settle(leave(None, None, None))
            else:
                await settle(leave(type(error), error, error.__traceback__))

        try:
            return ledger_for(driver, world, connection), close
        except BaseException as error:
            await close(error)
            raise

    return opened
