"""The proxy between real sockets: every mode in both directions, one-shot forms, ends of streams, and no leaks."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.testing.proxy import Direction, Proxy
from holdfast.testing.proxy.proxy import ProxyError

DEADLINE = 10.0


class Ends:
    """A listening server socket, a proxy before it, and connected pairs through the proxy."""

    def __init__(self, buffer: int = 1 << 20) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(DEADLINE)
        self.proxy = Proxy(self.listener.getsockname(), buffer=buffer)
        self.sockets: list[socket.socket] = []

    def pair(self) -> tuple[socket.socket, socket.socket]:
        client = socket.create_connection(self.proxy.address, DEADLINE)
        server, _ = self.listener.accept()
        server.settimeout(DEADLINE)
        self.sockets += [client, server]
        return client, server

    def close(self) -> None:
        for sock in [*self.sockets, self.listener]:
            sock.close()
        self.proxy.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


class Way:
    """One direction through a connected pair: what a test of a mode needs, whichever way the bytes go."""

    def __init__(self, ends: Ends, name: str) -> None:
        self.proxy = ends.proxy
        client, server = ends.pair()
        self.direction: Direction = getattr(ends.proxy, name)
        self.source, self.sink = (client, server) if name == "to_server" else (server, client)

    def gets(self, expected: bytes) -> bool:
        """Exactly these bytes come next. Whether anything was lost before shows in the first of them."""
        received = b""
        while len(received) < len(expected):
            data = self.sink.recv(len(expected) - len(received))
            if not data:
                break
            received += data
        assert received == expected
        return True

    def is_silent(self) -> bool:
        """Nothing waits to be read. Only meaningful after an event showed that the proxy has dealt with the bytes."""
        self.sink.setblocking(False)
        try:
            return not self.sink.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.sink.settimeout(DEADLINE)


@pytest.fixture(params=["to_server", "to_client"])
def way(ends: Ends, request: pytest.FixtureRequest) -> Way:
    return Way(ends, request.param)


def test_bytes_flow_unchanged_and_in_order(way: Way) -> None:
    data = os.urandom(3_000_000)
    sender = threading.Thread(target=way.source.sendall, args=(data,))
    sender.start()
    assert way.gets(data)
    sender.join(DEADLINE)
    assert way.direction.seen.bytes == len(data)


def test_held_bytes_wait_and_then_flow_in_order(way: Way) -> None:
    way.direction.hold()
    way.source.sendall(b"one")
    way.direction.wait_for_caught(1)
    way.source.sendall(b"two")
    way.direction.wait_for_bytes(6)
    assert way.is_silent()
    way.direction.flow()
    way.source.sendall(b"three")
    assert way.gets(b"onetwothree")


def test_dropped_bytes_never_arrive_and_later_ones_do(way: Way) -> None:
    way.direction.drop()
    way.source.sendall(b"lost")
    way.direction.wait_for_bytes(4)
    way.direction.flow()
    way.source.sendall(b"kept")
    assert way.gets(b"kept")
    assert way.direction.caught == (1, 4)


def test_only_the_next_chunk_is_dropped(way: Way) -> None:
    way.direction.drop(chunks=1)
    way.source.sendall(b"lost")
    way.direction.wait_for_caught(1)
    way.source.sendall(b"kept")
    assert way.gets(b"kept")


def test_only_chunks_that_match_are_dropped(way: Way) -> None:
    way.direction.drop(when=lambda data: b"SET" in data)
    for count, request in enumerate((b"GET a", b"SET b", b"GET c", b"SET d", b"GET e"), 1):
        way.source.sendall(request)
        way.direction.wait_for_chunks(count)
    assert way.gets(b"GET aGET cGET e")
    assert way.direction.caught.chunks == 2


def test_delayed_bytes_come_late_and_in_order(way: Way) -> None:
    way.direction.delay(0.2)
    sent = time.monotonic()
    way.source.sendall(b"slow")
    way.direction.wait_for_caught(1)
    way.direction.flow()
    way.source.sendall(b"quick")
    assert way.gets(b"slowquick")
    assert time.monotonic() - sent >= 0.2


def test_duplicated_bytes_come_twice(way: Way) -> None:
    way.direction.duplicate(chunks=1)
    way.source.sendall(b"again")
    way.direction.wait_for_caught(1)
    way.source.sendall(b"once")
    assert way.gets(b"againagainonce")


def test_what_is_held_is_lost_if_the_next_command_is_drop(way: Way) -> None:
    way.direction.hold()
    way.source.sendall(b"lost")
    way.direction.wait_for_caught(1)
    way.direction.drop()
    way.direction.flow()
    way.source.sendall(b"kept")
    assert way.gets(b"kept")


def test_the_end_of_a_stream_waits_behind_what_is_held(way: Way) -> None:
    way.direction.hold()
    way.source.sendall(b"last words")
    way.source.close()
    way.direction.wait_for_caught(1)
    assert way.is_silent()
    assert way.proxy.connections == 1
    way.direction.flow()
    assert way.gets(b"last words")
    assert way.sink.recv(1) == b""


def test_the_end_of_a_stream_passes_while_bytes_are_dropped(way: Way) -> None:
    way.direction.drop()
    way.source.sendall(b"lost")
    way.source.close()
    assert way.sink.recv(1) == b""


def test_a_request_lands_although_its_client_gave_up_with_a_reset(ends: Ends) -> None:
    client, server = ends.pair()
    ends.proxy.to_server.hold(chunks=1)
    client.sendall(b"ghost claim")
    ends.proxy.to_server.wait_for_caught(1)
    server.sendall(b"unread")
    ends.proxy.to_client.wait_for_bytes(6)
    client.close()
    other_client, other_server = ends.pair()
    other_client.sendall(b"next claim")
    assert other_server.recv(100) == b"next claim"
    ends.proxy.to_server.flow()
    assert server.recv(100) == b"ghost claim"
    assert server.recv(100) == b""


def test_what_is_held_of_a_client_that_was_hung_up_on_arrives_when_it_is_delivered(ends: Ends) -> None:
    (client, server), (other, far) = ends.pair(), ends.pair()
    ends.proxy.to_server.hold(when=lambda _: True)
    client.sendall(b"late")
    ends.proxy.to_server.wait_for_caught(1)
    ends.proxy.hang_up()
    assert client.recv(1) == other.recv(1) == b""
    again, anew = ends.pair()
    again.sendall(b"again")
    ends.proxy.to_server.wait_for_caught(2)
    ends.proxy.deliver()
    assert server.recv(100) == b"late"
    server.sendall(b"answer")
    ends.proxy.wait_until(lambda: ends.proxy._late_answers == 1)
    assert ends.proxy.late_answers == 1
    assert far.recv(1) == b""
    anew.settimeout(0.05)
    with pytest.raises(TimeoutError):
        anew.recv(1)
    ends.proxy.flow()
    anew.settimeout(5)
    assert anew.recv(100) == b"again"


@pytest.mark.parametrize("reset", [False, True])
def test_cut_ends_every_connection_and_new_ones_work(ends: Ends, reset: bool) -> None:
    pairs = [ends.pair(), ends.pair()]
    ends.proxy.to_client.hold()
    pairs[0][1].sendall(b"never to arrive")
    ends.proxy.to_client.wait_for_caught(1)
    ends.proxy.cut(reset=reset)
    assert ends.proxy.connections == 0
    for sock in (sock for pair in pairs for sock in pair):
        if reset:
            with pytest.raises(ConnectionResetError):
                sock.recv(1)
        else:
            assert sock.recv(1) == b""
    ends.proxy.flow()
    client, server = ends.pair()
    server.sendall(b"hello")
    assert client.recv(100) == b"hello"
    assert ends.proxy.accepted == 3


def test_a_client_that_hung_up_is_told_from_a_server_that_has_not(ends: Ends) -> None:
    client, server = ends.pair()
    ends.pair()
    client.close()
    ends.proxy.wait_until(lambda: ends.proxy.clients == 1)
    assert ends.proxy.connections == 2
    server.close()
    ends.proxy.wait_until(lambda: ends.proxy.connections == 1)


def test_refusing_concerns_new_connections_only(ends: Ends) -> None:
    client, server = ends.pair()
    ends.proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(ends.proxy.address, DEADLINE)
    client.sendall(b"still here")
    assert server.recv(100) == b"still here"
    ends.proxy.accept()
    ends.pair()
    assert ends.proxy.connections == 2


def test_a_client_is_reset_when_no_server_listens(ends: Ends) -> None:
    ends.listener.close()
    # The reset may overtake the answer of connect() itself, so both calls may be the one that is told.
    with pytest.raises(ConnectionResetError), socket.create_connection(ends.proxy.address, DEADLINE) as client:
        client.recv(1)
    ends.proxy.wait_until(lambda: ends.proxy.connections == 0)


def test_the_proxy_is_idle_while_it_waits_for_a_slow_reader(way: Way) -> None:
    while way.direction.seen.bytes - way.direction.passed.bytes < 1 << 20:
        fill(way.source)
    busy = time.process_time()
    time.sleep(0.3)  # measured, not synchronised on: a loop that spins burns most of it
    assert time.process_time() - busy < 0.15


@pytest.mark.parametrize("name", ["to_server", "to_client"])
def test_what_is_held_is_bounded(name: str) -> None:
    ends = Ends(buffer=1000)
    try:
        way = Way(ends, name)
        way.direction.hold()
        sent = fill(way.source)
        way.direction.wait_for_bytes(1000)
        assert way.direction.seen.bytes <= 1000 + 65536
        way.direction.flow()
        assert way.gets(b"x" * sent)
    finally:
        ends.close()


def fill(sock: socket.socket) -> int:
    """Send until the socket takes no more."""
    sock.setblocking(False)
    sent = 0
    try:
        while True:
            sent += sock.send(b"x" * 65536)
    except BlockingIOError:
        return sent


def test_no_byte_is_lost_or_moved_while_modes_change_under_many_connections(ends: Ends) -> None:
    pairs = [ends.pair() for _ in range(6)]
    data = [os.urandom(300_000) for _ in pairs]
    received = [b"" for _ in pairs]

    def send(index: int) -> None:
        for at in range(0, len(data[index]), 5000):
            pairs[index][0].sendall(data[index][at : at + 5000])
        pairs[index][0].shutdown(socket.SHUT_WR)

    def receive(index: int) -> None:
        with pairs[index][1].makefile("rb") as stream:
            received[index] = stream.read()

    threads = [threading.Thread(target=act, args=(index,)) for act in (send, receive) for index in range(len(pairs))]
    for thread in threads:
        thread.start()
    for _ in range(30):
        ends.proxy.to_server.hold()
        ends.proxy.to_server.delay(0.001)
        ends.proxy.to_server.hold(chunks=2)
        ends.proxy.to_server.flow()
    for thread in threads:
        thread.join(DEADLINE)
    assert received == data


def test_a_predicate_may_give_a_command(ends: Ends) -> None:
    client, server = ends.pair()

    def lose_the_answer(data: bytes) -> bool:
        if data == b"claim":
            ends.proxy.to_client.drop(chunks=1)
        return False

    ends.proxy.to_server.drop(when=lose_the_answer)
    client.sendall(b"claim")
    assert server.recv(100) == b"claim"
    server.sendall(b"granted")
    ends.proxy.to_client.wait_for_caught(1)
    server.sendall(b"granted again")
    assert client.recv(100) == b"granted again"


def test_a_predicate_that_raises_is_reported_to_the_test(ends: Ends) -> None:
    client, _ = ends.pair()
    ends.proxy.to_server.drop(when=lambda data: 1 // len(data[5:]) == 0)
    client.sendall(b"short")
    with pytest.raises(ProxyError, match="ZeroDivisionError"):
        ends.proxy.to_server.wait_for_caught(1)
    with pytest.raises(ProxyError, match="ZeroDivisionError"):
        ends.proxy.close()


def test_a_wait_gives_up_and_says_what_it_waited_for(ends: Ends) -> None:
    with pytest.raises(TimeoutError, match=r"3 byte\(s\) to the server since the last command; there were 0"):
        ends.proxy.to_server.wait_for_bytes(3, timeout=0.01)


@pytest.mark.parametrize(
    "command",
    [
        lambda direction: direction.delay(-1),
        lambda direction: direction.delay(float("inf")),
        lambda direction: direction.delay(float("nan")),
        lambda direction: direction.drop(chunks=0),
    ],
)
def test_senseless_commands_are_refused(ends: Ends, command: Callable[[Direction], None]) -> None:
    with pytest.raises(ValueError, match=r"delay|chunks"):
        command(ends.proxy.to_server)


def test_a_closed_proxy_refuses_commands_and_connections(ends: Ends) -> None:
    client, _ = ends.pair()
    ends.proxy.close()
    with pytest.raises(ProxyError, match="closed"):
        ends.proxy.to_server.hold()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(ends.proxy.address, DEADLINE)
    assert client.recv(1) == b""


def test_no_thread_and_no_socket_outlives_the_proxy() -> None:
    threads, files = set(threading.enumerate()), set(os.listdir("/proc/self/fd"))
    ends = Ends()
    for _ in range(3):
        client, _server = ends.pair()
        ends.proxy.to_server.hold()
        client.sendall(b"held for ever")
        ends.proxy.to_server.wait_for_caught(1)
    ends.proxy.cut()
    ends.pair()
    ends.proxy.refuse()
    ends.close()
    assert set(threading.enumerate()) == threads
    assert set(os.listdir("/proc/self/fd")) == files
