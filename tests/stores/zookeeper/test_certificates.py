"""Who shows a certificate owns what they create: nobody else on the server may read or change it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

import holdfast
from holdfast.stores.zookeeper.url import parse

from .test_tls import certificate, secured

__all__ = ["certificate"]  # a fixture

pytestmark = pytest.mark.server
BY_CERTIFICATE = ("ssl.clientAuth=need", "ssl.clientHostnameVerification=false")


@pytest.fixture(scope="module")
def ports(certificate: Path) -> Iterator[tuple[int, int]]:
    """The one for TLS with certificates, and the plain one of a neighbour without."""
    with secured(certificate, *BY_CERTIFICATE) as both:
        yield both


def test_a_neighbour_may_not_touch_what_a_certificate_made(ports: tuple[int, int], certificate: Path) -> None:
    secure, plain = ports
    files = f"ca={certificate / 'cert.pem'}&cert={certificate / 'cert.pem'}&cert_key={certificate / 'key.pem'}"
    with holdfast.connect(f"zookeepers://127.0.0.1:{secure}/mine?{files}") as locks, locks.lock("x") as lease:
        assert [one.token for one in locks.inspect("x").holders] == [lease.token]
        assert locks.names() == ["x"]
        neighbour = KazooClient(f"127.0.0.1:{plain}")
        neighbour.start(timeout=20)
        try:
            with pytest.raises(NoAuthError):
                neighbour.get_children("/mine")
            with pytest.raises(NoAuthError):
                neighbour.create("/mine/intruder")
            with pytest.raises(NoAuthError):
                neighbour.delete("/mine", recursive=True)
        finally:
            neighbour.stop()
            neighbour.close()


def test_it_can_be_left_open_by_saying_so() -> None:
    assert parse("zookeepers://h/x?cert=/c&cert_key=/k").acl == "creator"
    assert parse("zookeepers://h/x?acl=open&cert=/c&cert_key=/k").acl == "open"
    assert parse("zookeepers://h/x?cert=/c&cert_key=/k&acl=open").acl == "open"
    assert parse("zookeepers://h/x").acl == "open"
