"""The oldest and the newest of each server that can be had here pass what a version could make a difference to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pymysql
import pytest

from holdfast.testing import servers
from holdfast.testing.conformance import World
from holdfast.testing.conformance.claims import Claims
from holdfast.testing.conformance.deaths import Deaths
from holdfast.testing.conformance.eviction import Evictions
from holdfast.testing.conformance.exclusion import Exclusion
from holdfast.testing.conformance.order import Order
from holdfast.testing.conformance.tokens import Tokens
from holdfast.testing.servers import wire

pytestmark = pytest.mark.server


def redis_version(server: Any) -> str:
    info = server.execute("INFO", "server").decode()
    return re.search(r"(?:valkey|redis)_version:(\S+)", info[info.find("valkey_version") if "valkey" in info else 0 :])[
        1
    ]  # type: ignore[index]


def sql_version(server: Any) -> str:
    with closing(pymysql.connect(host=server.host, port=server.port, user="root")) as db, db.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        return str(cursor.fetchall()[0][0]).partition("-")[0]


def mysql_url(server: Any) -> str:
    """One database for all tests, made empty."""
    with closing(pymysql.connect(host=server.host, port=server.port, user="root", autocommit=True)) as db:
        cursor = db.cursor()
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'holdfast'")
        if "holdfast_claims" in {row[0] for row in cursor.fetchall()}:
            cursor.execute("DELETE FROM holdfast.holdfast_claims WHERE name <> ''")
            cursor.execute("DELETE FROM holdfast.holdfast_audit")
    return str(server.url)


Version = Callable[[Any], str]
VERSIONS: dict[str, Version] = {
    "redis": redis_version,
    "redis8": redis_version,
    "valkey": redis_version,
    "etcd": lambda server: str(wire.http_json(server.address, "POST", "/v3/maintenance/status", {})["version"]),
    "zookeeper": lambda server: wire.zookeeper(server.address, "srvr").split()[2].partition("-")[0].rstrip(","),
    "consul": lambda server: str(wire.http_json(server.address, "GET", "/v1/agent/self")["Config"]["Version"]),
    "postgresql": lambda server: server.query("SHOW server_version")[0][0].split()[0],
    "mariadb": sql_version,
    "mysql": sql_version,
}
VERSIONS |= {f"{kind}-new": VERSIONS[kind] for kind in ("etcd", "zookeeper", "postgresql")}

URLS: dict[str, Callable[[Any, str], str]] = {
    "redis": lambda server, space: f"{server.url}?prefix={space}",
    "etcd": lambda server, space: f"{server.url}/{space}",
    "zookeeper": lambda server, space: f"{server.url}/{space}",
    "consul": lambda server, space: f"{server.url}/{space}?min_ttl=0.1",
    "postgresql": lambda server, space: f"{server.url}?schema=s{space}",
    "mysql": lambda server, space: mysql_url(server),
}
SCHEMES = {"redis8": "redis", "valkey": "redis", "mariadb": "mysql"}
EXTRA = {"consul": ("-hcl", 'session_ttl_min = "100ms"')}  # tests do not wait for the ten seconds that it wants
SLACK = {"consul": 4.0}  # it takes up to 9/4 of the ttl to end a session


@pytest.fixture(scope="module", params=[pytest.param(kind, marks=pytest.mark.xdist_group(kind)) for kind in VERSIONS])
def server(request: pytest.FixtureRequest) -> Iterator[Any]:
    with servers.start(request.param, *EXTRA.get(request.param, ())) as started:
        yield started


@pytest.fixture(autouse=True)
def told(server: Any, record_property: Callable[[str, object], None]) -> None:
    """For the table."""
    record_property("server", f"{server.kind} {VERSIONS[server.kind](server)}")


class TestVersion(Exclusion, Order, Tokens, Claims, Evictions, Deaths):
    @pytest.fixture
    def url(self, server: Any) -> str:
        kind = server.kind.removesuffix("-new")
        return URLS[SCHEMES.get(kind, kind)](server, uuid4().hex[:8])

    @pytest.fixture(params=["threads", "asyncio"])
    def world(self, request: pytest.FixtureRequest, url: str, server: Any) -> Iterator[World]:
        stage = World(url, request.param, 1.0, SLACK.get(server.kind, 2.0))
        yield stage
        stage.end()
