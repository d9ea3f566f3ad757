"""What a lock in Consul costs, and what it leaves behind; URLs; TLS."""

from __future__ import annotations

import asyncio
import subprocess
import threading
import zlib
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import holdfast
from holdfast import Misuse, aio
from holdfast.stores.consul.book import Book, Entry
from holdfast.stores.consul.claiming import pseudonym
from holdfast.stores.consul.url import parse
from holdfast.testing import servers
from holdfast.testing.ports import ReservedPort
from holdfast.testing.servers.clusters import Cluster
from holdfast.testing.servers.consul import Consul

from ..hands import Background, Connect, claim_of, until
from ..hops import check_the_way
from .hands import ask, keys

server = pytest.mark.server


def counted(locks: Any) -> list[str]:
    """The requests that pass from now on."""
    wire = locks._engine.store.wire
    passed: list[str] = []
    plain = wire.ask

    async def ask(method: str, path: str, *args: Any, **more: Any) -> Any:
        passed.append(path)
        return await plain(method, path, *args, **more)

    wire.ask = ask
    return passed


@server
def test_an_uncontended_lock_takes_two_requests_and_leaves_nothing(
    cluster: Cluster[Consul], connect: Connect, prefix: str
) -> None:
    locks = connect(*cluster.addresses)
    locks.lock("x", ttl=60).acquire().release()
    passed = counted(locks)
    locks.lock("x", ttl=60).acquire().release()
    assert passed == ["/v1/txn"] * 2
    assert [key.split("/")[1:2] for key in keys(cluster.members[0], prefix)] == [["sessions"]]
    locks.close()
    assert keys(cluster.members[0], prefix) == []


@server
def test_one_claim_takes_no_more_files_and_hops_than_the_page_says(cluster: Cluster[Consul], prefix: str) -> None:
    check_the_way("Consul", f"{cluster.url}/{prefix}")


@server
def test_many_locks_of_one_process_are_kept_by_two_requests(cluster: Cluster[Consul], connect: Connect) -> None:
    locks = connect(*cluster.addresses)
    names = [f"x{number}" for number in range(100)]
    leases = [locks.lock(name, ttl=3).acquire() for name in names]
    passed = counted(locks)
    until(lambda: passed)
    until(lambda: all(lease.remaining() > 2.1 for lease in leases))
    assert len(passed) <= 6  # taken over some time, they may fall into more than one round
    assert any("/session/renew/" in path for path in passed)


def requests_of_handoffs(cluster: Cluster[Consul], connect: Connect, waiting: int, handoffs: int) -> float:
    locks = connect(*cluster.addresses)
    served: list[int] = []
    enough = threading.Event()

    def come_and_go() -> None:
        with locks.lock("x", ttl=60).acquire(timeout=120):
            served.append(1)
            if len(served) >= handoffs:
                enough.set()

    first = locks.lock("x", ttl=60).acquire()
    threads = [Background(come_and_go) for _ in range(waiting)]
    until(lambda: len(locks.inspect("x").waiters) == waiting, within=60)
    passed = counted(locks)
    first.release()
    assert enough.wait(60)
    asked = len(passed) / len(served)
    for thread in threads:
        thread.result(60)
    return asked


@server
def test_a_handoff_takes_as_many_requests_whatever_the_length_of_the_line(
    cluster: Cluster[Consul], connect: Connect
) -> None:
    short = requests_of_handoffs(cluster, connect, 8, 8)
    long = requests_of_handoffs(cluster, connect, 48, 8)
    assert long <= 1.5 * short + 1
    assert short <= 7


@server
def test_what_stays_taken_on_purpose_outlives_its_process(cluster: Cluster[Consul], connect: Connect) -> None:
    locks, others = connect(*cluster.addresses), connect(*cluster.addresses)
    locks.once("job", at_least=1.0, at_most=20)(lambda: None)()
    locks.close()
    assert others.names() == ["job"]
    until(lambda: others.names() == [], within=15)


@server
def test_ttls_that_consul_cannot_keep_are_refused(cluster: Cluster[Consul]) -> None:
    with holdfast.connect(cluster.url) as locks:
        with pytest.raises(Misuse, match=r"from 10 s to 76800 s.*\?min_ttl="):
            locks.lock("x", ttl=5).acquire()
        with pytest.raises(Misuse, match="from 10 s to 76800 s"):
            locks.lock("x", ttl=90000).acquire()
        assert locks.traits.min_ttl == 10


@server
def test_locks_go_over_tls(tmp_path: Path) -> None:
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    port = ReservedPort()
    hcl = f'ports {{ https = {port.number} }} cert_file = "{tmp_path}/cert.pem" key_file = "{tmp_path}/key.pem"'
    with servers.start("consul", "-hcl", hcl):
        url = f"consuls://127.0.0.1:{port.number}?ca={tmp_path / 'cert.pem'}"
        with holdfast.connect(url) as locks, locks.lock("x") as lease:
            assert lease.held

        async def main() -> None:
            async with aio.connect(url) as locks, locks.lock("x") as lease:
                assert lease.held

        asyncio.run(main())
        untrusted = f"consuls://127.0.0.1:{port.number}"
        with holdfast.connect(untrusted) as locks, pytest.raises(Misuse, match="ca, cert, cert_key"):
            locks.lock("x").acquire(timeout=1)
    port.close()


# ---- URLs


def test_a_url_says_where_and_how() -> None:
    target = parse("consul://:s3cret@a:1,b,[::1]:3/team/locks?lock_delay=15&timeout=2&node=n&dc=eu")
    assert target.addresses == (("a", 1), ("b", 8500), ("::1", 3))
    assert (target.prefix, target.token, target.lock_delay, target.timeout) == ("team/locks", "s3cret", 15.0, 2.0)
    assert (target.node, target.datacenter, target.tls) == ("n", "eu", False)
    assert "s3cret" not in repr(target)
    assert parse("consuls://a").addresses == (("a", 8501),)
    assert parse("consul://a").prefix == "holdfast"


@pytest.mark.parametrize(
    "url",
    [
        "consul://a,a",
        "consul://a:0",
        "consul://a b",
        "consul://user:secret@a",
        "consul://a?token=bad secret",
        "consul://a?lock_delay=61",
        "consul://a?timeout=soon",
        "consul://a?min_ttl=0",
        "consul://a?stale=1",
        "consul://a/../b//c",
        "consul://a?ca=/x",
    ],
)
def test_a_url_that_is_not_understood_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(Misuse) as refused:
        holdfast.connect(url)
    assert "secret" not in str(refused.value)


# ---- the book


def test_a_long_book_is_written_and_read_without_loss() -> None:
    book = Book()
    for number in range(100):
        claim = claim_of("x")._replace(owner='h\n/"],[\n/é', note="n" * number, fair=number % 2 == 0)
        book.enter(claim, pseudonym(claim.holder), str(uuid4()), "", number, 1.5 if number % 3 else 0.0)
    again = Book.read(book.packed(), 7, "")
    assert again.packed() != book.packed()  # who was let in by this write has its token now
    book.written(7)
    assert again.packed() == book.packed()
    assert list(again.line) == list(book.line)
    assert len(again.line) == 99
    assert [vars_of(one) for one in again.waiting()] == [vars_of(one) for one in book.waiting()]
    assert again.sessions() == book.sessions()
    (inside,) = again.inside.values()
    assert inside.token == 7


def vars_of(entry: Entry) -> list[object]:
    return [getattr(entry, name) for name in Entry.__slots__]


STRANGE = '"12345678901234567890","123456789012345678901234567890123456",1'


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"hello",
        b"[]",
        b"[1,[\n\n]]",
        b"\x00",
        b'{"a": 1}',
        b"[1,[\nx\n],[\n\n]]",
        f'[1,[\n[{STRANGE},"units",30.0,7,"owner"]\n],[\n\n]]'.encode(),
        f'[1,[\n[{STRANGE},1,30.0,7,["owner"]]\n],[\n\n]]'.encode(),
        b"[1,[\n" + b"[" * 50_000 + b"\n],[\n\n]]",
        zlib.compress(b"[" + b" " * (1 << 26)),
    ],
    ids=lambda value: repr(value[:40]),
)
def test_what_is_no_book_is_not_taken_for_one(value: bytes) -> None:
    with pytest.raises((ValueError, TypeError, zlib.error)):
        Book.read(value, 7, "")


@server
def test_a_key_of_somebody_else_is_left_alone_and_named(
    cluster: Cluster[Consul], connect: Connect, prefix: str
) -> None:
    member = cluster.members[0]
    ask(member, "PUT", f"/v1/kv/{prefix}/locks/x%3A", "somebody's own")
    with pytest.raises(Misuse, match="is not holdfast's"):
        connect(*cluster.addresses).lock("x", ttl=20).acquire(timeout=1)
    assert f"{prefix}/locks/x:" in keys(member, prefix)


@server
def test_what_somebody_wrote_among_the_evictions_is_passed_over(
    cluster: Cluster[Consul], connect: Connect, prefix: str
) -> None:
    """Here it broke: every forced release failed, after it was done."""
    locks = connect(*cluster.addresses)
    lease = locks.lock("x", ttl=20).acquire()
    for name, nonsense in (("x", "nonsense"), ("y", [1]), ("z", [1, 2, 3, "x"])):
        ask(cluster.members[0], "PUT", f"/v1/kv/{prefix}/evictions/{name}%3A", nonsense)
    assert locks.inspect("x").eviction is None
    assert locks.force_release("x", token=lease.token)
    assert locks.inspect("x").eviction
