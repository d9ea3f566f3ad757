"""What a connection is, in threads (connection.py) and in asyncio (connection_aio.py) alike; how it begins, and why it cannot."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from ...drivers.base import boot_time
from ...errors import Misuse, Unavailable
from .faults import NONSENSE, ServerError, explained, refusal
from .url import Target

if TYPE_CHECKING:
    import ssl

Rows = list[tuple[Any, ...]]
PING = "DO 1"
# Asked of a connection that has been silent for a moment, and how long it is still waited for. True: no longer.
Doubted = Callable[[Any, float], Coroutine[Any, Any, bool]]


class Connection(Protocol):
    """One connection. It holds no logic: asks, and gives all the sets of rows that come back."""

    @property
    def server(self) -> str:
        """The version that the server says to be."""
        ...

    @property
    def name(self) -> str:
        """The server has a named lock, `holdfast:line:<name>`, for as long as its side of this connection lives."""
        ...

    async def ask(self, statement: str, within: float) -> list[Rows]:
        """Raises ServerError, after which the connection is good; or Unavailable, and then it is closed."""
        ...

    def alive(self) -> bool:
        """False: it is in the middle of an answer, or the server has closed it, or says so, while nobody asked anything."""
        ...

    doubted: ref[Doubted] | None  # how to find out whether it is to blame for its silence

    async def speaks(self, within: float) -> bool:
        """Does anything come within so many seconds?"""
        ...

    def watch(self, on_end: Callable[[], None]) -> None:
        """Call back, from wherever, when the server ends an idle connection."""
        ...

    def bear(self, seconds: float) -> None:
        """How long the kernel may send into the void before it ends the connection."""
        ...

    def close(self) -> None:
        """From any thread, also while another reads there: who does is told that it is closed."""
        ...

    def disown(self) -> None:
        """In a forked child: let go of our copy, without a word to the server."""
        ...


Dial = Callable[[Target, float], Awaitable[Connection]]


# ---- how it begins


@lru_cache(16)
def tls_context(target: Target) -> ssl.SSLContext:
    """Made once: reading the system's certificates takes longer than all the rest of connecting."""
    import ssl

    context = ssl.create_default_context(cafile=target.ca or None)
    if target.cert:
        context.load_cert_chain(target.cert, target.cert_key or None)
    return context


def tls_context_of(target: Target) -> ssl.SSLContext:
    try:
        return tls_context(target)
    except (ValueError, OSError) as error:  # certificates that are not there, or are none
        raise Misuse(f"no connection to MySQL at {target.shown()}: {error}; see the options tls, ca, cert") from error


class ClearText:
    """Stands in for the ways of logging in that hand the server the password itself: not on a wire that anybody can read."""

    def __init__(self, _connection: object) -> None:
        raise Misuse("it asks for the password in clear text, and the connection is not encrypted: add ?tls=yes")


def refused_logins(target: Target) -> dict[Any, Callable[[Any], Any]]:
    private = target.tls or target.socket
    return {} if private else {b"mysql_clear_password": ClearText, b"dialog": ClearText}


def greeting(server: str, name: str, timeout: float) -> str:
    """What a new connection is told first: who it is, and what no setting of the server's shall change."""
    settings = (
        f"@holdfast_line = GET_LOCK('holdfast:line:{name}', 0), SESSION sql_mode = 'STRICT_TRANS_TABLES', "
        # The drivers ask for autocommit only if the server's first word was that there is none, and MySQL says so later.
        "SESSION autocommit = 1, SESSION completion_type = 'NO_CHAIN', SESSION sql_safe_updates = 0, "
        "SESSION sql_select_limit = 18446744073709551615, SESSION sql_big_selects = 1, "
        f"SESSION innodb_lock_wait_timeout = {max(1, round(timeout))}"
    )
    if "mariadb" in server.lower():
        settings += ", SESSION max_statement_time = 0"
    return f"SET {settings}"


async def greet(connection: Connection, target: Target, deadline: float) -> None:
    """The first words, after which it is as we need it; or it is closed."""
    try:
        await connection.ask(greeting(connection.server, connection.name, target.timeout), deadline - boot_time())
    except BaseException as error:
        connection.close()
        if isinstance(error, ServerError):
            raise explained(error, target.shown(), target.database) from error
        raise


# ---- why it cannot


@contextlib.contextmanager
def connecting(target: Target, kind: type[Exception]) -> Iterator[None]:
    """What goes wrong there, in words; `kind` is what the driver raises."""
    try:
        yield
    except kind as error:
        raise not_connected(error, target) from error
    except Misuse as error:
        raise Misuse(f"no login to MySQL at {target.shown()}: {error}") from None
    except OSError as error:
        raise not_reached(error, target) from error
    except NONSENSE as error:
        raise Unavailable(f"what answers at {target.shown()} does not speak as MySQL does: {error!r:.200}") from error
    except (ValueError, RuntimeError) as error:  # a login that wants TLS
        if "socket instance" in str(error):  # asyncmy, of one that was cut off as soon as it was there; on uvloop
            raise Unavailable(f"cannot connect to MySQL at {target.shown()}: the server closed it") from error
        raise Misuse(f"no connection to MySQL at {target.shown()}: {error}; see the options tls, ca, cert") from error


def not_reached(error: OSError, target: Target) -> Exception:
    if type(error).__name__ == "SSLCertVerificationError":
        return Misuse(f"no connection to MySQL at {target.shown()}: {error}; see the options tls, ca, cert")
    return Unavailable(f"cannot connect to MySQL at {target.shown()}: {error!s:.200}")


def not_connected(error: Exception, target: Target) -> Exception:
    said = refusal(error, 2054, 2061)
    if said is not None:
        return explained(said, target.shown(), target.database)
    cause = getattr(error, "original_exception", None) or error.__cause__
    if isinstance(cause, OSError):
        return not_reached(cause, target)
    return Unavailable(f"cannot connect to MySQL at {target.shown()}: {error.args[-1] if error.args else error}")
