"""What `also=` understands, and what it refuses."""

from __future__ import annotations

import pytest

import holdfast


@pytest.mark.parametrize(
    ("also", "sign"),
    [
        ("redis-py+postgresql://localhost/x", "the locks of redis-py are at redis"),
        ("redis-py+redis://localhost?as=fixed", "write {name}"),
        ("advisory+postgresql://localhost/x?hash=md5", "there are hashtext"),
        ("kazoo+zookeepers://localhost", "neither TLS nor options"),
        ("nonsense+redis://localhost", "no store is known"),
        (7, "must be a str"),
    ],
)
def test_what_makes_no_sense_is_refused(also: str, sign: str) -> None:
    with pytest.raises(holdfast.Misuse, match=sign):
        holdfast.connect("memory://", also=also)


def test_a_name_that_is_no_id_is_refused_with_what_to_do() -> None:
    with holdfast.connect("memory://", also="advisory+postgresql://localhost/x") as locks:
        with pytest.raises(holdfast.Misuse, match="hash=hashtext"):
            locks.lock("report").acquire(timeout=0)
        assert not locks.names()


def test_what_the_old_lock_cannot_be_is_refused() -> None:
    locks = holdfast.connect("memory://", also="redis-py+redis://localhost")
    with locks, pytest.raises(holdfast.Unsupported, match="let in one at a time"):
        locks.semaphore("gpu", 4).acquire(timeout=0)


def test_another_store_of_ours_knows_every_kind() -> None:
    locks, old = holdfast.connect("memory://", also="memory://before"), holdfast.connect("memory://before")
    with locks, old, locks.semaphore("gpu", 4).acquire(units=2):
        assert old.inspect("gpu").used == 2


def test_no_password_is_shown() -> None:
    with pytest.raises(holdfast.HoldfastError) as found:
        holdfast.connect("memory://", also="redis-py+redis://user:hunter2@localhost:1").lock("x").acquire(timeout=0)
    assert "hunter2" not in str(found.value)
