"""A loopback port that stays ours from the moment it is chosen, so that two test processes never fight over one.

The usual recipe (bind port 0, read the number, close, hope) loses the port to whoever asks next. Here the socket stays
bound, but never listens. Linux then refuses the number to every `bind(0)` and to every outgoing connection, yet lets a
server bind it if both sides set SO_REUSEADDR, as every server of this package does. While no server listens, a client
is refused at once, which is just what a stopped server looks like; and a server that restarts finds its port free.
"""

from __future__ import annotations

import socket

from .closing import Closes

LOOPBACK = "127.0.0.1"


class ReservedPort(Closes):
    """A bound socket that never listens. Close it when the server that used the port has gone."""

    def __init__(self) -> None:
        self._socket = shared_socket()
        try:
            self._socket.bind((LOOPBACK, 0))
        except OSError:
            self._socket.close()
            raise
        self.number: int = self._socket.getsockname()[1]

    def close(self) -> None:
        self._socket.close()

    def __repr__(self) -> str:
        return f"ReservedPort({self.number})"


def shared_socket() -> socket.socket:
    """A TCP socket that may share a number with a ReservedPort (outside Linux that takes SO_REUSEPORT)."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return sock
