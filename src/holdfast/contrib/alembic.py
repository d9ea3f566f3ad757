"""Alembic: replicas that start at once migrate one after the other. One line in env.py; see docs/alembic.md.

with in_turn(connection), context.begin_transaction():
    context.run_migrations()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import Misuse
from ..secret import Secret
from ..sync import Lease, connect
from . import addresses

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine

__all__ = ["in_turn", "url_of"]


@contextlib.contextmanager
def in_turn(
    where: Connection | Engine | str | None = None, *, name: str = "alembic", timeout: float | None = None
) -> Iterator[Lease]:
    """Wait for one's turn, and migrate: nobody else does meanwhile. Raises NotAcquired after `timeout` seconds (None: waits).

    `where`: the connection that is migrated, and then the lock is in that database, over a connection of its own; or the URL
    of any store; or nothing, and then it is what HOLDFAST_URL says. Of a connection its URL counts: what `connect_args` say, of
    TLS for instance, is not seen, and then give the URL of a store.
    """
    url = where if where is None or isinstance(where, str) else url_of(where.engine.url)
    with connect(url) as locks, locks.lock(name, timeout=timeout) as lease:
        yield lease


def url_of(url: URL) -> str:
    """The store in the database that SQLAlchemy's URL names."""
    backend = url.get_backend_name()
    if backend == "sqlite":
        return Secret(addresses.beside(url.database or ""))
    if backend in ("postgresql", "mysql", "mariadb"):
        query = {key: str(value) for key, value in url.query.items()}
        libpq = {key: query[key] for key in addresses.OF_LIBPQ if key in query}
        if "ssl" in query:  # as asyncpg has it
            libpq.setdefault("sslmode", "require" if query["ssl"].lower() == "true" else query["ssl"])
        options = libpq if backend == "postgresql" else addresses.tls_of_mysql(query)
        host = url.host or query.get("host" if backend == "postgresql" else "unix_socket")
        scheme = "postgresql" if backend == "postgresql" else "mysql"
        return Secret(
            addresses.networked(
                scheme,
                name=url.database,
                user=url.username,
                password=url.password,
                host=host,
                port=url.port,
                options=options,
            )
        )
    raise Misuse(f"no store can be made of a database of the kind {backend!r}: give in_turn() the URL of one")
