"""kazoo's connection thread, and all that we use of kazoo beyond what it promises: here, and nowhere else.

tests/stores/zookeeper/test_kazoo.py looks at each of these things, and fails first when kazoo changes.

kazoo's public calls wait in its own way and pass every answer through a second thread. What they all rest on is a queue of
requests that its connection thread sends, with requests as kazoo itself writes them: so do we. What we do otherwise:

* Whoever asks never blocks. kazoo wakes its thread by a byte a request through a pair of blocking sockets, which nobody reads
  while there is no connection: some 300 requests later the next one, and an event loop with it, hangs until there is.
* Whatever the server sends, the thread that reads it lives on. kazoo's would end, with a traceback and its session, when one
  answer was lost in the server, as happens after an election: that is a connection lost, and what was asked nobody knows.
* An interruption is let through, and nothing is left half asked. kazoo would take it for a closed connection; and a request
  whose byte was not sent any more would be sent in place of the next, and so on for ever.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import socket
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from kazoo import exceptions
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import AUTH_XID
from kazoo.protocol.serialization import CloseInstance, Create2
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from ...drivers.base import boot_time
from ...errors import Misuse
from .url import Target

# kazoo logs what it sends, passwords included, at DEBUG: not to be had here whatever the application has set.
_log = logging.getLogger("holdfast.kazoo")
_log.setLevel(logging.ERROR)

MOST = 1 << 26  # bytes of a reply: a list of names, or of those in line

_OVER = {
    KeeperState.AUTH_FAILED: exceptions.AuthFailedError,
    KeeperState.CLOSED: exceptions.ConnectionClosedError,
    KeeperState.EXPIRED_SESSION: exceptions.SessionExpiredError,
}


class CreateContainer(Create2):  # type: ignore[misc]
    """A node that the server removes when its last child has gone. kazoo has no request for it."""

    type = 19
    FLAGS = 4


class Reply(Protocol):
    """What is told the answer, in kazoo's thread; a failure perhaps twice."""

    def set(self, value: Any = None) -> None: ...
    def set_exception(self, value: Any = None) -> None: ...


class Waker:
    """Both ends of what kazoo's thread listens to besides the server: there is something to read while requests wait.

    kazoo reads after every request that it has sent; then we look whether there are more.
    """

    def __init__(self) -> None:
        self.waiting: Callable[[], bool] = bool
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)

    def fileno(self) -> int:
        return self._read.fileno()

    def send(self, byte: bytes = b"\0") -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it never will
            self._write.send(byte)

    def recv(self, size: int) -> None:
        with contextlib.suppress(OSError):
            self._read.recv(4096)
        if self.waiting():
            self.send()

    def close(self) -> None:
        self._read.close()
        self._write.close()


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    def __init__(self, target: Target) -> None:
        super().__init__()
        self.patience = target.timeout
        self._tls = tls_context(target) if target.tls else None
        self.waker = Waker()
        self.trouble: OSError | None = None
        self.give_up = math.inf  # when who has not let us in by then is left for another

    def select(self, *args: Any) -> Any:
        """kazoo waits so long for each piece: who greets a letter at a time would keep it from all other hosts, for ever."""
        *sockets, timeout = args
        left = self.give_up - boot_time()
        return super().select(*sockets, min(timeout, left)) if left > 0 else ([], [], [])

    def start(self) -> None:
        super().start()
        atexit.unregister(self.stop)  # a forked child would wait at its exit for threads that it does not have

    def create_socket_pair(self) -> tuple[Waker, Waker]:
        return self.waker, self.waker

    def create_connection(self, address: Any, hostname: str, timeout: float, **_: Any) -> Any:
        """kazoo would give a host that does not answer the whole session to do so; there are others."""
        made: socket.socket | None = None
        try:
            made = socket.create_connection(address, min(timeout, self.patience))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                made = self._tls.wrap_socket(made, server_hostname=hostname)
        except OSError as error:
            self.trouble = error
            if made is not None:
                made.close()
            raise
        self.trouble = None
        return made


def tls_context(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca or None)
        if target.cert:
            context.load_cert_chain(target.cert, target.cert_key)
    except OSError as error:
        raise Misuse(f"TLS with ZooKeeper at {target.shown()}: {error}; see the options ca, cert, cert_key") from error
    context.check_hostname = target.check_hostname
    return context


class Client(KazooClient):  # type: ignore[misc]
    """One connection after the other, to one host after the other. `connected` hears, in kazoo's thread, of each: the id of its
    session, and for how many seconds the server agreed to keep it."""

    def __init__(self, target: Target, seconds: float, connected: Callable[[int, float], None]) -> None:
        handler = _Handler(target)
        password = target.password.plain
        sasl = {"mechanism": "DIGEST-MD5", "username": target.username, "password": password}
        super().__init__(
            hosts=target.hosts,
            timeout=seconds,
            handler=handler,
            auth_data=[("digest", f"{target.username}:{password}")] if target.auth == "digest" else None,
            sasl_options=sasl if target.auth == "sasl" else None,
            connection_retry=KazooRetry(max_tries=-1, delay=0.02, backoff=2, max_delay=0.5),
            command_retry=KazooRetry(max_tries=0),
            logger=_log,
        )
        handler.waker.waiting = lambda: bool(self._queue)
        self._handler = handler
        self._waker = handler.waker
        self._hears = connected
        self._seconds = seconds
        self._connect_only = self._connection._connect
        self._connection._connect = self._connect_and_tell
        self._read_only = self._connection._read_socket
        self._connection._read_socket = self._read
        self._read_all = self._connection._read
        self._connection._read = self._read_bounded
        self._read_any_header = self._connection._read_header
        self._connection._read_header = self._read_header

    def _read_bounded(self, length: int, timeout: float) -> Any:
        if not 0 <= length <= MOST:
            raise exceptions.ConnectionDropped(f"a reply of {length} bytes was announced")
        return self._read_all(length, timeout)

    def _read_header(self, timeout: float) -> Any:
        """kazoo would take "you are logged in", unasked, for the answer to whatever was asked last."""
        header, *rest = self._read_any_header(timeout)
        if header.xid == AUTH_XID and self._pending and self._pending[0][2] != AUTH_XID:
            raise exceptions.ConnectionDropped("a login is confirmed that nobody asked for")
        return (header, *rest)

    def _connect_and_tell(self, *args: Any) -> Any:
        patience = self._handler.patience
        self._handler.give_up = boot_time() + patience + max(patience, self._seconds / len(self.hosts))
        try:
            answer = self._understood(self._connect_only, *args)
        finally:
            self._handler.give_up = math.inf
        self._hears(self._session_id, answer[0] * 1.5 / 1000)  # its read timeout: two thirds of what was agreed on
        return answer

    def _read(self, *args: Any) -> Any:
        return self._understood(self._read_only, *args)

    def _understood(self, read: Callable[..., Any], *args: Any) -> Any:
        try:
            return read(*args)
        except (exceptions.KazooException, self.handler.timeout_exception, OSError):
            raise  # which kazoo knows what to do with
        except Exception as error:
            raise exceptions.ConnectionDropped(f"the server's answer makes no sense: {error!r}") from error

    @property
    def refused(self) -> bool:
        return bool(self._state == KeeperState.AUTH_FAILED)

    @property
    def trouble(self) -> OSError | None:
        """Why the last host could not be connected to."""
        found: OSError | None = self.handler.trouble
        return found

    def call(self, request: Any, reply: Reply) -> None:
        """Send, without waiting. `reply` is told what came of it; or that the connection ended first, and nobody knows."""
        queue = self._queue
        if self._state not in _OVER:
            try:
                queue.append((request, reply))
                self._waker.send()
            except BaseException:
                self._waker.send()  # what is in the queue must not wait for whoever asks next
                raise
            if self._state not in _OVER and self._queue is queue:
                return
        reply.set(_OVER.get(self._state, exceptions.ConnectionLoss)())

    def hang_up(self) -> None:
        """kazoo's thread notices, and connects to the next host."""
        with contextlib.suppress(OSError, AttributeError):
            self._connection._socket.shutdown(socket.SHUT_RDWR)

    def end(self, *, keep: bool) -> None:
        """Blocks for a moment. `keep`: without a word, so that the session lives on for its time."""
        with contextlib.suppress(Exception):
            if keep:
                self._stopped.set()
                self.hang_up()
                self._safe_close()
            elif not self._stopped.is_set():
                # As kazoo's stop(); but that listens for ever to whoever talks on, or is in the middle of a word.
                self._stopped.set()
                self._queue.append((CloseInstance, None))
                self._waker.send()
                self._connection.connection_stopped.wait(self._seconds)
                self.hang_up()
                self._safe_close()
        with contextlib.suppress(Exception):
            self.close()
