"""`holdfast migrate --acl`: the least that a user of the store needs, in the words of the store's own tools.

Printed, not applied: whoever may grant is another than whoever holds locks. No password of the URL is in it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from ..connecting import BUILT_IN

DEFAULT_USER = "locker"


def _redis(url: str) -> str:
    from ..stores.redis.replies import rights
    from ..stores.redis.url import parse

    target = parse(url)
    lines = [
        "# For redis-cli, on every node. SCAN, for names() and `holdfast ls`, shows the names of all keys of the server:",
        "# leave out +scan where neighbours must not see each other's.",
        f"ACL SETUSER {_redis_word(target.username)} reset on >PASSWORD {rights(target)}",
    ]
    if target.kind == "sentinel":
        who = _redis_word(target.sentinel_username)
        lines += [
            "# And on every Sentinel:",
            f"ACL SETUSER {who} reset on >PASSWORD +auth +ping +sentinel|get-master-addr-by-name",
        ]
    return "\n".join(lines)


def _redis_word(name: str) -> str:
    """redis-cli takes quoted words with escapes, as in C."""
    name = name or DEFAULT_USER
    return name if name.isalnum() else '"' + "".join(f"\\x{byte:02x}" for byte in name.encode()) + '"'


def _etcd(url: str) -> str:
    from ..stores.etcd.url import parse

    target = parse(url)
    user, role = shlex.quote(target.username or DEFAULT_USER), shlex.quote(f"holdfast-{target.prefix}")
    return (
        f"etcdctl role add {role}\n"
        f"etcdctl role grant-permission {role} --prefix=true readwrite {shlex.quote(target.prefix + '/')}\n"
        f"etcdctl user add {user}   # asks for the password\n"
        f"etcdctl user grant-role {user} {role}\n"
        "# Nobody is held to it until: etcdctl auth enable"
    )


def _zookeeper(url: str) -> str:
    from ..stores.zookeeper.url import parse

    target = parse(url)
    if target.cert and not target.username:
        who = "# Over TLS with the client's certificate, of a server with ssl.clientAuth=need."
        login, acl = (
            [],
            "x509:SUBJECT:cdrwa   # the certificate's subject, as in: openssl x509 -noout -subject -nameopt RFC2253",
        )
    else:
        who, login, acl = (
            "# For zkCli.sh.",
            [f"addauth digest {target.username or DEFAULT_USER}:PASSWORD"],
            "auth::cdrwa",
        )
    parts = target.root.strip("/").split("/")
    paths = ["/" + "/".join(parts[: at + 1]) for at in range(len(parts))]
    above = [f"create {path}" for path in paths[:-1]]
    first = "# Without this the first to come creates the node, as theirs."
    return "\n".join((who, first, *login, *above, f"create {target.root}", f"setAcl {target.root} {acl}"))


def _consul(url: str) -> str:
    from ..stores.consul.url import parse

    target = parse(url)
    name = f"holdfast-{target.prefix.replace('/', '-')}"
    # Sessions belong to the node of an agent; a policy names nodes by their beginning.
    rules = (
        f'key_prefix "{target.prefix}/" {{ policy = "write" }} session_prefix "{target.node}" {{ policy = "write" }}'
    )
    note = "" if target.node else "# Which nodes' sessions it may end is narrowed by ?node=… in the URL.\n"
    return (
        f"{note}consul acl policy create -name {shlex.quote(name)} -rules {shlex.quote(rules)}\n"
        f"consul acl token create -policy-name {shlex.quote(name)}"
    )


def _postgresql(url: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    from ..stores.postgresql.url import parse

    target = parse(url)
    role = _identifier(str(conninfo_to_dict(target.conninfo.plain).get("user") or DEFAULT_USER))
    schema = _identifier(target.schema)
    lines = ["-- After `holdfast migrate --sql`, by the role that ran it. Add create=no to the application's URL."]
    lines.append(f"GRANT USAGE ON SCHEMA {schema} TO {role};")
    lines.append(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.locks TO {role};")
    return "\n".join(lines)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _mysql(url: str) -> str:
    from ..stores.mysql.definitions import procedures
    from ..stores.mysql.url import parse

    target = parse(url)
    database = "`" + target.database.replace("`", "``") + "`"
    user = "'" + (target.user or DEFAULT_USER).replace("\\", "\\\\").replace("'", "''") + "'@'%'"
    lines = ["-- After `holdfast migrate --sql`. No table may be touched: the procedures run as their definer."]
    return "\n".join(
        [*lines, *(f"GRANT EXECUTE ON PROCEDURE {database}.{name} TO {user};" for name, _ in procedures())]
    )


_BY_STORE: dict[str, Callable[[str], str]] = {
    "redis": _redis,
    "redlock": _redis,
    "etcd": _etcd,
    "zookeeper": _zookeeper,
    "consul": _consul,
    "postgresql": _postgresql,
    "mysql": _mysql,
}


def of(url: str) -> str | None:
    """None: a store without users."""
    store = BUILT_IN.get(url.partition("://")[0], "").rpartition(".")[2]
    return _BY_STORE[store](url) + "\n" if store in _BY_STORE else None
