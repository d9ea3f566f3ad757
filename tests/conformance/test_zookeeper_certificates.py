"""ZooKeeper with certificates and no password passes the suite, for one who owns one node, as `holdfast migrate --acl` says.

A part of it in `make test`; all of it with HOLDFAST_WHOLE, as in `make soak`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast.testing.conformance import Suite
from holdfast.testing.conformance.claims import Claims
from holdfast.testing.conformance.eviction import Evictions
from holdfast.testing.conformance.names import Names
from holdfast.testing.conformance.tokens import Tokens

from ..stores.zookeeper.test_certificates import BY_CERTIFICATE
from ..stores.zookeeper.test_tls import certificate, secured
from ..tenants import on_zookeeper

__all__ = ["certificate"]  # a fixture
pytestmark = pytest.mark.server


class Part(Claims, Tokens, Evictions, Names):
    ttl_short = 0.75
    slack = Suite.slack
    world = Suite.world
    network = Suite.network


@pytest.fixture(scope="module")
def tenant(certificate: Path) -> Iterator[str]:
    """The URL of one who has nothing but a certificate and one node."""
    shown = ["openssl", "x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in", str(certificate / "cert.pem")]
    subject = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.strip().removeprefix("subject=")
    files = f"ca={certificate / 'cert.pem'}&cert={certificate / 'cert.pem'}&cert_key={certificate / 'key.pem'}"
    # Sessions as long as the suite's longest ttl, and no waiting for the disk.
    with secured(certificate, *BY_CERTIFICATE, "maxSessionTimeout=1000000", "forceSync=no") as (secure, plain):
        yield on_zookeeper(f"127.0.0.1:{plain}", f"zookeepers://127.0.0.1:{secure}/tenants/one?{files}", subject)


class TestZooKeeperByCertificate(Suite if "HOLDFAST_WHOLE" in os.environ else Part):  # type: ignore[misc]  # either
    doubts = False  # one session, one connection
    ttl_short = 0.75
    lines_at_a_time = 7
    turns_at_a_time = 29

    @pytest.fixture
    def url(self, tenant: str) -> str:
        place, _, files = tenant.partition("?")
        return f"{place}/test-{uuid4().hex[:8]}?{files}"
