"""Plain sockets for threads. A thread takes a connection for one conversation and puts it back.

Written on sockets and hiredis, not on redis-py: measured here, redis-py's client adds 45 µs to a round trip of 45, and
retries by itself (a lost reply to SET NX then reads as "somebody else has it"). Nothing is retried here.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import time
import weakref
from collections.abc import Sequence

from ...errors import HoldfastError, Misuse, Unavailable
from .ear import ThreadEar
from .keys import pack
from .replies import Reader, Reply, ReplyError, check_greeting, explained, greeting
from .url import Address, Target, show

_FRESH = 0.1  # a connection that lay longer may have been closed by the server meanwhile: look before use
_CHUNK = 8192
_clock = time.monotonic
_BROKEN = (OSError, EOFError, ssl.SSLError)


class Connection:
    """One socket. After any failure in mid-conversation it is closed: the rest of its replies belongs to nobody."""

    def __init__(self, target: Target, address: Address, timeout: float, *, known: bool = False) -> None:
        self.address = address
        self._reader = Reader()
        self._timeout = 0.0
        self.used = time.monotonic()
        try:
            self._socket = _open(target, address, timeout)
        except ssl.SSLError as error:
            raise Misuse(
                f"no TLS with Redis at {show(address)}: {error}; see the options ca, cert, cert_key"
            ) from error
        except OSError as error:
            raise Unavailable(f"cannot connect to Redis at {show(address)}: {error}") from error
        # Forgotten by its user (a connection that was never closed), it goes without complaint.
        weakref.finalize(self, self._socket.close).atexit = False
        self._plain = not isinstance(self._socket, ssl.SSLSocket)
        if self._plain:
            # The kernel keeps the time: Python's own timeout would cost a poll() before every recv().
            self._socket.settimeout(None)
        self.put, self.get = self._socket.sendall, self._socket.recv  # looked up once: see BlockingWire.talk
        self.limit(timeout)
        self.unread = 0  # replies to a greeting that nobody waits for
        if words := greeting(target, known=known):
            try:
                # A login that was taken before need not be waited for: so a release follows its claim to a server that
                # has fallen silent, on whatever connection, and no ghost is left when it wakes.
                if known and not target.database and target.kind != "sentinel":
                    self.send(b"".join(words))
                    self.unread = len(words)
                else:
                    check_greeting(target, address, self.ask_all(words))
            except BaseException:
                self.close()
                raise

    def limit(self, timeout: float) -> None:
        """How long a send or a receive may take from now on."""
        if timeout == self._timeout:
            return
        self._timeout = timeout
        timeout = max(timeout, 0.001)
        if self._plain:
            packed = struct.pack("ll", int(timeout), int(timeout % 1 * 1_000_000))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, packed)
        else:
            self._socket.settimeout(timeout)

    def ask(self, request: bytes) -> Reply:
        return self.ask_all((request,))[0]

    def finish(self, data: bytes) -> Reply:
        """The reply that begins with `data`, of a request that was put by hand."""
        self._reader.feed(data or _end())
        reply = self._reader.gets()
        return reply if reply is not False else self._rest(1)[0]

    def ask_all(self, requests: Sequence[bytes]) -> list[Reply]:
        """All are sent before the first reply is read."""
        try:
            self._socket.sendall(b"".join(requests))
            return self._rest(len(requests))
        except _BROKEN as error:
            raise self.broken(error) from error

    def send(self, request: bytes) -> None:
        try:
            self._socket.sendall(request)
        except _BROKEN as error:
            raise self.broken(error) from error

    def receive(self) -> Reply:
        """The next reply, or False if none came in time."""
        reply = self._next()
        if reply is not False:
            return reply
        try:
            self._reader.feed(self._socket.recv(_CHUNK) or _end())
        except (BlockingIOError, TimeoutError):
            return False
        except _BROKEN as error:
            raise self.broken(error) from error
        return self._next()

    def _next(self) -> Reply:
        while (reply := self._reader.gets()) is not False and self.unread:
            self.unread -= 1
        return reply

    def receive_now(self) -> Reply:
        """The next reply, or False if it is not there yet. Called when there is something to read."""
        reply = self._next()
        if reply is not False:
            return reply
        try:
            # MSG_DONTWAIT, since a TLS record may turn out to hold no data; an SSLSocket takes no flags, and may wait.
            data = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT) if self._plain else self._socket.recv(_CHUNK)
            self._reader.feed(data or _end())
        except (BlockingIOError, TimeoutError):
            return False
        except _BROKEN as error:
            raise self.broken(error) from error
        return self._next()

    def fileno(self) -> int:
        return self._socket.fileno()

    def _rest(self, count: int) -> list[Reply]:
        deadline = time.monotonic() + self._timeout
        replies: list[Reply] = []
        while len(replies) < count:
            reply = self._reader.gets()
            if reply is not False:
                if self.unread:
                    self.unread -= 1
                else:
                    replies.append(reply)
                continue
            if time.monotonic() > deadline:
                raise TimeoutError
            self._reader.feed(self._socket.recv(_CHUNK) or _end())
        return replies

    def broken(self, error: Exception) -> Unavailable:
        where = show(self.address)
        if isinstance(error, (BlockingIOError, TimeoutError)):
            return Unavailable(f"Redis at {where} did not answer within {self._timeout:g} s")
        return Unavailable(f"lost the connection to Redis at {where}: {error}")

    def is_stale(self) -> bool:
        """Did the server close it, or say something unasked, while it lay idle?"""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def hang_up(self) -> None:
        """End the conversation under a thread that may be reading; it, or somebody else, has still to close."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def _end() -> bytes:
    raise EOFError("the server closed it")


def _open(target: Target, address: Address, timeout: float) -> socket.socket:
    host, port = address
    if not port:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout)
        try:
            connection.connect(host)
        except BaseException:
            connection.close()
            raise
        return connection
    connection = socket.create_connection(address, timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if not target.tls:
        return connection
    try:
        return tls_context(target).wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


def tls_context(target: Target) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=target.ca or None)
        if target.cert:
            context.load_cert_chain(target.cert, target.cert_key or None)
    except OSError as error:
        raise Misuse(f"cannot read the certificates named in the URL (ca, cert, cert_key): {error}") from error
    return context


def dial(target: Target, timeout: float, *, known: bool = False) -> Connection:
    """To the server, to any node of a cluster, or to the one that the Sentinels call master."""
    deadline = time.monotonic() + timeout
    if target.kind != "sentinel":
        *others, last = target.addresses
        for number, address in enumerate(others):
            share = (deadline - time.monotonic()) / (len(others) + 1 - number)
            with contextlib.suppress(Unavailable):
                return Connection(target, address, share, known=known)
        return Connection(target, last, deadline - time.monotonic() if others else timeout, known=known)
    failures = []
    for sentinel in target.addresses:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        try:
            return Connection(target, _master(target, sentinel, left / 2), left)
        except Unavailable as error:
            failures.append(str(error))
    raise Unavailable(f"no Sentinel led to a master of {target.service!r}: {'; '.join(failures)}")


def _master(target: Target, sentinel: Address, timeout: float) -> Address:
    asked = target._replace(
        kind="redis", username=target.sentinel_username, password=target.sentinel_password, database=0
    )
    connection = Connection(asked, sentinel, timeout)
    try:
        return master_address(target, sentinel, connection.ask(master_question(target)))
    finally:
        connection.close()


def master_question(target: Target) -> bytes:
    return pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service)


def master_address(target: Target, sentinel: Address, reply: Reply) -> Address:
    if isinstance(reply, ReplyError):
        raise explained(reply, show(sentinel))
    if reply is None:
        raise Unavailable(f"the Sentinel at {show(sentinel)} knows no service {target.service!r}")
    host, port = reply
    return host.decode(), int(port)


class BlockingWire:
    """The connections of one store: as many as threads talk at once, one for renewals, one ear."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.where = target.shown()
        self._idle: list[Connection] = []
        self._renewing: Connection | None = None
        self._known = False
        self.ear = ThreadEar(lambda: dial(target, target.timeout), target.prefix)

    def talk(self, request: bytes) -> Reply:
        """All in one function: between two round trips a processor has forgotten our code, and every call costs double."""
        idle = self._idle
        try:
            connection = idle.pop()
            now = _clock()
            if now - connection.used > _FRESH:
                idle.append(connection)
                connection = self._take()
            connection.used = now
        except IndexError:
            connection = self._take()
        try:
            if connection.unread:
                reply = connection.ask(request)
            else:
                connection.put(request)
                data = connection.get(_CHUNK)
                if data == b":1\r\n":  # what a release is told
                    reply = 1
                else:  # a whole number, as a claim is told; or something rarer
                    whole = data[:1] == b":" and data[-1] == 10
                    reply = int(data[1:-2]) if whole else connection.finish(data)
        except BaseException as error:
            if isinstance(error, _BROKEN) and not isinstance(error, Unavailable):
                lost = connection.broken(error)
                self._drop(connection, lost)
                raise lost from error
            self._drop(connection, error)
            raise
        idle.append(connection)
        return reply

    async def ask(self, request: bytes) -> Reply:
        return self.talk(request)

    async def ask_all(self, requests: Sequence[bytes]) -> list[Reply]:
        """In order, on one connection, in one piece."""
        connection = self._take()
        try:
            replies = connection.ask_all(requests)
        except BaseException as error:
            self._drop(connection, error)
            raise
        self._idle.append(connection)
        return replies

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """On a connection that user work cannot keep busy. Used by one thread, the renewer."""
        deadline = time.monotonic() + within
        connection, self._renewing = self._renewing, None
        if connection is None or connection.is_stale():
            if connection is not None:
                connection.close()
            connection = dial(self.target, min(within, self.target.timeout))
        try:
            connection.limit(max(0.001, min(deadline - time.monotonic(), self.target.timeout)))
            replies = connection.ask_all(requests)
        except BaseException:
            connection.close()
            raise
        self._renewing = connection
        return replies

    async def parts(self) -> Sequence[BlockingWire]:
        return [self]

    def reset(self) -> None:
        """The server is not what it was (a failover): connect anew."""
        while self._idle:
            with contextlib.suppress(IndexError):
                self._idle.pop().close()
        connection, self._renewing = self._renewing, None
        if connection is not None:
            connection.close()
        self.ear.lose()

    def forked(self) -> None:
        for connection in (*self._idle, *([self._renewing] if self._renewing else [])):
            connection.close()  # this closes our descriptor only; not a byte is sent
        self._idle = []
        self._renewing = None
        self.ear.forked()

    async def close(self) -> None:
        self.reset()

    def _take(self) -> Connection:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = dial(self.target, self.target.timeout, known=self._known)
                self._known = True
                return connection
            now = _clock()
            fresh = now - connection.used < _FRESH
            connection.used = now
            if fresh or not connection.is_stale():
                return connection
            connection.close()

    def _drop(self, connection: Connection, error: BaseException) -> None:
        connection.close()
        if isinstance(error, HoldfastError):
            # What broke one has most likely broken all that lie here; the next conversation starts afresh.
            while self._idle:
                with contextlib.suppress(IndexError):
                    self._idle.pop().close()
