"""Two tenants of one ensemble: what one has locked, the other can neither read, steal, release nor renew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import pytest
from kazoo import exceptions
from kazoo.security import OPEN_ACL_UNSAFE

from holdfast import Misuse, aio

from ..hands import Connect
from .hands import Ensemble, admin, session_of

pytestmark = pytest.mark.server


def url_of(ensemble: Ensemble, user: str, root: str) -> str:
    return f"zookeeper://{user}:secret-of-{user}@{ensemble.hosts}{root}"


def test_another_tenant_can_neither_read_steal_release_nor_renew(
    ensemble: Ensemble, connect: Connect, root: str
) -> None:
    alice, bob = (connect(url_of(ensemble, user, root)) for user in ("alice", "bob"))
    lease = alice.lock("x").acquire()
    for forbidden in (
        lambda: bob.lock("x").try_acquire(),
        lambda: bob.lock("x").acquire(timeout=5),
        lambda: bob.lock("y").try_acquire(),
        lambda: bob.inspect("x"),
        lambda: bob.names(),
        lambda: bob.force_release("x", token=lease.token),
    ):
        with pytest.raises(Misuse, match="does not allow this to the user 'bob'"):
            forbidden()
    lease.check()
    assert [one.token for one in alice.inspect("x").holders] == [lease.token]
    assert lease.release()


def test_nor_with_a_client_of_ones_own_that_knows_the_path(ensemble: Ensemble, connect: Connect, root: str) -> None:
    alice = connect(url_of(ensemble, "alice", root))
    lease = alice.lock("x").acquire()
    with admin(ensemble.hosts, auth_data=[("digest", "alice:secret-of-alice")]) as own:
        (node,) = own.get_children(f"{root}/locks/x")
    path = f"{root}/locks/x/{node}"
    for stranger in ({"auth_data": [("digest", "bob:secret-of-bob")]}, {}):
        with admin(ensemble.hosts, **stranger) as look:
            attempts: list[Callable[[], object]] = [
                partial(look.get, path),
                partial(look.set, path, b""),
                partial(look.delete, path),
                partial(look.get_children, f"{root}/locks"),
                partial(look.create, f"{root}/locks/x/first", b""),
                partial(look.delete, f"{root}/locks/x"),
                partial(look.set_acls, path, OPEN_ACL_UNSAFE),
            ]
            for attempt in attempts:
                with pytest.raises(exceptions.NoAuthError):
                    attempt()
    lease.check()
    assert lease.release()


def test_a_wrong_password_is_another_tenant(ensemble: Ensemble, connect: Connect, root: str) -> None:
    alice = connect(url_of(ensemble, "alice", root))
    alice.lock("x").acquire().release()
    with pytest.raises(Misuse, match="does not allow"):
        connect(f"zookeeper://alice:guessed@{ensemble.hosts}{root}").lock("x").try_acquire()


def test_tenants_work_in_asyncio_too_and_passwords_are_in_no_log(
    ensemble: Ensemble, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with aio.connect(url_of(ensemble, "alice", root)) as alice, alice.lock("x") as lease:
            async with aio.connect(url_of(ensemble, "bob", root)) as bob:
                with pytest.raises(Misuse, match="does not allow"):
                    await bob.lock("x").try_acquire()
            lease.check()

    with caplog.at_level(logging.DEBUG):
        asyncio.run(main())
    assert "secret-of" not in caplog.text


def test_the_nonce_that_releases_never_leaves_the_process(ensemble: Ensemble, connect: Connect, root: str) -> None:
    locks = connect(ensemble.url + root)
    lease = locks.lock("x").acquire()
    holder = lease._grant.claim.holder
    with admin(ensemble.hosts) as look:
        (node,) = look.get_children(f"{root}/locks/x")
        data, stat = look.get(f"{root}/locks/x/{node}")
    assert holder not in node
    assert holder.encode() not in data
    assert stat.ephemeralOwner == session_of(locks).id
    assert lease.release()
