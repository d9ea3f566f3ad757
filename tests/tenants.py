"""Users who have what `holdfast migrate --acl` prints for their URL, and nothing besides: whole suites run as them.

Each function does what an administrator does with what is printed, and returns the URL that the application then has.
"""

from __future__ import annotations

import http.client
import json
import shlex
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pymysql
from kazoo.client import KazooClient
from kazoo.security import READ_ACL_UNSAFE, make_acl, make_digest_acl

from holdfast.cli import grants
from holdfast.stores.mysql.definitions import schema as mysql_schema
from holdfast.stores.postgresql import schema as postgresql_schema
from holdfast.testing.servers import wire
from holdfast.testing.servers.base import START_SECONDS, poll
from holdfast.testing.servers.consul import Consul
from holdfast.testing.servers.etcd import Etcd
from holdfast.testing.servers.mariadb import MariaDB
from holdfast.testing.servers.postgresql import PostgreSQL
from holdfast.testing.servers.redis import Redis

PASSWORD = "pw"


def printed(url: str) -> Iterator[list[str]]:
    """The words of every command; what is a comment there is none here."""
    for line in (grants.of(url) or "").splitlines():
        if words := shlex.split(line, comments=True):
            yield words


# ---- Redis


def on_redis(nodes: Sequence[Redis], url: str, sentinels: Sequence[Redis] = ()) -> str:
    commands = [
        shlex.split(line.replace(">PASSWORD", f">{PASSWORD}"))  # a # is no comment in the middle of an ACL
        for line in (grants.of(url) or "").splitlines()
        if line.startswith("ACL ")
    ]
    for servers, words in zip((nodes, sentinels), commands, strict=False):
        for server in servers:
            assert server.execute(*words) == b"OK"
    return url


# ---- etcd


def guard_etcd(members: Sequence[Etcd]) -> None:
    """From now on everybody has to log in."""
    ask_etcd(members[0], "/v3/auth/user/add", name="root", password=PASSWORD)
    ask_etcd(members[0], "/v3/auth/role/add", name="root")
    ask_etcd(members[0], "/v3/auth/user/grant", user="root", role="root")
    ask_etcd(members[0], "/v3/auth/enable")


def on_etcd(member: Etcd, url: str) -> str:
    """Before the cluster is guarded."""
    for words in printed(url):
        match words[1:]:
            case ["role", "add", role]:
                ask_etcd(member, "/v3/auth/role/add", name=role)
            case ["role", "grant-permission", role, "--prefix=true", "readwrite", prefix]:
                key = prefix.encode()
                end = key[:-1] + bytes([key[-1] + 1])
                allowed = {"permType": "READWRITE", "key": text64(key), "range_end": text64(end)}
                ask_etcd(member, "/v3/auth/role/grant", name=role, perm=allowed)
            case ["user", "add", user]:
                ask_etcd(member, "/v3/auth/user/add", name=user, password=PASSWORD)
            case ["user", "grant-role", user, role]:
                ask_etcd(member, "/v3/auth/user/grant", user=user, role=role)
            case _:
                raise AssertionError(f"what is {words}?")
    return url


def ask_etcd(member: Etcd, path: str, login: str = "", /, **body: Any) -> Any:
    """`login`: what /v3/auth/authenticate gave."""
    return wire.http_json(member.address, "POST", path, body, login=login)


def text64(data: bytes) -> str:
    return b64encode(data).decode()


# ---- Consul

ROOT = "10000000-0000-0000-0000-000000000000"
# The harness, which has no token, asks as root; whoever has a token is held to it.
GUARDED_CONSUL = (
    f'acl {{ enabled = true, default_policy = "deny", tokens {{ master = "{ROOT}", default = "{ROOT}" }} }}'
)


def on_consul(server: Consul, url: str) -> str:
    policy, token, register = printed(url)
    assert policy[1:4] == ["acl", "policy", "create"]
    # Servers that have just started know policies only when all have told each other that they do.
    poll(
        lambda: isinstance(ask_consul(server, ROOT, "/v1/acl/policy", {"Name": policy[5], "Rules": policy[7]}), dict),
        START_SECONDS,
        "Consul to take a policy",
    )
    assert token[1:4] == ["acl", "token", "create"]
    made = ask_consul(server, ROOT, "/v1/acl/token", {"Policies": [{"Name": token[5]}]})
    node = json.loads(register[register.index("-d") + 1])
    ask_consul(server, ROOT, "/v1/catalog/register", node)
    start, _, rest = url.partition("://")
    assert f"?node={node['Node']}" in url, "the URL that rights are asked for says whose the sessions are"
    return f"{start}://:{made['SecretID']}@{rest}"


def ask_consul(server: Consul, token: str, path: str, body: Any = None, method: str = "PUT") -> Any:
    """What it answers; of a refusal its status."""
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    connection.request(method, path, None if body is None else json.dumps(body), {"X-Consul-Token": token})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return json.loads(content) if response.status == 200 else response.status


# ---- PostgreSQL


def on_postgresql(server: PostgreSQL, url: str, role: str) -> str:
    """On a server that has taken from everybody what everybody may do by default."""
    server.query(f"CREATE ROLE {role} LOGIN")
    server.query("REVOKE ALL ON DATABASE postgres FROM PUBLIC")
    server.query("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    server.query("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    server.query(postgresql_schema(url))
    server.query(grants.of(url) or "")
    return url


# ---- MySQL


def on_mysql(server: MariaDB, url: str, user: str) -> str:
    with mysql_root(server) as root, root.cursor() as cursor:
        for statement in _statements(mysql_schema(url)):
            cursor.execute(statement)
        cursor.execute(f"CREATE USER {user}@'%' IDENTIFIED BY '{PASSWORD}'")
        for statement in _statements(grants.of(url) or ""):
            cursor.execute(statement)
    return url


def mysql_root(server: MariaDB) -> pymysql.Connection[Any]:
    return pymysql.connect(host="127.0.0.1", port=server.port, user="root", database="holdfast", autocommit=True)


def _statements(script: str) -> Iterator[str]:
    """As the server's own client takes a script apart."""
    delimiter, statement = ";", ""
    for line in script.splitlines():
        if line.startswith("DELIMITER "):
            delimiter = line.split()[1]
            continue
        statement += line + "\n"
        if statement.rstrip().endswith(delimiter):
            yield statement.rstrip().removesuffix(delimiter)
            statement = ""


# ---- ZooKeeper


def on_zookeeper(hosts: str, url: str, subject: str = "") -> str:
    """`subject`: of the certificate, if that is the login. Nobody may create anything beside the node."""
    above = ["/"]
    with zookeeper_client(hosts, f"admin:{PASSWORD}") as admin:
        for words in printed(url):
            match words:
                case ["addauth", "digest", login]:
                    admin.add_auth("digest", login.replace("PASSWORD", PASSWORD))
                case ["create", path]:
                    admin.ensure_path(path)
                    above.append(path)
                case ["setAcl", path, acl]:
                    scheme, _, rest = acl.partition(":")
                    who, _, rights = rest.rpartition(":")
                    assert rights == "cdrwa"
                    admin.set_acls(path, [make_acl(scheme, who.replace("SUBJECT", subject), all=True)])
                case _:
                    raise AssertionError(f"what is {words}?")
        for path in above[:-1]:
            admin.set_acls(path, [make_digest_acl("admin", PASSWORD, all=True), *READ_ACL_UNSAFE])
    return url


@contextmanager
def zookeeper_client(hosts: str, login: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts, timeout=10, auth_data=[("digest", login)])
    client.start(timeout=20)
    try:
        yield client
    finally:
        client.stop()
        client.close()
