"""A blocking connection, through PyMySQL."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ...errors import Misuse, Unavailable, Unsupported
from .faults import ServerError, explained
from .pool import Line, Rows
from .url import Target

if TYPE_CHECKING:
    import ssl

try:
    import pymysql
except ImportError as error:
    raise Unsupported("MySQL stores need the package PyMySQL: pip install 'holdfast[mysql]'") from error


@lru_cache(16)
def tls_context(target: Target) -> ssl.SSLContext:
    """Made once: reading the system's certificates takes longer than all the rest of connecting."""
    import ssl

    context = ssl.create_default_context(cafile=target.ca or None)
    if target.cert:
        context.load_cert_chain(target.cert, target.cert_key or None)
    return context


def greeting(server: str, timeout: float) -> str:
    """What a new connection is told first, so that no setting of the server's surprises us."""
    settings = f"sql_mode = 'STRICT_TRANS_TABLES', innodb_lock_wait_timeout = {max(1, round(timeout))}"
    if "mariadb" in server.lower():
        settings += ", max_statement_time = 0"
    return f"SET SESSION {settings}"


async def dial(target: Target, within: float) -> Line:
    options = {"unix_socket": target.socket} if target.socket else {"host": target.host, "port": target.port}
    try:
        connection = pymysql.connect(
            **options,
            user=target.user,
            password=target.password,
            database=target.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(within, 1.0),
            read_timeout=within,
            write_timeout=target.timeout,
            **({"ssl": tls_context(target)} if target.tls else {"ssl_disabled": True}),
        )
    except pymysql.err.MySQLError as error:
        raise not_connected(error, target) from error
    except (ValueError, OSError, RuntimeError) as error:  # certificates that are not there; a login that wants TLS
        raise Misuse(f"no connection to MySQL at {target.shown()}: {error}; see the options tls, ca, cert") from error
    line = BlockingLine(connection, target)
    try:
        await line.ask(greeting(line.server, target.timeout), within)
    except BaseException as error:
        line.close()
        if isinstance(error, ServerError):
            raise explained(error, target.shown(), target.database) from error
        raise
    return line


def not_connected(error: Exception, target: Target) -> Exception:
    code = error.args[0] if error.args and type(error.args[0]) is int else 0
    if 0 < code < 2000 or code > 2999 or code in (2054, 2061):
        return explained(ServerError(code, str(error.args[-1])), target.shown(), target.database)
    return Unavailable(f"cannot connect to MySQL at {target.shown()}: {error.args[-1] if error.args else error}")


class BlockingLine:
    def __init__(self, connection: Any, target: Target) -> None:
        self._connection = connection
        self._target = target
        self._cursor = connection.cursor()
        self.server: str = connection.get_server_info()
        self.connection_id: int = connection.thread_id()
        self._busy = False
        self._turn = threading.Lock()

    async def ask(self, statement: str, within: float) -> list[Rows]:
        with self._turn:  # a session lock's line is renewed by one thread and released by another
            return self._ask(statement, within)

    def _ask(self, statement: str, within: float) -> list[Rows]:
        connection, cursor = self._connection, self._cursor
        connection._read_timeout = max(within, 0.001)
        answers: list[Rows] = []
        self._busy = True
        try:
            cursor.execute(statement)
            while True:
                if cursor.description is not None:
                    answers.append(list(cursor.fetchall()))
                if not cursor.nextset():
                    self._busy = False
                    return answers
        except (pymysql.err.MySQLError, OSError, AttributeError) as error:
            # AttributeError: another thread closed it meanwhile, and PyMySQL's socket is None.
            code = error.args[0] if error.args and type(error.args[0]) is int else 0
            if isinstance(error, pymysql.err.MySQLError) and connection.open and (0 < code < 2000 or code > 2999):
                self._busy = False
                self._roll_back()
                raise ServerError(code, str(error.args[1]) if len(error.args) > 1 else "") from None
            self.close()
            raise Unavailable(f"MySQL at {self._target.shown()} did not answer: {error!s:.200}") from error
        except BaseException:  # Ctrl-C in the middle of an answer
            self.close()
            raise

    def _roll_back(self) -> None:
        """A procedure that failed half way leaves its transaction open."""
        try:
            self._connection.rollback()
        except (pymysql.err.MySQLError, OSError, AttributeError):
            self.close()

    def alive(self) -> bool:
        plug = self._connection._sock
        if plug is None:
            return False
        poll = select.poll()
        poll.register(plug, select.POLLIN | select.POLLERR | select.POLLHUP)
        return not poll.poll(0)

    def watch(self, on_end: Callable[[], None]) -> None:
        plug = self._connection._sock

        def wait() -> None:
            if plug is not None and plug.fileno() >= 0:
                poll = select.poll()
                poll.register(plug, select.POLLRDHUP)
                poll.poll()
            on_end()

        threading.Thread(target=wait, name="holdfast-watch", daemon=True).start()

    def close(self) -> None:
        connection, plug = self._connection, self._connection._sock
        if plug is None:
            return
        try:
            if self._busy:  # by another thread, or in the middle of an answer: closing alone would not wake who reads
                plug.shutdown(socket.SHUT_RDWR)
                connection._force_close()
            else:
                connection.close()
        except (pymysql.err.MySQLError, OSError, AttributeError):
            connection._force_close()

    def disown(self) -> None:
        """Not closed: a thread of the parent's may have been reading it at the fork, and its buffer stays locked."""
        plug = self._connection._sock
        if plug is not None and plug.fileno() >= 0:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, plug.fileno())
            os.close(nothing)
