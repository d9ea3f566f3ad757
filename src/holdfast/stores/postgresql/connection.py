"""One connection, on psycopg's libpq layer; never blocks by itself. Threads and asyncio wait for it in their own ways.

Below psycopg's cursors, because those cost as much as a whole claim (measured: 148 µs for a one-row UPDATE through a
cursor, 129 for our claim without one), and because only here a conversation has a deadline.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, Self
from urllib.parse import quote
from weakref import ref

import psycopg
from psycopg import pq

from ...drivers.base import boot_time, finish
from ...drivers.descriptors import another
from ...drivers.sockets import take_back, void
from ...errors import Unavailable
from ..kit.doubts import MOMENT
from . import salted
from .replies import ServerError
from .statements import Params, Row, Statement, transposed
from .url import Target
from .wires import Doubted, Heard, Rung

_GRACE = 1.0  # interrupted in mid-conversation, wait so long for the answer: what was asked is then known to be over
_BINARY = tuple([1] * n for n in range(16))
_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)
# Of these libpq gives one after the other, without an end.
_COPIES = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH)
_MOST_RESULTS = 1000  # to one question: of ours the longest creates the schema, and has some dozens
_MANY = 100_000
FEW = 1000
ASK_AFTER = (
    3.0  # seconds of silence in which an ear is asked whether it is there; after as many again, it is taken for dead
)


class Broken(Unavailable):
    """The connection ended. Whatever was asked may be asked again at once on another; a wire tells others plainly Unavailable."""


class LibpqConnection:
    """What is sent is answered by rows, by a ServerError, or not at all: then the connection is of no more use."""

    stranded = False  # its event loop is over: it is connected, and cannot be asked
    unread = False  # or stands still: nobody hears what it is told
    doubted: ref[Doubted] | None = None

    def __init__(self, pgconn: pq.abc.PGconn, where: str) -> None:
        self.pgconn = pgconn
        self.where = where
        self._login = salted.Login()
        self.prepared = False  # the server knows our statements by name
        self.used = 0.0
        self.listens = False  # what is told to all is for us
        self.most_pieces = _MANY  # of an answer, as they come in: of a long list of names, or of a short word
        self._pieces = 0
        self.mutex = threading.RLock()  # of those who share it, if any do
        self._ending = (
            threading.Lock()
        )  # hung up by one thread and closed by another: the number may be somebody else's by then

    # ---- connecting: `step` until it is None, and then `start`

    @classmethod
    def begin(cls, target: Target, addresses: str = "") -> Self:
        joint = "&" if "?" in target.conninfo else "?"
        more = f"{joint}hostaddr={quote(addresses, safe=':,')}" if addresses else ""  # fe80::1%eth0
        return cls(pq.PGconn.connect_start((target.conninfo.plain + more).encode()), target.where)

    def step(self) -> int | None:
        """What to wait for: select.POLLIN or POLLOUT; None: connected."""
        try:
            if not self._login.is_whole(self.pgconn):
                return select.POLLIN
        except salted.Unhashable as error:
            raise Broken(f"hung up on {self.where}: {error}") from None
        status = self.pgconn.connect_poll()
        if status == pq.PollingStatus.OK:
            self.pgconn.nonblocking = 1
            return None
        if status == pq.PollingStatus.FAILED:
            raise Broken(self.error())
        return select.POLLIN if status == pq.PollingStatus.READING else select.POLLOUT

    def start(self) -> None:
        """Connected: from now on it can be asked."""

    def error(self) -> str:
        return self.pgconn.get_error_message().strip()

    @property
    def pid(self) -> int:
        """As the other end introduced itself."""
        return self.pgconn.backend_pid

    # ---- conversations: say or send; until all of it has gone, flush; then take what comes

    def say(self, sql: str) -> bool:
        """True: it has gone."""
        try:
            self.pgconn.send_query(sql.encode())
            return not self.pgconn.flush()
        except psycopg.Error as error:
            raise self.broken(error) from error

    def send(self, statement: Statement, asked: Sequence[Params]) -> bool:
        """True: it has gone."""
        params = asked[0]
        if len(asked) > 1:
            assert statement.many is not None
            params = transposed(statement.many, asked)
            statement = statement.many
        formats = _BINARY[len(params)]
        try:
            if self.prepared and statement.name:
                self.pgconn.send_query_prepared(statement.name, params, formats, 1)
            else:
                self.pgconn.send_query_params(statement.sql, params, statement.oids, formats, 1)
            return not self.pgconn.flush()
        except psycopg.Error as error:
            raise self.broken(error) from error

    def flushed(self) -> bool:
        try:
            return not self.pgconn.flush()
        except psycopg.Error as error:
            raise self.broken(error) from error

    def take(self) -> None:
        """Read what has arrived."""
        try:
            self.pgconn.consume_input()
        except psycopg.Error as error:
            raise self.broken(error) from error

    def rows(self, found: list[pq.abc.PGresult], take: bool = False) -> list[Row] | None:
        """The answer, once it is complete; until then results are collected in `found`. `take`: read what has arrived first."""
        pgconn = self.pgconn
        if take:
            self.take()
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                self._pieces = 0
                return self._read(found)
            if result.status in _COPIES:
                raise self.broken(Exception("it wants to copy a table, which nobody asked for"))
            found.append(result)
            if len(found) > _MOST_RESULTS:
                raise self._endless()
        self.turn_deaf()
        self._pieces += take
        if self._pieces > self.most_pieces:
            raise self._endless()
        return None

    def turn_deaf(self) -> None:
        """Where nobody listens: libpq would keep what it is told all the same, for ever."""
        while not self.listens and self.pgconn.notifies() is not None:
            pass

    def _endless(self) -> Broken:
        return self.broken(Exception("it talks without an end"))

    def _read(self, found: list[pq.abc.PGresult]) -> list[Row]:
        for result in found:
            if result.status not in _GOOD:
                field = result.error_field
                state = field(pq.DiagnosticField.SQLSTATE) or b""
                message = field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b""
                if not state or (state[:2] == b"57" and state != b"57014"):
                    raise self.broken(Exception(message.decode("utf-8", "replace")))
                raise ServerError(state.decode(), message.decode("utf-8", "replace"))
        if not found:
            return []
        last = found[-1]
        get = last.get_value
        return [tuple([get(row, column) or b"" for column in range(last.nfields)]) for row in range(last.ntuples)]

    def bells(self) -> list[tuple[str, str]]:
        """Notifications that have arrived: channel and payload."""
        heard = []
        while (message := self.pgconn.notifies()) is not None:
            # Whoever may connect can ring, with anything.
            heard.append((message.relname.decode("utf-8", "replace"), message.extra.decode("utf-8", "replace")))
        return heard

    def broken(self, error: Exception) -> Broken:
        return Broken(f"lost the connection to PostgreSQL at {self.where}: {' '.join(str(error).split())}")

    def late(self, timeout: float) -> Unavailable:
        return Unavailable(f"PostgreSQL at {self.where} did not answer within {timeout:g} s")

    # ---- the end

    def fileno(self) -> int:
        return self.pgconn.socket

    def hang_up(self) -> None:
        """End the conversation under a thread that may be reading; it, or somebody else, has still to close."""
        with self._ending:
            try:
                same = another(self.pgconn.socket)
                try:
                    same.shutdown(socket.SHUT_RDWR)
                finally:
                    same.close()
            except (OSError, psycopg.Error):
                return

    def take_back(self) -> None:
        """Of what it was asked, nothing arrives any more once it is closed."""
        with contextlib.suppress(psycopg.Error):
            take_back(self.pgconn.socket)

    def close(self) -> None:
        with self._ending:
            self.pgconn.finish()

    def disown(self) -> None:
        """In a forked child: libpq would say goodbye on the parent's socket, so have it speak into the void."""
        with contextlib.suppress(psycopg.Error):
            void(self)
            _inherited.append(self)


class BlockingConnection(LibpqConnection):
    """The same, with a thread that waits for it."""

    shares: ClassVar[bool] = False  # a thread has its connection to itself

    async def ask(self, statement: Statement, params: Params, deadline: float) -> list[Row]:
        return self._converse(deadline, self.send, statement, (params,))

    async def tell(self, sql: str, deadline: float) -> list[Row]:
        return self._converse(deadline, self.say, sql)

    def _converse(self, deadline: float, send: Callable[..., bool], *what: Any) -> list[Row]:
        found: list[Any] = []
        began = boot_time()
        left = deadline - began
        try:
            if not send(*what):
                self._flush(deadline)
            while True:
                if self._readable(max(0.0, MOMENT if left > MOMENT else left) * 1000):
                    rows = self.rows(found, take=True)
                    if rows is not None:
                        return rows
                elif self.doubted is not None and left > MOMENT and (doubted := self.doubted()) is not None:
                    finish(doubted(self, left - MOMENT))
                left = deadline - boot_time()
                if left <= 0:  # whoever talks without an end can always be read
                    raise self.late(deadline - began)
        except ServerError:  # an answer, after which it is as good as before
            raise
        except Exception:
            self.take_back()
            raise
        except BaseException:  # Ctrl-C
            with contextlib.suppress(Exception):
                deadline = boot_time() + _GRACE
                while self.rows(found) is None and boot_time() < deadline and self.is_ready(select.POLLIN, deadline):
                    self.take()
            self.take_back()
            raise

    def _flush(self, deadline: float) -> None:
        """A long request: the server may want to be read while it is written to."""
        began = boot_time()
        while not self.flushed():
            if boot_time() >= deadline or not self.is_ready(select.POLLIN | select.POLLOUT, deadline):
                raise self.late(deadline - began)
            self.take()

    @cached_property
    def _readable(self) -> Callable[[float], object]:
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return poll.poll

    def is_ready(self, what: int, deadline: float) -> bool:
        poll = select.poll()  # an object of its own: two threads may ask
        poll.register(self.pgconn.socket, what)
        return bool(poll.poll(max(0.0, deadline - boot_time()) * 1000))

    async def until_ready(self, what: int, deadline: float) -> bool:
        return self.is_ready(what, deadline)

    async def speaks(self, within: float) -> bool:
        return self.is_ready(select.POLLIN, boot_time() + within)

    def is_stale(self) -> bool:
        """Did the server close it, or say something unasked, while it lay idle?"""
        return self.is_ready(select.POLLIN, 0.0)


class EarConnection(BlockingConnection):
    """Listens, and is read by whoever waits. In silence it is asked whether it is still there."""

    _asked = False
    _heard: Heard

    def attend(self, heard: Heard, lost: Callable[[Any], None]) -> None:
        self._heard = heard  # its end is found by who reads

    def read(self, mine: Rung, deadline: float) -> None:
        since = boot_time()
        while True:
            for bell in self.bells():
                self._heard(*bell)
            if mine.rung or (now := boot_time()) >= deadline:
                return
            if now - since > ASK_AFTER:
                if self._asked:
                    raise Unavailable("PostgreSQL has fallen silent")
                since, self._asked = now, True
                self.say("")
            if self._readable(max(0.0, min(deadline, since + ASK_AFTER + 0.01) - now) * 1000):
                try:
                    self.take()
                    if self._asked and self.rows([]) is None:
                        continue
                except ServerError as error:
                    raise Unavailable(str(error)) from error
                since, self._asked = boot_time(), False


_inherited: list[LibpqConnection] = []  # kept: what libpq does when they are collected is the parent's business
