"""PostgreSQL URLs: our own options are taken out, everything else is libpq's. A password is never shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from ...errors import Misuse, Unavailable
from ...secret import Secret
from ..kit.url import Options, either, one_of, relaxed, seconds, whole

_KNOWS_REQUIRE_AUTH = 160000  # libpq
_TLS = ("sslrootcert", "sslcert", "sslkey", "sslcrl", "sslcrldir", "sslcertmode")


class Target(NamedTuple):
    """Where to connect, and how. `conninfo` holds the password: it is for libpq only."""

    conninfo: Secret
    where: str  # fit to be shown
    hosts: tuple[str, ...]
    has_address: bool  # the URL says hostaddr itself
    apart: tuple[str, ...] = ()  # what to add to `conninfo` for each of several hosts alone
    mode: str = "lease"  # or session
    schema: str = "holdfast"
    relaxed: bool = False
    timeout: float = 3.0  # for one conversation
    pool: int = 8  # connections for threads, besides one for renewals and one ear
    retention: float = 86400.0  # how long an unused name's row is kept
    bell: bool = True
    create: bool = True

    def __repr__(self) -> str:
        return f"<{self.where}>"

    def late(self, share: float) -> Unavailable:
        return Unavailable(f"{self.hosts[0] or 'localhost'} did not answer within {max(0.0, share):.3g} s")

    def of_each_host(self) -> list[Target]:
        """To be tried in this order, so that each has its share of the time: left to libpq, a silent one would use up all."""
        hosts = zip(self.hosts, self.apart, strict=True) if self.apart else ()
        return [
            self._replace(conninfo=Secret(self.conninfo.plain + one), hosts=(host,), apart=()) for host, one in hosts
        ] or [self]


def _schema(value: str, what: str) -> str:
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,39}", value):
        raise Misuse(f"schema={value!r}: up to 40 of a-z, 0-9 and _, and no digit first")
    return value


OURS: Options = {
    "mode": ("mode", one_of("lease", "session")),
    "schema": ("schema", _schema),
    "durability": ("relaxed", relaxed),
    "timeout": ("timeout", seconds(0.05, 600)),
    "pool": ("pool", whole(1, 1000)),
    "retention": ("retention", seconds(0.1, 365 * 86400)),
    "bell": ("bell", either("auto", "no")),
    "create": ("create", either("yes", "no")),
}


def parse(url: str) -> Target:
    """`postgresql://[user[:password]@][host][:port][,host…][/database][?option=value&…]`."""
    base, _, query = url.partition("?")
    if base.count("@") > 1:  # libpq ends the password at the first, and would call the rest of it a host
        raise Misuse("a PostgreSQL URL has one @, before the host: write another, in a user or a password, as %40")
    login, at, _ = base.partition("://")[2].partition("@")
    # libpq takes what stands before it for the host, and the rest of the password for the database.
    if at and "/" in login:
        raise Misuse(
            "a PostgreSQL URL has no / before its @: in a user or a password write / as %2F, in a database @ as %40"
        )
    own: dict[str, Any] = {}
    passed: list[tuple[str, str]] = []
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in OURS:
            passed.append((key, value))
            continue
        field, read = OURS[key]
        if field in own:
            raise Misuse(f"the option {key} is given twice")
        own[field] = read(value, key)
    conninfo = base + ("?" + urlencode(passed, quote_via=quote) if passed else "")
    return _resolved(conninfo, {key for key, _ in passed})._replace(**own)


def _resolved(conninfo: str, options: set[str]) -> Target:
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    said, why = None, ""
    try:
        said = conninfo_to_dict(conninfo)
    except ProgrammingError as error:
        why = _plain(str(error), options)
    except UnicodeDecodeError:
        why = "something in it, written as %XX, is not UTF-8"
    if said is None:  # raised here, and not above: libpq's own words are not to be found in its context
        raise Misuse(
            f"libpq does not understand the PostgreSQL URL ({why}). Besides libpq's own options it takes "
            f"{', '.join(OURS)}; write special characters of a password as %XX"
        )
    hosts = tuple(str(said.get("host") or "").split(","))
    ports = str(said.get("port") or "").split(",")
    shown = ",".join(
        (host or "localhost") + (f":{ports[min(at, len(ports) - 1)]}" if ports != [""] else "")
        for at, host in enumerate(hosts)
    )
    where = f"{shown}/{said.get('dbname') or said.get('user') or ''}"
    # A dead peer is noticed without our asking; libpq's application_name tells a DBA who this is.
    usual = {
        "application_name": "holdfast",
        "keepalives_idle": "10",
        "keepalives_interval": "5",
        "keepalives_count": "3",
        "tcp_user_timeout": "5000",  # what was sent is not confirmed for so long, by the kernel's count: it is over
        "client_encoding": "UTF8",
    }
    _check_tls(said)
    if _is_open(said, hosts) and not _default("require_auth"):  # which may ask for more than this
        # A server, or whoever is in its place, that asks for the password itself is not given it for anybody to read.
        usual["require_auth"] = "!password"
    more = {key: value for key, value in usual.items() if key not in said}
    joint = "&" if "?" in conninfo else "?"
    whole = conninfo + joint + urlencode(more, quote_via=quote)
    return Target(Secret(whole), where, hosts, "hostaddr" in said, _apart(said, len(hosts)))


def _apart(said: Mapping[str, object], hosts: int) -> tuple[str, ...]:
    if hosts == 1 or said.get("load_balance_hosts") == "random" or said.get("target_session_attrs") == "prefer-standby":
        return ()  # of which libpq knows more
    lists = {key: str(said[key]).split(",") for key in ("host", "hostaddr", "port") if said.get(key)}
    return tuple(
        "&" + urlencode({key: some[min(at, len(some) - 1)] for key, some in lists.items()}, quote_via=quote)
        for at in range(hosts)
    )


def _check_tls(said: dict[str, Any]) -> None:
    if said.get("sslmode") == "disable" and (found := [key for key in _TLS if key in said]):
        raise Misuse(f"{', '.join(found)}: for TLS, which sslmode=disable switches off: leave out the one or the other")


def _is_open(said: dict[str, Any], hosts: tuple[str, ...]) -> bool:
    """May the password travel where others can read it? `prefer`, libpq's default, makes do without TLS."""
    from psycopg import pq

    mode = said.get("sslmode") or _default("sslmode") or "prefer"
    local = all(host.startswith(("/", "@")) for host in hosts)
    return mode in ("disable", "allow", "prefer") and not local and pq.version() >= _KNOWS_REQUIRE_AUTH


def _default(option: str) -> str:
    """What libpq takes if the URL does not say: from the environment (PGREQUIREAUTH), or the service that PGSERVICE names."""
    from psycopg import pq

    found = (one.val for one in pq.Conninfo.get_defaults() if one.keyword == option.encode())
    return (next(found, None) or b"").decode("utf-8", "replace")


def _plain(text: str, options: set[str]) -> str:
    """libpq quotes what it stumbled over, which may be a piece of the password; only the name of an option is let through."""
    return re.sub(r'"(.*)"', lambda it: it[0] if it[1] in options else "…", text.strip(), flags=re.DOTALL)
