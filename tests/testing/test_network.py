"""A URL with a proxy before every server that it names: for the faults of the conformance suite."""

from __future__ import annotations

import socket
import threading

import pytest

from holdfast.testing.conformance import Network


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("redis://127.0.0.1:6379?prefix=x", [("127.0.0.1", 6379)]),
        ("mysql://root:p:1@127.0.0.1:3306/db:1", [("127.0.0.1", 3306)]),
        ("etcd://10.0.0.1:2379,10.0.0.2:2379/a", [("10.0.0.1", 2379), ("10.0.0.2", 2379)]),
        ("postgresql://u@[::1]:5432/db", [("::1", 5432)]),
    ],
)
def test_every_address_of_a_url_leads_through_a_proxy_and_the_rest_stays(
    url: str, addresses: list[tuple[str, int]]
) -> None:
    with Network(url) as network:
        assert [proxy.target for proxy in network.proxies] == addresses
        expected = url
        for (host, port), proxy in zip(addresses, network.proxies, strict=True):
            written = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            expected = expected.replace(written, f"127.0.0.1:{proxy.port}", 1)
        assert network.url == expected
        assert network


@pytest.mark.parametrize("url", ["memory://space", "sqlite:///tmp/a:1/locks.db", "memory://"])
def test_a_url_that_names_no_server_has_no_network(url: str) -> None:
    with Network(url) as network:
        assert not network
        assert network.url == url


def test_what_is_caught_is_counted_over_all_servers_from_the_next_piece_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_echo, args=(server,), daemon=True).start()
        port = server.getsockname()[1]
        with Network(f"echo://127.0.0.1:{port},127.0.0.1:{port}") as network:
            clients = [socket.create_connection(proxy.address, timeout=5) for proxy in network.proxies]
            catch = network.hold_answers(1)
            clients[0].sendall(b"first")
            assert clients[0].recv(9) == b"first"
            assert not catch.caught
            clients[1].sendall(b"second")
            assert catch.caught_before(lambda: False)
            network.heal()
            assert clients[1].recv(9) == b"second"
            for client in clients:
                client.close()


def _echo(server: socket.socket) -> None:
    for _ in range(2):
        connection, _ = server.accept()
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(99):
            connection.sendall(data)
