"""psycopg's own connections, for who asks few and plain questions: the doctor, the old lock of `also=`, triggers, registers.

Not by psycopg.connect(): that has libpq do whatever a server says in the login (see salted.py), and looks at no clock while there
is something to read.
"""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from ...drivers.base import boot_time
from ...errors import Unavailable
from .connection import BlockingConnection
from .url import Target

Kind = TypeVar("Kind", bound=psycopg.Connection[Any])


def open_psycopg(
    target: Target, kind: type[Kind], seconds: float, *, autocommit: bool = True, **settings: str | int
) -> Kind:
    """To the first host that lets us in, each in so many seconds. `settings` are libpq's, over and above the URL's."""
    told: list[str] = []
    for host in target.of_each_host():
        try:
            connection = kind(_logged_in(host, seconds, settings))
        except (psycopg.Error, Unavailable) as error:
            told.append(" ".join(str(error).split()))
            continue
        connection.prepare_threshold = None
        connection.autocommit = autocommit
        return connection
    raise Unavailable("; ".join(told))


def _logged_in(host: Target, seconds: float, settings: dict[str, str | int]) -> pq.abc.PGconn:
    deadline = boot_time() + seconds
    pgconn = pq.PGconn.connect_start(make_conninfo(host.conninfo.plain, **settings).encode())
    made = BlockingConnection(pgconn, host.where)
    try:
        while (what := made.step()) is not None:
            if boot_time() >= deadline or not made.is_ready(what, deadline):
                raise host.late(seconds)
    except BaseException:
        made.close()
        raise
    return pgconn
