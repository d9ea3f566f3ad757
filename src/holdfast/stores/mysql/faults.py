"""What a server's errors mean, in our words: what is the matter, and what to do."""

from __future__ import annotations

import struct

from ...errors import HoldfastError, Misuse, Unavailable

GRANTS = "GRANT EXECUTE ON `{database}`.* TO the user"
CREATE = "CREATE, INSERT, SELECT, CREATE ROUTINE, ALTER ROUTINE"

DEADLOCK = 1213
MISSING = {1146, 1305, 1370}  # no such table, no such procedure, or one that this user may not even know of
EXISTS = {1050, 1304}
INTERRUPTED = {1317, 1969, 3024}  # KILL QUERY; a statement took longer than the server allows

_REFUSED = {1044, 1045, 1698, 1130, 2054, 2061, 3118}
_FORBIDDEN = {1142, 1143, 1227, 1370, 1419}
_GONE = {1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 4031}
_FULL = {1040, 1203, 1226}
_READ_ONLY = {1290, 1792, 1836, 1874, 3100}
_STORAGE = {1021, 1030, 1114, 3, 28}


# What the drivers raise when they take apart an answer that no MySQL gives.
NONSENSE = (
    TypeError,
    LookupError,
    AttributeError,
    UnicodeError,
    AssertionError,
    SystemError,
    MemoryError,
    struct.error,
)


class ServerError(Exception):
    """An error that the server sent; the connection is good for more."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


def refusal(error: Exception, *as_well: int) -> ServerError | None:
    """What the server said; None, if it was the driver who spoke (of whose codes some say as much), or something broke."""
    code = error.args[0] if error.args and type(error.args[0]) is int else 0
    if 0 < code < 2000 or code > 2999 or code in as_well:
        return ServerError(code, str(error.args[-1]) if len(error.args) > 1 else "")
    return None


def explained(error: ServerError, where: str, database: str) -> HoldfastError:
    code, text = error.code, f"{error.code}: {error.message:.200}"
    if code in _REFUSED:
        return Misuse(f"MySQL at {where} refuses the login: put the right user:password into the URL ({text})")
    if code == 1049:
        return Misuse(f"MySQL at {where} has no such database: create it, or name another in the URL ({text})")
    if code in _FORBIDDEN:
        return Misuse(
            f"MySQL at {where} forbids what locks need ({text}). Once, somebody who has the rights {CREATE} runs the script "
            f"of `holdfast migrate --sql --url …`; from then on: "
            f"{GRANTS.format(database=database)}"
        )
    if code in (1054, 1136, 1318):
        return Misuse(f"the tables or procedures holdfast_… in MySQL at {where} are not holdfast's ({text})")
    if code in _READ_ONLY:
        return Unavailable(
            f"MySQL at {where} is read only: a replica, or a failover is under way; locks need the primary ({text})"
        )
    if code in _FULL:
        return Unavailable(
            f"MySQL at {where} takes no more connections: raise max_connections, or lower ?pool ({text})"
        )
    if code in _GONE:
        return Unavailable(f"MySQL at {where} ended the connection ({text})")
    if code in INTERRUPTED:
        return Unavailable(
            f"MySQL at {where} interrupted the statement: killed, or max_statement_time is over ({text})"
        )
    if code in (1205, DEADLOCK):
        return Unavailable(f"MySQL at {where}: the lock's row was kept busy by others for too long ({text})")
    if code == 3159:
        return Misuse(
            f"MySQL at {where} wants TLS: add ?tls=yes to the URL, and ca=… if its certificate is your own ({text})"
        )
    if code == 1665:
        return Misuse(f"MySQL at {where} logs by statement: set binlog_format to MIXED or ROW ({text})")
    if code in _STORAGE:
        return Unavailable(f"MySQL at {where} cannot write: is its disk full? ({text})")
    return Unavailable(f"MySQL at {where} answered with an error: {text}")
