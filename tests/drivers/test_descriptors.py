"""A signal handler may raise wherever the interpreter looks for signals: no descriptor is lost by that, and none closed twice."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from holdfast.drivers.descriptors import another, another_number, nothing, pipe
from holdfast.drivers.sockets import take_back, void
from holdfast.errors import HoldfastError
from holdfast.stores.postgresql.salted import _borrowed
from holdfast.stores.redis.connection import Connection
from holdfast.stores.redis.url import Target

pytestmark = [
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counted there"),
    # What is forgotten is closed so; and a signal handler may raise in a finalizer as well, which nobody hears of.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
MANY = 2000  # no action has as many places


class Stop(BaseException):
    """What the signal handler raises."""


def interrupted(number: int, action: Callable[[], object]) -> bool:
    """At its place of that number: a function begins, or one that is not of Python has given back. False: it has fewer."""
    left = number

    def tell(frame: FrameType, what: str, _: Any) -> None:
        nonlocal left
        if what in ("call", "c_return"):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise Stop

    before = sys.getprofile()
    try:
        sys.setprofile(tell)
        action()
    except Stop:
        return True
    finally:
        sys.setprofile(before)
    return False


def lost(action: Callable[[], object]) -> int:
    """Descriptors, when it was interrupted at each of its places in turn."""
    action()  # whatever is made once is made now
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(MANY):
        if not interrupted(number, action):
            break
    assert 0 < number < MANY - 1
    gc.collect()
    return len(os.listdir("/proc/self/fd")) - before


@pytest.fixture
def plain() -> Iterator[socket.socket]:
    here, there = socket.socketpair()
    with here, there:
        yield here


ACTIONS: dict[str, Callable[[int], object]] = {
    "another": another,
    "another number": another_number,
    "pipe": lambda _: pipe(),
    "nothing": lambda _: nothing(),
    "take back": take_back,
}


@pytest.mark.parametrize("what", ACTIONS)
def test_no_descriptor_is_lost_to_a_signal(what: str, plain: socket.socket) -> None:
    assert lost(lambda: ACTIONS[what](plain.fileno())) == 0


def test_nor_when_a_socket_is_made_nothing_of() -> None:
    def end_one() -> None:
        with socket.socket() as one:
            void(one)

    assert lost(end_one) == 0


def test_nor_when_a_thread_connects_to_redis() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=MANY) as server:
        address = server.getsockname()[:2]

        def connect() -> None:
            connection = Connection(Target("redis", (address,)), address)
            try:
                while not connection.is_plain:
                    connection.step()
            except HoldfastError:
                raise AssertionError from None
            finally:
                connection.give_up()

        assert lost(connect) == 0


def test_what_is_borrowed_of_libpq_stays_open(plain: socket.socket) -> None:
    """Closed by us and then by libpq, its number would be taken from whoever has it by then."""
    number = plain.fileno()
    known = os.fstat(number)

    def borrow() -> None:
        with _borrowed(number) as line:
            line.fileno()

    assert lost(borrow) == 0
    assert os.path.samestat(os.fstat(number), known)


def test_the_other_is_of_the_same_connection(plain: socket.socket) -> None:
    same = another(plain.fileno())
    assert same.fileno() != plain.fileno()
    assert same.getpeername() == plain.getpeername()
    same.close()
    read, write = pipe()
    with read, write:
        os.write(write.fileno(), b"x")
        assert os.read(read.fileno(), 1) == b"x"
