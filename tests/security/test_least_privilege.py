"""What `holdfast migrate --acl` grants is enough for everything that a lock does, in whatever way a store is set up.

On a plain setup of each store the whole suite runs as such a user, and what they must not do is tried there: tests/conformance.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

import holdfast
from holdfast import aio, events
from holdfast.testing import servers
from holdfast.testing.servers.etcd import Etcd

from ..stores.zookeeper.test_certificates import certificate, ports
from ..tenants import (
    PASSWORD,
    ask_etcd,
    guard_etcd,
    on_etcd,
    on_redis,
    on_zookeeper,
    text64,
    zookeeper_client,
)

__all__ = ["certificate", "ports"]  # fixtures
pytestmark = pytest.mark.server
PATIENCE = 20.0


def everything(url: str) -> None:
    """Claim, wait, renew, hand over, look, list, watch, put out."""
    with holdfast.connect(url) as a, holdfast.connect(url) as b:
        lease = a.lock("x", ttl=1).acquire(timeout=PATIENCE)
        renewed, got = threading.Event(), list[holdfast.Lease]()
        a.subscribe(lambda _: renewed.set(), [events.RENEWED])
        waiting = threading.Thread(target=lambda: got.append(b.lock("x").acquire(timeout=PATIENCE)))
        waiting.start()
        assert renewed.wait(PATIENCE)
        give_up = time.monotonic() + PATIENCE
        if a.traits.fair:
            while not a.inspect("x").waiters and time.monotonic() < give_up:
                time.sleep(0.02)
        assert a.names() == ["x"]
        lease.release()
        waiting.join(PATIENCE)
        assert [one.token for one in a.inspect("x").holders] == [got[0].token]
        assert a.force_release("x", token=got[0].token)
        assert a.inspect("x").eviction is not None
        with a.rwlock("r", ttl=1).read(), b.rwlock("r", ttl=1).read():
            renewed.clear()
            assert renewed.wait(PATIENCE)
        if a.traits.bell:
            with a.election("e", address="here").lead(timeout=PATIENCE):
                leader = next(iter(b.election("e").watch(timeout=PATIENCE)))
                assert leader is not None
                assert leader.address == "here"


def test_on_another_database_of_redis() -> None:
    with servers.start("redis") as server:
        url = f"redis://tenant:{PASSWORD}@127.0.0.1:{server.port}?prefix=t&db=3"
        everything(on_redis([server], url))


def test_under_sentinels_and_with_replicas_that_confirm() -> None:
    with servers.cluster("redis-sentinel", 3) as group:
        place = group.url.partition("://")[2]
        login = f"sentinel_username=asks&sentinel_password={PASSWORD}"
        url = f"redis+sentinel://tenant:{PASSWORD}@{place}?prefix=t&replicas=1&replicas_timeout=20&timeout=30&{login}"
        everything(on_redis(group.members, url, group.sentinels))


def test_in_a_cluster_of_redis() -> None:
    with servers.cluster("redis-cluster", 3) as group:
        url = f"redis+cluster://tenant:{PASSWORD}@{group.hosts}?prefix=t"
        everything(on_redis(group.members, url))


def test_on_zookeeper_with_a_certificate_and_no_password(ports: tuple[int, int], certificate: Path) -> None:
    secure, plain = ports
    shown = ["openssl", "x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in", str(certificate / "cert.pem")]
    subject = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.strip().removeprefix("subject=")
    files = f"ca={certificate / 'cert.pem'}&cert={certificate / 'cert.pem'}&cert_key={certificate / 'key.pem'}"
    url = f"zookeepers://127.0.0.1:{secure}/tenants/one?{files}"
    everything(on_zookeeper(f"127.0.0.1:{plain}", url, subject))
    with zookeeper_client(f"127.0.0.1:{plain}", "neighbour:pw") as neighbour:
        for path in ("/tenants/one", "/tenants/one/locks"):
            with pytest.raises(NoAuthError):
                neighbour.get_children(path)
            with pytest.raises(NoAuthError):
                neighbour.delete(path, recursive=True)


def test_a_neighbour_who_hangs_a_key_on_an_idle_lease_of_etcd_shuts_nobody_out() -> None:
    """etcd 3.5 shows ids of idle leases to everybody, and then lets nobody use a lease who may not write all that is on it."""
    with servers.start("etcd-new") as server:
        assert isinstance(server, Etcd)
        here = f"127.0.0.1:{server.port}"
        url = on_etcd(server, f"etcd://tenant:{PASSWORD}@{here}/tenant")
        on_etcd(server, f"etcd://neighbour:{PASSWORD}@{here}/neighbour")
        guard_etcd([server])
        login = ask_etcd(server, "/v3/auth/authenticate", name="neighbour", password=PASSWORD)["token"]

        def hang_a_key_on_every_lease() -> int:
            found = ask_etcd(server, "/v3/lease/leases", login)["leases"]
            for lease in found:
                ask_etcd(server, "/v3/kv/put", login, key=text64(b"neighbour/x"), value="", lease=lease["ID"])
            return len(found)

        with holdfast.connect(url) as locks:
            locks.lock("x", ttl=60).acquire(timeout=PATIENCE).release()
            assert hang_a_key_on_every_lease() == 1
            assert locks.lock("x", ttl=60).acquire(timeout=PATIENCE).release()

        async def in_asyncio() -> None:
            async with aio.connect(url) as locks:
                await (await locks.lock("x", ttl=60).acquire(timeout=PATIENCE)).release()
                assert hang_a_key_on_every_lease()
                assert await (await locks.lock("x", ttl=60).acquire(timeout=PATIENCE)).release()

        asyncio.run(in_asyncio())
