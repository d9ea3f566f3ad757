"""redis-py's Lock on our stores does what redis-py's Lock says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
import redis
from holdfast import Misuse
from holdfast.compat.redis_py import Lock, LockError, LockNotOwnedError, _url_of
from holdfast.testing import servers
from holdfast.testing.manual import Manual, connect


@pytest.fixture
def driver() -> Manual:
    return Manual()


@pytest.fixture
def locks(driver: Manual) -> holdfast.Locks:
    return connect(driver)


def test_a_lock_is_got_once_and_given_back(locks: holdfast.Locks) -> None:
    lock, other = Lock(locks, "foo"), Lock(locks, b"foo")
    assert lock.acquire(blocking=False)
    assert lock.locked()
    assert lock.owned()
    assert other.locked()
    assert not other.owned()
    assert other.acquire(blocking=False) is False
    assert other.acquire(blocking_timeout=0.2) is False
    lock.release()
    assert not lock.locked()
    assert other.acquire()


def test_its_timeout_is_how_long_it_lives(driver: Manual, locks: holdfast.Locks) -> None:
    """And not how long to wait: that is its blocking_timeout."""
    lock = Lock(locks, "foo", timeout=10)
    assert lock.acquire()
    driver.pass_time(11)
    assert not lock.owned()
    assert Lock(locks, "foo").acquire(blocking=False)
    with pytest.raises(LockNotOwnedError, match="no longer owned"):
        lock.release()
    with pytest.raises(LockError, match="Cannot release an unlocked lock"):
        lock.release()


def test_without_a_timeout_it_lives_until_it_is_released(driver: Manual, locks: holdfast.Locks) -> None:
    lock = Lock(locks, "foo")
    assert lock.acquire()
    driver.pass_time(1000)
    assert lock.owned()
    with pytest.raises(LockError, match="with no timeout"):
        lock.extend(10)
    with pytest.raises(LockError, match="with no timeout"):
        lock.reacquire()


def test_it_is_extended_and_reacquired(driver: Manual, locks: holdfast.Locks) -> None:
    lock = Lock(locks, "foo", timeout=10)
    with pytest.raises(LockError, match="Cannot extend an unlocked lock"):
        lock.extend(10)
    assert lock.acquire()
    assert lock.lease is not None
    driver.pass_time(4)
    assert lock.extend(10)
    assert lock.extend(10), "6 + 10 + 10 are left"
    driver.pass_time(25)
    assert lock.owned()
    assert lock.extend(10, replace_ttl=True)
    driver.pass_time(9)
    assert lock.reacquire()
    driver.pass_time(9)
    assert lock.owned()
    driver.pass_time(2)
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError, match="no longer owned"):
        lock.extend(10)
    with pytest.raises(LockNotOwnedError, match="no longer owned"):
        lock.reacquire()


def test_a_with_is_not_entered_without_the_lock(locks: holdfast.Locks) -> None:
    with (
        Lock(locks, "foo"),
        pytest.raises(LockError, match="within the time"),
        Lock(locks, "foo", blocking_timeout=0.1),
    ):
        raise AssertionError("entered")


def test_an_end_within_the_body_is_told_unless_asked_not_to(driver: Manual, locks: holdfast.Locks) -> None:
    with pytest.raises(LockNotOwnedError), Lock(locks, "foo", timeout=5):
        driver.pass_time(6)
    with Lock(locks, "foo", timeout=5, raise_on_release_error=False):
        driver.pass_time(6)


@pytest.mark.parametrize("thread_local", [True, False])
def test_another_thread_may_release_it_only_if_it_is_not_thread_local(thread_local: bool) -> None:
    with holdfast.connect("memory://compat") as here:
        lock = Lock(here, "foo", thread_local=thread_local)
        assert lock.acquire()
        errors: list[Any] = []

        def leave() -> None:
            try:
                lock.release()
            except LockError as error:
                errors.append(error)

        thread = threading.Thread(target=leave)
        thread.start()
        thread.join(10)
        assert bool(errors) is thread_local
        assert lock.locked() is thread_local


def test_its_errors_are_those_that_people_catch() -> None:
    assert LockError is redis.exceptions.LockError


def test_what_cannot_be_had_is_refused(locks: holdfast.Locks) -> None:
    with pytest.raises(Misuse, match="cannot be chosen"):
        Lock(locks, "foo").acquire(token="mine")
    with pytest.raises(Misuse, match="a redis-py client is needed, not int"):
        Lock(5, "foo")


class Ours(redis.SSLConnection):
    """A name that says nothing of TLS."""


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "redis://:pw@h:1/0"),
        ({"ssl": True}, "rediss://:pw@h:1/0"),
        ({"ssl": True, "ssl_cert_reqs": "none"}, "rediss://:pw@h:1/0"),
    ],
)
def test_a_client_with_tls_is_asked_for_no_less(settings: dict[str, Any], url: str) -> None:
    with redis.Redis("h", 1, password="pw", **settings) as client:
        assert _url_of(client.connection_pool) == url


def test_a_connection_of_somebodys_own_has_tls_by_whatever_name() -> None:
    pool = redis.ConnectionPool(connection_class=Ours, host="h", port=1, password="pw")
    assert _url_of(pool) == "rediss://:pw@h:1/0"


@pytest.mark.parametrize("setting", ["ssl_ca_certs", "ssl_ca_data", "ssl_ca_path", "ssl_certfile", "ssl_ciphers"])
def test_what_it_trusts_is_not_passed_over(setting: str) -> None:
    """To trust other certificates than it does would be to trust too many."""
    given: dict[str, Any] = {"host": "h", setting: "x"}
    pool = redis.ConnectionPool(connection_class=redis.SSLConnection, **given)
    with pytest.raises(Misuse, match=f"this client has {setting}: "):
        _url_of(pool)


@pytest.mark.parametrize("settings", [{}, {"ssl": True}, {"password": "pw"}])
def test_a_client_under_sentinels_is_not_taken_for_one_of_localhost(settings: dict[str, Any]) -> None:
    """It was: with its password, and with locks that nobody else has."""
    sentinel: Any = redis.Sentinel
    client = sentinel([("h", 1)]).master_for("service", **settings)
    with pytest.raises(Misuse, match=r"redis\+sentinel://"):
        Lock(client, "x")


def test_nor_is_one_whose_own_connection_finds_the_host() -> None:
    with pytest.raises(Misuse, match="on which host"):
        _url_of(redis.ConnectionPool(connection_class=Ours, password="pw"))
    assert _url_of(redis.ConnectionPool()) == "redis://localhost:6379/0"


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with servers.start("redis") as running:
        yield running


@pytest.mark.server
def test_the_import_line_is_the_whole_migration(server: Any) -> None:
    """The same lines with both libraries, and the same client."""
    client = redis.Redis.from_url(server.url)
    for kind in (redis.lock.Lock, Lock):
        with kind(client, f"job-{kind.__module__}", timeout=10, blocking_timeout=5) as lock:
            assert lock.owned()
            assert lock.extend(5)
            assert lock.reacquire()
            assert not kind(client, lock.name).acquire(blocking=False)
        assert not lock.locked()
    client.close()


def test_a_release_does_not_forget_what_another_thread_has_just_taken() -> None:
    """Without thread_local the object is shared: the next one may have the lock before release() has returned."""
    with holdfast.connect("memory://") as locks:
        lock = Lock(locks, "x", thread_local=False)

        def next_one(_: object) -> None:
            stop()
            thread = threading.Thread(target=lock.acquire)
            thread.start()
            thread.join(30)

        assert lock.acquire()
        stop = locks.subscribe(next_one, ["released"])
        lock.release()
        assert lock.owned()
        assert not Lock(locks, "x").acquire(blocking=False)
        lock.release()


def test_errors_name_the_lock(locks: holdfast.Locks, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LockError) as told:
        Lock(locks, "x").release()
    assert told.value.lock_name == "x"
    with Lock(locks, "x", raise_on_release_error=False) as lock:
        lock.release()
    assert "the lock 'x' was no longer held when its body ended" in caplog.text


def test_a_client_for_asyncio_is_refused() -> None:
    """`await lock.acquire()` would take it, and then fail."""
    import redis.asyncio

    with pytest.raises(Misuse, match=r"use the locks of holdfast\.aio\.connect"):
        Lock(redis.asyncio.Redis(), "x")
