"""A network between a client and its server in which, on command, the connections that there are vanish without a word."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class BlackHole:
    """One more question arrives, no answer comes, and neither side is told of the other's end. New connections are good."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._good: set[socket.socket] = set()  # the servers' ends
        self._last_question: set[socket.socket] = set()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._ends += [client, server]
                self._good.add(server)
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(source, sink, server), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if server in self._good:
                    sink.sendall(data)
                elif sink in self._last_question:
                    self._last_question.discard(sink)
                    sink.sendall(data)
        if server in self._good:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_WR)

    def swallow(self) -> None:
        self._last_question = set(self._good)
        self._good.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
