"""What we use of kazoo beyond what it promises is as `wire.py` takes it to be: when kazoo changes, this fails first."""

from __future__ import annotations

import inspect
import socket
from collections import deque
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Create2, Exists
from kazoo.protocol.states import KeeperState

from holdfast.drivers.base import boot_time, finish
from holdfast.drivers.threads import Threads
from holdfast.stores.zookeeper.session import Session
from holdfast.stores.zookeeper.url import parse
from holdfast.stores.zookeeper.wire import Client, CreateContainer, Waker
from holdfast.testing import servers

from ..hands import SOON, Background

Mistake = Callable[[pytest.MonkeyPatch], None]


class Interruption(BaseException):
    pass


class Answer:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def set(self, value: Any = None) -> None:
        self.told.append(value)

    set_exception = set


@pytest.fixture
def nowhere() -> Iterator[Client]:
    """A client whose server is not there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    client = Client(parse(f"zookeeper://127.0.0.1:{port}"), 10.0, lambda *_: None)
    client.start_async()
    yield client
    client.end(keep=False)


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_parts_of_kazoo_that_we_use_are_there() -> None:
    client = KazooClient("127.0.0.1:1")
    assert type(client._queue) is type(client._pending) is deque
    assert client._state in vars(KeeperState).values()
    assert {"AUTH_FAILED", "CLOSED", "EXPIRED_SESSION"} <= vars(KeeperState).keys()
    assert isinstance(client._stopped, Event)
    assert client._session_id is None
    assert type(client._connection) is ConnectionHandler
    assert client._connection._socket is client._connection._read_sock is client._connection._write_sock is None
    assert parameters(client._safe_close) == []
    assert parameters(client._connection._connect) == ["host", "hostip", "port"]
    assert parameters(client._connection._read_socket) == ["read_timeout"]
    assert parameters(client._connection._read) == ["length", "timeout"]
    assert parameters(client._connection._read_header) == ["timeout"]
    assert "return header, b, offset" in inspect.getsource(ConnectionHandler._read_header)
    assert "connection_stopped" in vars(client._connection)
    stop = inspect.getsource(KazooClient.stop)
    for step in ("self._stopped.set()", "self._queue.append((CloseInstance, None))", "self._safe_close()"):
        assert step in stop, f"{step} is not a part of stopping any more"
    assert issubclass(client.handler.timeout_exception, Exception)
    assert parameters(KazooClient._call) == ["self", "request", "async_object"]  # which `Client.call` stands for
    assert {"create_connection", "create_socket_pair", "select", "start", "stop"} <= vars(
        SequentialThreadingHandler
    ).keys()
    assert inspect.getsource(ConnectionHandler).count("self.handler.select(") == 3
    assert "self.handler.select([self._socket], [], [], timeout)[0]" in inspect.getsource(ConnectionHandler._read)


def test_kazoo_takes_a_request_from_its_queue_and_then_reads_what_woke_it() -> None:
    taken = inspect.getsource(ConnectionHandler._send_request)
    order = [
        taken.index(step)
        for step in ("client._queue[0]", "client._queue.popleft()", "self._read_sock.recv(1)\n        client._pending")
    ]
    assert order == sorted(order)


def test_a_container_is_asked_for_as_any_node_is() -> None:
    acl: list[Any] = []
    plain, container = Create2("/x", b"", acl, 4), CreateContainer("/x", b"", acl, CreateContainer.FLAGS)
    assert plain.serialize() == container.serialize()
    assert (plain.type, container.type) == (15, 19)


def blocking(patch: pytest.MonkeyPatch) -> None:
    plain = Waker.__init__

    def begin(self: Any) -> None:
        plain(self)
        self._write.setblocking(True)

    patch.setattr(Waker, "__init__", begin)


@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "with blocking sockets"])
def test_whoever_asks_while_no_server_can_be_reached_is_not_held_up(
    mistaken: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Here it broke: 300 claims while the ensemble was away, and the event loop stood still for ever."""
    if mistaken:
        blocking(monkeypatch)
    client: Client = request.getfixturevalue("nowhere")

    def ask_much() -> None:
        for _ in range(5000):
            client.call(Exists("/x", None), Answer())

    asking = Background(ask_much)
    asking.join(1.0 if mistaken else SOON)
    assert asking.is_alive() is mistaken
    if mistaken:
        client._waker._read.close()  # it goes on, with an error that is not told


def test_what_is_asked_of_a_client_that_was_closed_is_answered(nowhere: Client) -> None:
    nowhere.end(keep=False)
    answer = Answer()
    nowhere.call(Exists("/x", None), answer)
    assert "ConnectionClosedError" in repr(answer.told)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with servers.start("zookeeper", "forceSync=no") as server:
        yield server.url


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    opened = Session(parse(url), 10.0, Threads())
    finish(opened.opened(boot_time() + SOON))
    yield opened
    opened.end()


class Unreliable:
    """A waker of which the first call is interrupted, or lost."""

    def __init__(self, waker: Waker, first: Callable[[], None]) -> None:
        self._waker = waker
        self._first: Callable[[], None] | None = first

    def send(self) -> None:
        first, self._first = self._first, None
        if first is not None:
            first()
        else:
            self._waker.send()


def interrupted() -> None:
    raise Interruption


@pytest.mark.server
def test_an_interruption_is_let_through_and_what_was_asked_is_asked(session: Session) -> None:
    """Here it broke: kazoo took Ctrl-C for a closed connection, and told nobody."""
    answer = Answer()
    session.client._waker = Unreliable(session.client._waker, interrupted)  # type: ignore[assignment]
    with pytest.raises(Interruption):
        session.client.call(Exists("/", None), answer)
    finish(session.ask([Exists("/", None)], boot_time() + SOON))
    assert len(answer.told) == 1


def one_request_a_byte(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Waker, "recv", lambda self, size: self._read.recv(1))


@pytest.mark.server
@pytest.mark.parametrize("mistaken", [False, True], ids=["as it is", "with one request a byte"])
def test_what_nobody_was_woken_for_goes_with_the_next(
    session: Session, mistaken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it broke: from then on every request was sent when the next was asked for."""
    if mistaken:
        one_request_a_byte(monkeypatch)
    session.client._waker = Unreliable(session.client._waker, lambda: None)  # type: ignore[assignment]
    session.client.call(Exists("/", None), Answer())
    answered = Background(lambda: finish(session.ask([Exists("/", None)], boot_time() + (0.5 if mistaken else SOON))))
    answered.join(SOON)
    assert (answered._error is not None) is mistaken
