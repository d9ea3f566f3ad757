"""SASL (DIGEST-MD5), on a real server: unlike digest authentication, the server knows its users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Misuse, Unavailable
from holdfast.testing import servers
from holdfast.testing.servers.zookeeper import ZooKeeper

pytestmark = pytest.mark.server

_USERS = """Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="secret-of-alice"
    user_bob="secret-of-bob";
};
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    users: Path = tmp_path_factory.mktemp("sasl") / "jaas.conf"
    users.write_text(_USERS)
    environ = {"JAVA_TOOL_OPTIONS": f"-Djava.security.auth.login.config={users}"}
    provider = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
    with servers.start("zookeeper", provider, "forceSync=no", environ=environ) as started:
        yield started


def url_of(server: ZooKeeper, user: str, password: str) -> str:
    return f"zookeeper://{user}:{password}@127.0.0.1:{server.port}/sasl?auth=sasl&timeout=2"


def test_a_known_user_locks_and_another_is_kept_out(server: ZooKeeper) -> None:
    with (
        holdfast.connect(url_of(server, "alice", "secret-of-alice")) as alice,
        holdfast.connect(url_of(server, "bob", "secret-of-bob")) as bob,
        alice.lock("x") as lease,
    ):
        for forbidden in (lambda: bob.lock("x").try_acquire(), lambda: bob.inspect("x"), lambda: bob.names()):
            with pytest.raises(Misuse, match="does not allow this to the user 'bob'"):
                forbidden()
        lease.check()


def test_a_wrong_password_is_refused(server: ZooKeeper) -> None:
    with holdfast.connect(url_of(server, "alice", "guessed")) as locks, pytest.raises((Misuse, Unavailable)) as refused:
        locks.lock("x").try_acquire()
    assert "guessed" not in str(refused.value)
