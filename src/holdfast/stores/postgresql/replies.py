"""What a server's refusal means, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import HoldfastError, Misuse, Unavailable


class ServerError(Exception):
    """The server's refusal as it came: its SQLSTATE, and its words."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state


# Our functions or prepared statements are not there (any more): a server that was emptied, or a failover to another.
NO_FUNCTION = "42883"
MISSING = {NO_FUNCTION, "3F000", "42P01", "26000", "0A000"}
BUSY = "55P03"  # a row that somebody else keeps locked
# Two transactions stood in each other's way, and this one was undone: asking again is all it takes.
CONFLICTS = {"40001", "40P01"}
READ_ONLY = "25006"
# What no waiting cures: logins, names and rights. Whatever else there may be passes, or is somebody else's mistake.
_WRONG = ("28", "3D", "42")

# No PostgreSQL, or somebody in between, whatever else is said of TLS.
_GARBLED = (
    *("invalid response to SSL negotiation", "error response during SSL exchange", "wrong version number"),
    *("expected authentication request", "unexpected message from server"),
    *("SSL SYSCALL error", "SSL connection has been closed unexpectedly"),  # it hung up: it is restarting
)
_LOGIN = ("authentication", "password", "pg_hba.conf", 'role "', 'database "', "certificate", "SSL", "sslmode")


def explained(error: ServerError, where: str, schema: str) -> HoldfastError:
    state, said = error.state, f"PostgreSQL at {where} says: {error}"
    if state == "42501":
        return Misuse(
            f"{said}. The role needs: GRANT USAGE ON SCHEMA {schema} TO …; "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.locks TO …"
        )
    if state == READ_ONLY:
        return Unavailable(
            f"{said}. It is a replica, or set to read-only: locks need the primary. With several hosts in the URL, add "
            "target_session_attrs=read-write; during a failover this passes"
        )
    if state == BUSY:
        return Unavailable(f"{said}. Somebody keeps rows of {schema}.locks locked in a transaction of their own")
    if state == "57014":
        return Unavailable(f"{said}. If that is statement_timeout, raise it for this role, or the URL's timeout=")
    if state in CONFLICTS:
        return Unavailable(f"{said}. Other transactions were in the way several times")
    if state.startswith(_WRONG) and state not in MISSING:
        return Misuse(f"{said} (SQLSTATE {state})")
    return Unavailable(f"{said} (SQLSTATE {state})")


def not_created(error: ServerError, where: str, schema: str) -> HoldfastError:
    if error.state != "42501":
        return explained(error, where, schema)
    return Misuse(
        f"the schema {schema!r} does not exist at {where}, and this role may not create it ({error}): have it created by "
        "one who may, with the output of `holdfast migrate --sql --url …`"
    )


def not_connected(messages: Sequence[str], where: str) -> HoldfastError:
    """Of each host. libpq gives no code for a connection that failed, so its words decide whether trying again may help."""
    told = "; ".join(" ".join(message.split()) for message in messages)
    if any(part in told for part in _LOGIN) and not any(part in told for part in ("starting up", *_GARBLED)):
        hint = ""
        if "requested a cleartext password" in told or 'requirement "!password" failed' in told:
            hint = ". It would be readable on the way: add sslmode=verify-full (or allow it: require_auth=password)"
        return Misuse(f"cannot log in to PostgreSQL at {where}: {told}{hint}")
    return Unavailable(f"cannot connect to PostgreSQL at {where}: {told}")
