"""`holdfast migrate --acl`: the least that a user of the store needs, in the words of the store's own tools.

Printed, not applied: whoever may grant is another than whoever holds locks. No password of the URL is in it.
"""

from __future__ import annotations

import json
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
    login = "  # asks for the password"
    if target.cert and not target.username:
        login = " --no-password  # the name is the CN of the client's certificate; etcd runs with --client-cert-auth"
    return (
        f"etcdctl role add {role}\n"
        f"etcdctl role grant-permission {role} --prefix=true readwrite {shlex.quote(target.prefix + '/')}\n"
        f"etcdctl user add {user}{login}\n"
        f"etcdctl user grant-role {user} {role}\n"
        "# Nobody is held to it until: etcdctl auth enable"
    )


def _zookeeper(url: str) -> str:
    from ..stores.zookeeper.url import parse

    target = parse(url)
    who, login = "# For zkCli.sh.", []
    if target.auth == "sasl":
        acl = f"sasl:{target.username}:cdrwa"
    elif target.cert and not target.username:
        who = (
            "# For zkCli.sh, of a server with ssl.clientAuth=need.\n"
            "# SUBJECT: as printed by `openssl x509 -noout -subject -nameopt RFC2253 -in CERT`, after subject="
        )
        acl = "x509:SUBJECT:cdrwa"
    else:
        login = [f"addauth digest {target.username or DEFAULT_USER}:PASSWORD"]
        acl = "auth::cdrwa"
    parts = target.root.strip("/").split("/")
    paths = ["/" + "/".join(parts[: at + 1]) for at in range(len(parts))]
    above = [f"create {path}" for path in paths[:-1]]
    first = "# Without this the first to come creates the node, as theirs."
    if above:
        first += " Whoever may write in those above can put nodes beside it."
    return "\n".join((who, first, *login, *above, f"create {target.root}", f"setAcl {target.root} {acl}"))


def _consul(url: str) -> str:
    from ..stores.consul.url import parse

    target = parse(url)
    name = f"holdfast-{target.prefix.replace('/', '-')}"
    node = target.node or name
    rules = f'key_prefix "{target.prefix}/" {{ policy = "write" }} session "{node}" {{ policy = "write" }}'
    registered = json.dumps({"Node": node, "Address": "127.0.0.1"})
    lines = [
        f"consul acl policy create -name {shlex.quote(name)} -rules {shlex.quote(rules)}",
        f"consul acl token create -policy-name {shlex.quote(name)}",
        "# A node that is no machine, just a name for the sessions to belong to: whoever may write sessions of an agent's",
        "# own node may end those of all who ask through that agent.",
        f"curl -X PUT -H 'X-Consul-Token: ADMIN' -d {shlex.quote(registered)} http://localhost:8500/v1/catalog/register",
    ]
    if not target.node:
        lines.append(f"# Add node={node} to the application's URL.")
    return "\n".join(lines)


def _postgresql(url: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    from ..stores.postgresql.url import parse

    target = parse(url)
    login = conninfo_to_dict(target.conninfo.plain)
    role, schema = _identifier(str(login.get("user") or DEFAULT_USER)), _identifier(target.schema)
    lines = ["-- After `holdfast migrate --sql`, by the role that ran it. Add create=no to the application's URL."]
    if login.get("dbname"):
        lines.append(f"GRANT CONNECT ON DATABASE {_identifier(str(login['dbname']))} TO {role};")
    lines += [
        f"GRANT USAGE ON SCHEMA {schema} TO {role};",
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {role};",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.locks TO {role};",
    ]
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
    called = (name for name, _ in procedures() if name not in _CALLED_BY_OTHERS)
    of_mode = (name for name in called if name.startswith("holdfast_session_") == (target.mode == "session"))
    return "\n".join([*lines, *(f"GRANT EXECUTE ON PROCEDURE {database}.{name} TO {user};" for name in of_mode)])


# Parts of the other procedures, which call them as their definer.
_CALLED_BY_OTHERS = ("holdfast_heir_1", "holdfast_ring_1", "holdfast_sweep_1")

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
