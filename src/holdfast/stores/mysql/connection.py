"""A blocking connection, through PyMySQL."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from io import FileIO
from typing import Any
from weakref import ref

from ...drivers.base import boot_time, finish
from ...drivers.descriptors import another_number
from ...drivers.dialing import look_up
from ...drivers.sockets import bear, take_back, void
from ...drivers.starting import start
from ...drivers.threads import ThreadBell
from ...errors import Misuse, NotInstalled, Unavailable
from ..kit.doubts import MOMENT
from .connections import PING, Connection, Doubted, Rows, connecting, greet, refused_logins, tls_context_of
from .faults import NONSENSE, ServerError, refusal
from .url import Target

try:
    # By their own modules, never as `pymysql.err`: after install_as_MySQLdb(), as Django's users have it, that is a second copy,
    # whose errors are not those that a connection raises.
    from pymysql.connections import Connection as TheirConnection
    from pymysql.constants import CLIENT, COMMAND, CR
    from pymysql.err import MySQLError, OperationalError
    from pymysql.protocol import FieldDescriptorPacket, MysqlPacket
except ImportError as error:
    raise NotInstalled("MySQL stores need the package PyMySQL: pip install 'holdfast[mysql]'") from error

MOST = 1 << 26  # bytes of an answer: a list of names
_SHORT = 4096  # bytes, for which there is room in the system's buffers
_QUIT = b"\x01\x00\x00\x00\x01"
_A_MOMENT = 0.001  # seconds that a conversation may be late, where to set a timeout would cost a system call


_described = lru_cache(64)(FieldDescriptorPacket)


def described(data: bytes, encoding: str) -> Any:
    """A column of an answer: the same few all the time, and to read one takes PyMySQL longer than to read a row."""
    return (_described if len(data) < 256 else FieldDescriptorPacket)(data, encoding)


class Bounded(TheirConnection):
    """PyMySQL's; but a conversation has one deadline, however often it reads, writes, or is interrupted by a signal."""

    deadline = 0.0
    patience = math.inf  # the socket's timeout, as it was set last
    doubt: Callable[[float], None] | None = (
        None  # called after a moment of silence; an OSError: it is to blame for that
    )
    taken = 0  # bytes of this conversation
    _received = b""
    # Its own, private and without types: a test tells when they change.
    _sock: Any
    _secure: bool
    server_capabilities: int

    def _be_patient(self, most: float = MOMENT) -> None:
        left = self.deadline - boot_time()
        if left <= 0:
            raise TimeoutError("no answer in time")
        left = min(left, most)
        if abs(left - self.patience) > _A_MOMENT:  # as a rule it is not: the last conversation had as much time
            self._sock.settimeout(left)
            self.patience = left

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        return super()._read_packet(described if packet_type is FieldDescriptorPacket else packet_type)  # type: ignore[no-untyped-call]

    def _force_close(self) -> None:
        plug = self._sock
        if plug is not None:
            with contextlib.suppress(OSError):
                plug.shutdown(
                    socket.SHUT_RDWR
                )  # else, while another thread watches it, the server would not hear of its end
        super()._force_close()  # type: ignore[misc]

    def _give_up(self) -> None:
        if self._sock is not None:
            take_back(self._sock.fileno())
        self._force_close()

    def _read_bytes(self, num_bytes: int) -> bytes:
        received = self._received
        self.taken += num_bytes
        try:
            if self.taken > MOST:
                raise ConnectionAbortedError(f"an answer of more than {MOST >> 20} MB, which no lock has")
            while len(received) < num_bytes:
                self._be_patient()
                try:
                    more = self._sock.recv(max(65536, num_bytes - len(received)))
                except TimeoutError:
                    if self.doubt is not None and self.deadline > boot_time():
                        self.doubt(self.deadline - boot_time())
                    continue
                if not more:
                    raise ConnectionResetError("the server closed the connection")
                received += more
        except OSError as error:
            self._give_up()
            raise OperationalError(CR.CR_SERVER_LOST, str(error)) from error
        except BaseException:
            self._give_up()
            raise
        self._received = received[num_bytes:]
        return received[:num_bytes]

    def _write_bytes(self, data: bytes) -> None:
        try:
            self._be_patient(MOMENT if len(data) < _SHORT else math.inf)
            self._sock.sendall(data)
        except OSError as error:
            self._give_up()
            raise OperationalError(CR.CR_SERVER_GONE_ERROR, str(error)) from error
        except BaseException:
            self._give_up()
            raise

    def _request_authentication(self) -> None:
        # Before the password is sent: a server in the middle may say that it knows no TLS, or speak before TLS begins.
        if self.ssl and (self._received or not self.server_capabilities & CLIENT.SSL):
            raise Misuse("it offers no TLS, which the URL asks for")
        super()._request_authentication()  # type: ignore[misc]
        if self.ssl and not hasattr(self._sock, "getpeercert"):
            self._force_close()
            raise Misuse("the connection is not encrypted, though the URL asks for TLS")


class Preferring(Bounded):
    """With TLS if the server offers it, as PyMySQL does by itself."""

    def _request_authentication(self) -> None:
        self.ssl = self.ssl and bool(self.server_capabilities & CLIENT.SSL)
        super()._request_authentication()


async def _dial_socket(target: Target, deadline: float) -> socket.socket:
    if target.socket:
        places: list[Any] = [(socket.AF_UNIX, socket.SOCK_STREAM, 0, "", target.socket)]
    else:
        places = await look_up((target.host, target.port), ThreadBell(), deadline)
    problem: OSError = ConnectionRefusedError("no address")
    for index, (family, kind, protocol, _, address) in enumerate(places):
        plug = socket.socket(family, kind, protocol)
        try:
            plug.settimeout(max((deadline - boot_time()) / (len(places) - index), 0.001))
            plug.connect(address)
            if family != socket.AF_UNIX:
                plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plug.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return plug
        except OSError as error:
            plug.close()
            problem = error
        except BaseException:
            plug.close()
            raise
    raise problem


async def dial(target: Target, within: float) -> Connection:
    deadline = boot_time() + within
    connection = Bounded(
        host=target.host,
        port=target.port,
        user=target.user,
        password=target.password,
        database=target.database,
        charset="utf8mb4",
        autocommit=True,
        defer_connect=True,
        auth_plugin_map=refused_logins(target),
        **({"ssl": tls_context_of(target)} if target.tls else {"ssl_disabled": True}),
    )
    connection.deadline = deadline
    connection._secure = bool(target.socket)
    with connecting(target, MySQLError):
        connection.connect(await _dial_socket(target, deadline))
    made = BlockingConnection(connection, target)
    await greet(made, target, deadline)
    return made


class BlockingConnection:
    def __init__(self, connection: Any, target: Target) -> None:
        self._connection = connection
        self._target = target
        self.server: str = connection.get_server_info()
        self.name = os.urandom(16).hex()
        self.doubted: ref[Doubted] | None = None
        self._busy = False
        self._owed = False  # a ping was sent, and its answer has not come yet
        self._turn = threading.Lock()
        self._watched: FileIO | None = None  # a descriptor of its own, of the same socket

    async def ask(self, statement: str, within: float) -> list[Rows]:
        deadline = boot_time() + within
        if not self._turn.acquire(timeout=max(within, 0.0)):  # a session lock's connection is renewed by another thread
            self.close()
            raise Unavailable(f"the connection to MySQL at {self._target.shown()} was busy for {within:.2g} s")
        try:
            return self._converse(statement, deadline)
        finally:
            self._turn.release()

    def _converse(self, statement: str | None, deadline: float) -> list[Rows]:
        """Without a statement: only read the answer that is owed."""
        connection = self._connection
        connection.deadline, connection.taken = deadline, 0
        connection.doubt = self._doubt if self.doubted is not None else None
        self._busy = True
        try:
            if self._owed:
                self._read_answers(connection.next_result)
                self._owed = False
            answers = [] if statement is None else self._read_answers(lambda: connection.query(statement))
            self._busy = False
            return answers
        except (MySQLError, OSError, ValueError, RuntimeError, *NONSENSE) as error:
            # RuntimeError: it asks for a file of ours, and PyMySQL gives none. AttributeError: another thread closed it.
            said = refusal(error) if isinstance(error, MySQLError) and connection.open else None
            if said is not None:
                self._owed = False
                self._roll_back()
                raise said from None
            self.close()
            raise Unavailable(f"MySQL at {self._target.shown()} did not answer: {error!s:.200}") from error
        except BaseException:  # Ctrl-C in the middle of an answer
            self.close()
            raise

    def _doubt(self, left: float) -> None:
        doubted = None if self.doubted is None else self.doubted()
        if doubted is not None and finish(doubted(self, left)):
            raise ConnectionResetError("it has fallen silent, while the server answers on another connection")

    async def speaks(self, within: float) -> bool:
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return bool(poll.poll(within * 1000))

    def _read_answers(self, first: Callable[[], Any]) -> list[Rows]:
        connection = self._connection
        answers: list[Rows] = []
        first()
        while True:
            result = connection._result
            if result.description is not None:
                answers.append(list(result.rows))
            if not result.has_next:
                return answers
            connection.next_result()

    def _roll_back(self) -> None:
        """A procedure that failed half way leaves its transaction open."""
        try:
            self._connection.rollback()
            self._busy = False
        except (MySQLError, OSError, ValueError, RuntimeError, *NONSENSE):
            self.close()

    # ---- pings of many connections at once

    def send_ping(self, deadline: float) -> bool:
        """False: another thread is talking here. Whoever gets True calls end_ping."""
        if not self._turn.acquire(blocking=False):
            return False
        try:
            if not self._owed:
                self.ping_again(deadline)
        except BaseException:
            self._turn.release()
            raise
        return True

    def ping_again(self, deadline: float) -> None:
        try:
            self._connection.deadline = deadline
            self._connection._execute_command(COMMAND.COM_QUERY, PING)
            self._owed = True
        except (MySQLError, OSError, AttributeError) as error:
            self.close()
            raise Unavailable(f"MySQL at {self._target.shown()} did not answer: {error!s:.200}") from error

    def read_ping(self, deadline: float) -> None:
        self._converse(None, deadline)

    def end_ping(self) -> None:
        self._turn.release()

    def owes_answer(self) -> bool:
        return self._owed

    def fileno(self) -> int:
        plug = self._connection._sock
        return -1 if plug is None else plug.fileno()

    # ----

    def alive(self) -> bool:
        plug = self._connection._sock
        if plug is None or self._busy or self._turn.locked() or self._connection._received:
            return False
        if self._owed:
            return True  # what comes there is the answer that we wait for
        poll = select.poll()
        poll.register(plug, select.POLLIN | select.POLLERR | select.POLLHUP)
        return not poll.poll(0)

    def watch(self, on_end: Callable[[], None]) -> None:
        # Under a number of its own: when the connection is closed, the next one gets its number, perhaps before poll() has
        # looked why it was woken. It would look at that one, and sleep for ever.
        number = self.fileno()
        with contextlib.suppress(OSError):
            self._watched = another_number(number)
        if self._watched is not None and self.fileno() != number:  # closed meanwhile: whose it is, is not known
            self._unwatch()

        def wait() -> None:
            if self._watched is not None:
                poll = select.poll()
                # Only Linux has it. Elsewhere: an end in both directions, which poll() tells of without being asked.
                poll.register(self._watched, getattr(select, "POLLRDHUP", 0))
                poll.poll()
                self._unwatch()
            on_end()

        try:
            start(wait, "holdfast-watch")
        except RuntimeError:  # no thread to be had
            self._unwatch()
            raise

    def _unwatch(self) -> None:
        watched, self._watched = self._watched, None
        if watched is not None:
            watched.close()

    def bear(self, seconds: float) -> None:
        bear(self._connection._sock, seconds)

    def close(self) -> None:
        connection, plug = self._connection, self._connection._sock
        if plug is None:
            return
        with contextlib.suppress(MySQLError, OSError, AttributeError, ValueError):
            if not self._busy and not self._owed:
                plug.settimeout(0)  # a server that is silent is not waited for
                plug.send(_QUIT)
            else:
                take_back(plug.fileno())
        with contextlib.suppress(OSError):
            plug.shutdown(socket.SHUT_RDWR)  # wakes whoever reads, or watches: closing alone would not
        with contextlib.suppress(OSError, AttributeError):
            connection._force_close()

    def disown(self) -> None:
        """Not closed: a thread of the parent's may have been reading it at the fork, and its buffer stays locked."""
        self._unwatch()
        void(self)


async def ping_all(connections: Sequence[Any], within: float) -> list[bool | Unavailable]:
    """A word on every connection at once. True: answered. False: it has ended. Unavailable: not in time; it may yet answer."""
    deadline = boot_time() + within
    verdicts: list[bool | Unavailable] = [Unavailable(f"no answer within {within:.2g} s") for _ in connections]
    poll = select.poll()
    asked: dict[int, BlockingConnection] = {}  # by their number; nobody else can talk there until they have answered
    waited_for: dict[int, int] = {}
    late: set[int] = set()  # they owe the answer to an earlier ping, which says nothing of now: that comes first
    try:
        for number, connection in enumerate(connections):
            try:
                if connection.owes_answer():
                    late.add(number)
                if connection.send_ping(deadline):
                    asked[number] = connection
                    poll.register(connection.fileno(), select.POLLIN)
                    waited_for[connection.fileno()] = number
            except (Unavailable, ValueError):  # ValueError: another thread has closed it
                verdicts[number] = False
        while waited_for and (left := deadline - boot_time()) > 0:
            for plug, _ in poll.poll(left * 1000):
                number = waited_for[plug]
                try:
                    connections[number].read_ping(deadline)
                    if number in late:
                        late.discard(number)
                        connections[number].ping_again(deadline)
                        continue
                    verdicts[number] = True
                except (Unavailable, ServerError):
                    verdicts[number] = False
                del waited_for[plug]
                poll.unregister(plug)
                asked.pop(number).end_ping()
    finally:
        for connection in asked.values():
            connection.end_ping()
    return verdicts
