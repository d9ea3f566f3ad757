"""Blocking connections to the databases in which other libraries keep their locks: by psycopg, and by PyMySQL."""

from __future__ import annotations

import contextlib
import math
from typing import Any
from urllib.parse import parse_qsl

from ...drivers.sockets import void
from ...errors import Misuse, NotInstalled, Unavailable
from ..postgresql.url import OURS
from ..postgresql.url import parse as parse_postgresql
from .errands import one_line

_SECONDS = 3  # for one conversation
_IDLE = 60.0  # seconds
_LONGEST = 2**31 - 1  # milliseconds that PostgreSQL can count
_inherited: list[Any] = []  # kept: what a driver does when they are collected is the parent's business


class PostgreSQL:
    """The URL is read as the store reads it: the same is refused, and the password is neither shown nor sent in clear text to
    whoever asks for it. `search_path`: where to look, whatever the owner of the database has set.
    """

    def __init__(self, url: str, search_path: str = "") -> None:
        try:
            import psycopg
        except ImportError as error:
            raise NotInstalled(f"PostgreSQL needs psycopg ({error}): pip install 'holdfast[postgresql]'") from None
        if found := [key for key, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True) if key in OURS]:
            raise Misuse(
                f"also=…+postgresql://…: {found[0]} is an option of the store; here, besides libpq's own, there is ?as="
            )
        self._target = parse_postgresql(url)
        self._options = f"-c statement_timeout={_SECONDS * 1000}"
        if search_path:
            self._options += f" -c search_path={search_path}"
        self.mistakes: tuple[type[Exception], ...] = (psycopg.DataError, psycopg.ProgrammingError)
        self.already_there: type[Exception] = psycopg.IntegrityError
        self.broken: type[Exception] = psycopg.OperationalError
        self.where = f"PostgreSQL at {self._target.where}"

    def connect(self, patience: float = _IDLE) -> Any:
        from ..postgresql.opening import open_psycopg
        from .postgresql import Asking

        try:
            connection: Any = open_psycopg(
                self._target,
                Asking,
                _SECONDS,
                options=self._options,
                # A server that is gone without a word is noticed in ten seconds: until then the thread waits for it.
                keepalives_idle=_SECONDS,
                keepalives_interval=_SECONDS,
                keepalives_count=2,
                tcp_user_timeout=_SECONDS * 1000,
            )
        except Unavailable as error:
            raise Unavailable(f"cannot connect to {self.where}: {one_line(error)}") from None
        try:
            self.patience(connection, patience)
        except BaseException:
            connection.close()
            raise
        return connection

    def patience(self, connection: Any, seconds: float) -> None:
        """So long without a word, and the server ends the connection: who waits for an answer that was lost hears of it then."""
        if connection.info.server_version >= 140000:
            ms = min(math.ceil(seconds * 1000), _LONGEST)
            connection.execute("SELECT set_config('idle_session_timeout', %s, false)", (str(ms),))
        else:
            connection.execute("SELECT 1")

    def disown(self, connection: Any) -> None:
        _disowned(connection, connection)


class MySQL:
    def __init__(self, url: str) -> None:
        from ..mysql.url import parse

        self._target = parse(url)
        try:
            from pymysql.err import (
                DataError,
                IntegrityError,
                OperationalError,
                ProgrammingError,
            )  # see ..mysql.connection
        except ImportError as error:
            raise NotInstalled(f"MySQL needs PyMySQL ({error}): pip install 'holdfast[mysql]'") from None
        self.mistakes: tuple[type[Exception], ...] = (DataError, ProgrammingError)
        self.already_there: type[Exception] = IntegrityError
        self.broken: type[Exception] = OperationalError
        self.where = f"MySQL at {self._target.shown()}"

    def connect(self) -> Any:
        import pymysql

        from ..mysql.connections import refused_logins, tls_context_of
        from .mysql import Asking

        target = self._target
        try:
            return Asking(
                _SECONDS,
                host=target.host,
                port=target.port,
                unix_socket=target.socket or None,
                user=target.user,
                password=target.password.plain,
                database=target.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=_SECONDS,
                client_flag=pymysql.constants.CLIENT.FOUND_ROWS,  # else a row that stays as it is counts as none
                init_command="SET SESSION sql_mode = 'STRICT_ALL_TABLES'",  # a name that is too long is refused, and not cut
                auth_plugin_map=refused_logins(target),
                **({"ssl": tls_context_of(target)} if target.tls else {"ssl_disabled": True}),
            )
        except Misuse as error:
            problem: Exception = Misuse(f"cannot connect to {self.where}: {error}")
        except Exception as error:  # also what PyMySQL makes of what no MySQL says
            problem = Unavailable(f"cannot connect to {self.where}: {one_line(error)}")
        raise problem  # here: PyMySQL's frames hold the password

    def disown(self, connection: Any) -> None:
        _disowned(connection, connection._sock)


def open_database(url: str) -> PostgreSQL | MySQL:
    return MySQL(url) if url.startswith(("mysql:", "mariadb:")) else PostgreSQL(url)


def refused(whose: str, error: Exception) -> Misuse:
    """What no repetition mends: no such table, a name that is too long."""
    return Misuse(f"the lock of {whose} cannot be taken: {one_line(error)}")


def _disowned(connection: Any, plain: Any) -> None:
    """In a forked child: its end of the socket is gone, or the server would not hear of the parent's."""
    _inherited.append(connection)
    with contextlib.suppress(Exception):  # closed, or broken
        void(plain)
