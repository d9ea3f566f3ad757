"""Least privilege, as docs/consul.md describes it: two tenants of one Consul, and neither can touch the other's locks."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast.drivers.base import finish
from holdfast.errors import Misuse
from holdfast.testing import servers
from holdfast.testing.servers.consul import Consul

pytestmark = pytest.mark.server
ROOT = "10000000-0000-0000-0000-000000000000"
# The harness, which has no token, asks as root.
CONFIG = f"""
session_ttl_min = "100ms"
acl {{ enabled = true, default_policy = "deny", tokens {{ master = "{ROOT}", default = "{ROOT}" }} }}
"""
RULES = """
key_prefix "holdfast/{tenant}/" {{ policy = "write" }}
session "holdfast-{tenant}" {{ policy = "write" }}
"""


def ask(server: Consul, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    connection.request(method, path, None if body is None else json.dumps(body), {"X-Consul-Token": token})
    response = connection.getresponse()
    content = response.read()
    connection.close()
    return response.status, json.loads(content) if content[:1] in (b"{", b"[") else content


@pytest.fixture(scope="module")
def consul() -> Iterator[Consul]:
    with servers.start("consul", "-hcl", CONFIG) as server:
        yield server


@pytest.fixture(scope="module")
def tokens(consul: Consul) -> dict[str, str]:
    """What an admin does once for each tenant: a node for its sessions, a policy, a token."""
    made = {}
    for tenant in ("a", "b"):
        node = {"Node": f"holdfast-{tenant}", "Address": "127.0.0.1"}
        assert ask(consul, ROOT, "PUT", "/v1/catalog/register", node)[0] == 200
        policy = {"Name": f"holdfast-{tenant}", "Rules": RULES.format(tenant=tenant)}
        assert ask(consul, ROOT, "PUT", "/v1/acl/policy", policy)[0] == 200
        wish = {"Policies": [{"Name": f"holdfast-{tenant}"}]}
        made[tenant] = ask(consul, ROOT, "PUT", "/v1/acl/token", wish)[1]["SecretID"]
    return made


def url(consul: Consul, token: str, tenant: str) -> str:
    return f"consul://:{token}@127.0.0.1:{consul.port}/holdfast/{tenant}?node=holdfast-{tenant}&min_ttl=0.1&timeout=2"


def test_a_tenant_has_all_that_locks_need(consul: Consul, tokens: dict[str, str]) -> None:
    with (
        holdfast.connect(url(consul, tokens["a"], "a")) as locks,
        holdfast.connect(url(consul, tokens["a"], "a")) as more,
    ):
        lease = locks.lock("x", ttl=1).acquire()
        assert more.lock("x", ttl=1).try_acquire() is None
        assert finish(locks._engine.store.renew([lease._grant], 5)) == [lease._grant]
        assert more.force_release("x", token=lease.token) is not None
        assert more.lock("x", ttl=20).acquire(timeout=10).release()
        assert locks.names() == []


def test_a_second_tenant_can_neither_read_nor_steal_nor_release_nor_renew(
    consul: Consul, tokens: dict[str, str]
) -> None:
    with holdfast.connect(url(consul, tokens["a"], "a")) as locks:
        lease = locks.lock("x", ttl=20).acquire()
        (session,) = [one["ID"] for one in ask(consul, ROOT, "GET", "/v1/session/node/holdfast-a")[1]]
        stranger = tokens["b"]
        # with holdfast, under the first one's prefix
        for node in ("a", "b"):
            address = url(consul, stranger, "a").replace("node=holdfast-a", f"node=holdfast-{node}")
            with holdfast.connect(address) as others:
                with pytest.raises(Misuse, match="denies access") as denied:
                    others.lock("x", ttl=20).try_acquire()
                assert stranger not in str(denied.value)
                assert others.names() == []  # Consul answers as if nothing were there
                assert others.inspect("x").holders == ()
                with pytest.raises(Misuse, match="denies access"):
                    others.lock("y", ttl=20).try_acquire()
                assert others.force_release("x", token=lease.token) is None
                assert finish(others._engine.store.release(lease._grant.claim)) is False
                assert finish(others._engine.store.renew([lease._grant], 5)) == [None]
        # and by hand, knowing the name of everything
        key = "holdfast/a/locks/x%3A"
        assert ask(consul, stranger, "GET", f"/v1/kv/{key}")[0] in (403, 404)
        assert ask(consul, stranger, "PUT", f"/v1/kv/{key}", "mine")[0] == 403
        assert ask(consul, stranger, "PUT", f"/v1/kv/{key}?acquire={session}", "mine")[0] == 403
        assert ask(consul, stranger, "PUT", f"/v1/kv/{key}?release={session}", "mine")[0] == 403
        assert ask(consul, stranger, "DELETE", f"/v1/kv/{key}")[0] == 403
        assert ask(consul, stranger, "DELETE", f"/v1/kv/holdfast/a/sessions/{session}/alive")[0] == 403
        assert ask(consul, stranger, "PUT", f"/v1/session/destroy/{session}")[0] == 403
        assert ask(consul, stranger, "PUT", f"/v1/session/renew/{session}")[0] in (403, 404)
        assert not ask(consul, stranger, "GET", "/v1/session/list")[1]
        assert finish(locks._engine.store.renew([lease._grant], 5)) == [lease._grant]
        assert lease.release()


def test_a_token_that_is_unknown_is_refused_with_advice(consul: Consul) -> None:
    token = "20000000-0000-0000-0000-000000000000"
    with holdfast.connect(url(consul, token, "a")) as locks:
        with pytest.raises(Misuse, match=r"key_prefix write .* session write") as refused:
            locks.lock("x", ttl=20).acquire(timeout=1)
        assert token not in str(refused.value)
        assert token not in repr(locks)
