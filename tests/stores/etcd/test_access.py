"""Logins, tenants and TLS, on real servers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Misuse, aio
from holdfast.claim import Grant
from holdfast.drivers.base import boot_time, finish
from holdfast.stores.etcd.replies import Refused
from holdfast.stores.etcd.requests import (
    LEASE_REVOKE,
    RANGE,
    TXN,
    lease_id,
    op_delete,
    op_put,
    range_of,
    txn,
)
from holdfast.testing import servers
from holdfast.testing.ports import ReservedPort
from holdfast.testing.servers import wire
from holdfast.testing.servers.etcd import Etcd

from ..hands import SOON, claim_of, in_background, until
from .hands import admin, ask, base64, leases_of, store_of

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def guarded() -> Iterator[Etcd]:
    """With two tenants: alice may touch a/, bob b/, and nothing else."""
    with servers.start("etcd") as server:
        for user, password in (("root", "r00t"), ("alice", "wonder:l@nd"), ("bob", "builder")):
            admin(server, "/v3/auth/user/add", name=user, password=password)
            admin(server, "/v3/auth/role/add", name=user)
            admin(server, "/v3/auth/user/grant", user=user, role=user)
        for user, key in (("alice", b"a/"), ("bob", b"b/")):
            allowed = {"permType": "READWRITE", "key": base64(key), "range_end": base64(key[:-1] + b"0")}
            admin(server, "/v3/auth/role/grant", name=user, perm=allowed)
        admin(server, "/v3/auth/enable")
        yield server


def url_of(server: Etcd, who: str) -> str:
    return {
        "alice": f"etcd://alice:wonder%3Al%40nd@127.0.0.1:{server.port}/a",
        "bob": f"etcd://bob:builder@127.0.0.1:{server.port}/b",
        "bob in a": f"etcd://bob:builder@127.0.0.1:{server.port}/a",
        "wrong": f"etcd://alice:nonsense@127.0.0.1:{server.port}/a",
        "nobody": f"etcd://127.0.0.1:{server.port}/a",
    }[who]


def test_a_login_opens_the_tenants_own_prefix_on_both_surfaces(guarded: Etcd) -> None:
    with holdfast.connect(url_of(guarded, "alice")) as locks:
        with locks.lock("x") as lease:
            assert [one.token for one in locks.inspect("x").holders] == [lease.token]
        again = locks.lock("x").acquire()
        assert (locks.force_release("x", token=again.token) or 0) > again.token

    async def main() -> None:
        async with aio.connect(url_of(guarded, "bob")) as locks, locks.lock("x") as lease:
            assert lease.held
            assert await locks.names() == ["x"]

    asyncio.run(main())


TRESPASSES: dict[str, Callable[[holdfast.sync.Locks, int], object]] = {
    "take": lambda locks, token: locks.lock("y").acquire(timeout=0),
    "steal": lambda locks, token: locks.force_release("x", token=token),
    "look": lambda locks, token: locks.inspect("x"),
    "list": lambda locks, token: locks.names(),
    "watch": lambda locks, token: list(locks.election("x").watch(timeout=1)),
}


@pytest.mark.parametrize("what", TRESPASSES)
def test_another_tenant_can_not(guarded: Etcd, what: str) -> None:
    with (
        holdfast.connect(url_of(guarded, "alice")) as alice,
        holdfast.connect(url_of(guarded, "bob in a")) as bob,
        alice.lock("x") as lease,
    ):
        with pytest.raises(Misuse, match="does not let this user touch keys under 'a'") as refused:
            TRESPASSES[what](bob, lease.token)
        assert "builder" not in str(refused.value)
        lease.check()


def test_another_tenant_can_neither_release_nor_renew_nor_revoke_even_knowing_all_secrets(guarded: Etcd) -> None:
    with holdfast.connect(url_of(guarded, "alice")) as alice, holdfast.connect(url_of(guarded, "bob")) as bob:
        mine = claim_of("x", 30.0)
        grant = ask(alice, mine)
        assert isinstance(grant, Grant)
        key = store_of(alice)._keys.inside(mine)
        (session,) = leases_of(alice)
        theirs = store_of(bob)._wire
        for path, message in (
            (RANGE, range_of(key)),
            (TXN, txn([], [op_delete(key)])),
            (TXN, txn([], [op_put(key, b"{}", 0)])),
            (LEASE_REVOKE, lease_id(session)),
        ):
            with pytest.raises(Refused, match="permission denied"):
                finish(theirs.ask(path, message, boot_time() + 10))
        assert finish(store_of(bob).renew([grant], 5)) == [None]
        with holdfast.connect(url_of(guarded, "bob in a")) as trespasser, pytest.raises(Misuse, match="does not let"):
            finish(store_of(trespasser).release(mine))
        assert finish(store_of(alice).release(mine)) is True


@pytest.mark.parametrize(("who", "what"), [("wrong", "refused the login"), ("nobody", "wants a login")])
def test_a_bad_login_is_refused_in_words_that_help(guarded: Etcd, who: str, what: str) -> None:
    with holdfast.connect(url_of(guarded, who)) as locks:
        with pytest.raises(Misuse, match=what) as refused:
            locks.lock("x").acquire(timeout=0)
        assert "nonsense" not in str(refused.value)


def test_a_login_that_ran_out_is_renewed_and_waiters_go_on(guarded: Etcd) -> None:
    """A restart forgets all logins, as does their time."""
    with holdfast.connect(url_of(guarded, "alice")) as a, holdfast.connect(url_of(guarded, "alice")) as b:
        held = a.lock("x", ttl=10).acquire()
        got: list[int] = []
        waiter = in_background(lambda: got.append(b.lock("x", ttl=10).acquire(timeout=60).token))
        until(lambda: a.inspect("x").waiters)
        guarded.kill()
        guarded.launch()
        until(lambda: a.inspect("x").holders if answers(a) else False)
        assert held.release() is True
        waiter.join(SOON)
        assert got
        assert got[0] > held.token


def answers(locks: holdfast.sync.Locks) -> bool:
    try:
        locks.names()
    except holdfast.Unavailable:
        return False
    return True


# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


class TlsEtcd(Etcd):
    """The clients' side in TLS; asked for its health in the clear, elsewhere."""

    health: ReservedPort

    def command(self) -> list[str]:
        plain, secret = f"=http://127.0.0.1:{self.port}", f"=https://127.0.0.1:{self.port}"
        asked = f"--listen-metrics-urls=http://127.0.0.1:{self.health.number}"
        return [*(word.replace(plain, secret) for word in super().command()), asked]

    def answers(self) -> bool:
        return bool(wire.http_json(("127.0.0.1", self.health.number), "GET", "/health")["health"] == "true")


@pytest.fixture(scope="module")
def tls(certificate: Path) -> Iterator[TlsEtcd]:
    def build() -> TlsEtcd:
        files = (f"--cert-file={certificate / 'cert.pem'}", f"--key-file={certificate / 'key.pem'}")
        server = TlsEtcd("etcd", files)
        server.health = ReservedPort()
        return server

    with servers.first_that_starts(build) as server:
        yield server
        server.health.close()


def test_locks_go_over_tls_also_when_waiting(tls: TlsEtcd, certificate: Path) -> None:
    url = f"etcds://127.0.0.1:{tls.port}?ca={certificate / 'cert.pem'}"
    with holdfast.connect(url) as a, holdfast.connect(url) as b:
        held = a.lock("x").acquire()
        got: list[int] = []
        waiter = in_background(lambda: got.append(b.lock("x").acquire(timeout=30).token))
        until(lambda: a.inspect("x").waiters)
        held.release()
        waiter.join(SOON)
        assert got

    async def main() -> None:
        async with aio.connect(url) as locks, locks.lock("y") as lease:
            assert lease.held

    asyncio.run(main())


def test_a_certificate_that_is_not_trusted_is_refused_and_says_what_to_do(tls: TlsEtcd) -> None:
    async def main() -> None:
        async with aio.connect(f"etcds://127.0.0.1:{tls.port}") as locks:
            await locks.lock("x").acquire(timeout=0)

    with holdfast.connect(f"etcds://127.0.0.1:{tls.port}") as locks, pytest.raises(Misuse, match="ca, cert, cert_key"):
        locks.lock("x").acquire(timeout=0)
    with pytest.raises(Misuse, match="ca, cert, cert_key"):
        asyncio.run(main())
