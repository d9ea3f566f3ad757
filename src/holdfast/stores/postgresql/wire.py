"""The connections of one store, for threads and asyncio alike: those that are lent, those for renewals, one ear.

A thread has a connection to itself for one conversation; none is kept while waiting in line. Tasks share one connection (see
lane.py), and are lent others only to wait there for a row that somebody has locked.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeVar
from weakref import WeakMethod

from ...drivers.base import Driver
from ...drivers.dialing import look_up
from ...errors import Unavailable
from ..kit.doubts import Doubts
from ..kit.hands import NOTHING, Hand, Pool
from ..kit.turns import Turns
from . import replies
from .connection import Broken
from .ear import Ear
from .greeting import SHARING, Greeting, is_lent
from .released import Conversation, Released
from .replies import ServerError
from .statements import Once, Params, Row, Statement, long
from .url import Target
from .wires import Connection, Kinds

_FRESH = 0.1  # a connection that lay longer may have been closed by the server meanwhile: look before use
# What it does not tell (to another role, or where track_activities is off) may well be at work.
AT_WORK = (
    "SELECT 1 FROM pg_catalog.pg_stat_activity WHERE (pid OPERATOR(pg_catalog.=) {}) "
    "AND COALESCE(state OPERATOR(pg_catalog.<>) 'idle', true)"
)
_ANY_PORT = 5432  # names are looked up with one, and it does not matter which
Question = TypeVar("Question")
AnyConnection = TypeVar("AnyConnection", bound=Connection)


class Wire:
    """Raises Unavailable when a connection fails, ServerError when the server refuses.

    Every call is over after `within` seconds, connecting included. What was asked on a connection that turns out to be
    broken is asked once more, on a new one.
    """

    def __init__(
        self,
        target: Target,
        greeting: Greeting,
        released: Released,
        driver: Driver,
        kinds: Kinds,
    ) -> None:
        self.target = target
        self.where = target.where
        self.greeting = greeting
        self.released = released
        self.driver = driver
        self.shares = kinds.plain.shares  # several ask on one connection, and nobody may wait there for a row
        self.closed = False
        self.reached = False  # see Store
        self._kind = kinds.plain
        self._now = driver.now
        self._fresh()
        self.ear = Ear(self, kinds.listening)

    def _fresh(self) -> None:
        self._everything: weakref.WeakSet[Any] = weakref.WeakSet()  # also those that are being talked on, or dialled
        self._pool: Pool[Any] = Pool(self.target.pool, self.driver)
        self._apart: list[Any] = []
        self._replacements: list[Any] = []  # opened in place of one that fell silent, for whoever asks again
        self._doubts = Doubts(self.driver)
        self._shared: Any = None
        self._dialling = self.turns()
        self._rows: dict[bytes, Turns] = {}  # by name: those who wait for its row

    def turns(self) -> Turns:
        return Turns(self.driver)

    # ---- asking

    async def ask(self, statement: Statement, params: Params, within: float) -> list[Row]:
        deadline = self._now() + within
        if not self.shares:
            return await self._ask_alone(statement, params, deadline)
        shared = self._shared
        for again in (statement.repeats, False):
            if shared is None or shared.is_stale():
                shared = await self._connected(deadline)
            try:
                if self.released.owed:
                    await self._say(self.released.rest(), shared, deadline)
                rows: list[Row] = await shared.ask(statement, params, min(deadline, self._now() + self.target.timeout))
                return rows
            except Broken as error:
                self.released.doubtful = True
                if not again or self._now() >= deadline:
                    raise Unavailable(str(error)) from None
                _note(params)
                shared = self._shared
        raise AssertionError  # not reached

    async def sweep(self, statement: Statement, deadline: float) -> None:
        """Forget the names that were of no use for as long as the URL says; another time, if it does not go now."""
        retention = long(int(self.target.retention * 1_000_000))
        with contextlib.suppress(ServerError, ConnectionError):
            await self.ask(statement, (retention,), deadline - self._now())

    async def ask_aside(self, statement: Statement, params: Params, within: float) -> list[Row]:
        """What may have to wait for a row: where nobody else waits behind it.

        Tasks who wait for the same row take turns on one connection, so that one locked row does not use up all of them.
        """
        deadline = self._now() + within
        if not self.shares:
            return await self._ask_alone(statement, params, deadline)
        name = params[0]
        turns = self._rows.setdefault(name, self.turns())
        turn = turns.turn()
        try:
            if await turn.come(deadline):
                return await self._ask_alone(statement, params, deadline)
        finally:
            turn.over()
            if not turns and self._rows.get(name) is turns:
                self._rows.pop(name, None)
        raise Unavailable(f"PostgreSQL at {self.where} did not answer within {within:.3g} s")

    async def ask_apart(self, statement: Statement, params: Params, within: float) -> list[Row]:
        """On a connection that user work cannot keep busy: one of theirs at first, since there may be no time to open another."""
        deadline = self._now() + within
        hand, apart = Hand(), self._apart  # not that of a forked child, should it be there that this ends
        try:
            self._take_apart(hand)
            return await self._asked(hand, statement, params, deadline)
        except Broken as error:
            raise Unavailable(str(error)) from None
        finally:
            if hand.connection is not None and hand.connection is not NOTHING:
                apart.append(hand.connection)
            if self.closed:
                self._close_apart()

    def _take_apart(self, hand: Hand) -> None:
        with contextlib.suppress(IndexError):
            hand.connection = self._apart.pop()
            return
        if not self.shares:
            self._pool.take_over(hand)
        elif self._shared is not None and self._shared.is_idle():
            hand.connection, self._shared = self._shared, None
        else:
            hand.connection = None

    async def _ask_alone(self, statement: Statement, params: Params, deadline: float) -> list[Row]:
        hand, pool = Hand(), self._pool  # not that of a forked child, should it be there that this ends
        try:
            try:
                if not pool.take(hand):
                    await pool.wait(hand, deadline, self._all_busy)
                return await self._asked(hand, statement, params, deadline)
            finally:
                pool.put_back(hand)
        except Broken as error:
            pool.close_idle()  # what broke one has most likely broken all that lie here
            raise Unavailable(str(error)) from None
        finally:
            pool.put_back(hand)  # if it was in that line above that we were interrupted
            if self.closed:
                pool.close_idle()

    async def _asked(self, hand: Hand, statement: Statement, params: Params, deadline: float) -> list[Row]:
        """On the connection in hand, or on a new one if there is none, or it is stale, or breaks.

        After a refusal it is as good as before, and stays in the hand; after anything else it may be in mid-conversation.
        """
        try:
            now = self._now()
            if hand.connection is not None and self._is_stale(hand.connection, now):
                self.released.doubtful = True
                hand.drop()
            again = hand.connection is not None and statement.repeats
            while True:
                if hand.connection is None:
                    hand.connection = await self._another(deadline)
                    now = self._now()
                try:
                    if self.released.owed:
                        await self._say(self.released.rest(), hand.connection, deadline)
                        now = self._now()
                    rows: list[Row] = await hand.connection.ask(
                        statement, params, min(deadline, now + self.target.timeout)
                    )
                    hand.connection.used = self._now()
                    return rows
                except Broken:
                    now = self._now()
                    if not again or now >= deadline:
                        raise
                    again = False
                    _note(params)
                    self.released.doubtful = True
                    hand.drop()
        except ServerError:
            raise
        except BaseException:
            self.released.doubtful = True
            hand.drop()
            raise

    def _is_stale(self, connection: Any, now: float) -> bool:
        """A loop sees by itself when a connection ends, and may be another than that of last time; a thread has to look."""
        stale: bool = (self.shares or now - connection.used > _FRESH) and connection.is_stale()
        return stale

    # ---- one that has fallen silent

    async def _doubted(self, connection: Any, left: float) -> None:
        """Broken: it is alone with its silence, and another is there in its place."""
        self.released.doubtful = True
        another = await self._doubts.instead(partial(self._newcomer, connection.pid), connection.speaks, left)
        if another is None:
            return
        self._pool.close_idle()  # what has silenced one has most likely silenced all that lie here
        self._close_replacements()
        self._replacements.append(another)
        if self.closed:
            self._close_replacements()
        raise connection.broken(Exception("it has fallen silent, while the server answers on another"))

    async def _newcomer(self, pid: int, within: float) -> Any:
        """None: the server is at work on what that other one was asked. It may have to wait for a row, or for its disk."""
        deadline = self._now() + within
        connection = await self.open(self._kind, deadline)
        try:
            at_work = await connection.tell(AT_WORK.format(pid), deadline)
        except BaseException:
            connection.close()
            raise
        if not at_work:
            return connection
        connection.close()
        return None

    async def _another(self, deadline: float) -> Any:
        with contextlib.suppress(IndexError):
            while True:
                spare = self._replacements.pop()
                if not spare.is_stale():
                    return spare
                spare.close()
        return await self.open(self._kind, deadline)

    def _close_replacements(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._replacements.pop().close()

    def _all_busy(self, waited: float) -> Unavailable:
        return Unavailable(
            f"all {self.target.pool} connections to PostgreSQL at {self.where} were busy for {waited:.3g} s: "
            "see the URL's option pool="
        )

    # ---- connecting

    async def _connected(self, deadline: float) -> Any:
        """The connection that is shared: opened by whoever comes first, while the others wait."""
        turn = self._dialling.turn()
        began = self._now()
        try:
            if not await turn.come(deadline):
                raise Unavailable(f"cannot connect to PostgreSQL at {self.where} within {deadline - began:.3g} s")
            if self._shared is None or self._shared.is_stale():
                self.released.doubtful |= self._shared is not None
                opened = await self._another(deadline)
                if self._shared is None or self._shared.is_stale():
                    self._shared = opened
                else:  # we were so late that another has had its turn
                    opened.close()
            return self._shared
        finally:
            turn.over()

    async def open(self, kind: type[AnyConnection], deadline: float) -> AnyConnection:
        """Connected, and agreed on the schema."""
        connection = await self._dial(kind, deadline)
        self.reached = True
        try:
            await self._set_up(connection, deadline)
            await self._say(self.released.again(), connection, deadline)
        except ServerError as error:
            connection.close()
            raise replies.explained(error, self.where, self.target.schema) from None
        except BaseException as error:
            connection.close()
            if isinstance(error, Broken):
                raise Unavailable(str(error)) from None
            raise
        # Closed meanwhile, when there was nothing to close yet. (Threads close what they put back, and may still release.)
        if self.closed and self.shares:
            connection.close()
            raise Unavailable("this connection was closed")
        connection.used = self._now()
        if (
            kind is self._kind and not self.greeting.pooled
        ):  # a pooler's connections have no number that the server knows
            connection.doubted = WeakMethod(self._doubted)
        return connection

    async def _say(self, releases: Conversation, connection: Connection, deadline: float) -> None:
        await _hold(releases, lambda asked: connection.ask(*asked, self._by(deadline)))

    def _by(self, deadline: float) -> float:
        return min(deadline, self._now() + self.target.timeout)

    async def _set_up(self, connection: Connection, deadline: float) -> None:
        for known_before in (self.greeting.known, False):
            if not self.greeting.known:
                await _hold(
                    self.greeting.conversation(connection.pid), lambda sql: connection.tell(sql, self._by(deadline))
                )
            if self.greeting.pooled:
                return
            try:
                await connection.tell(self.greeting.setting_up(), self._by(deadline))
            except ServerError as error:
                if error.state not in replies.MISSING or not known_before:
                    raise
                self.greeting.known = False  # another server than last time: it has yet to learn the schema
            else:
                connection.prepared = True
                return

    async def _dial(self, kind: type[AnyConnection], deadline: float) -> AnyConnection:
        """A bare connection, logged in: to the first host that lets us in within its share of the time."""
        deadline = self._by(deadline)
        told: list[str] = []
        hosts = self.target.of_each_host()
        for at, host in enumerate(hosts):
            try:
                return await self._dial_one(kind, host, (deadline - self._now()) / (len(hosts) - at))
            except Unavailable as error:
                told.append(str(error))
        raise replies.not_connected(told, self.where)

    async def _dial_one(self, kind: type[AnyConnection], host: Target, share: float) -> AnyConnection:
        began = self._now()
        found = await self._addresses(host, began + share)
        for at, addresses in enumerate(found):
            now = self._now()
            until = now + (began + share - now) / (len(found) - at)
            connection = kind.begin(host, addresses)
            self._everything.add(connection)
            try:
                while (what := connection.step()) is not None:
                    if self._now() >= until or not await connection.until_ready(what, until):
                        raise host.late(share)
                connection.start()
                return connection
            except BaseException as error:
                connection.close()
                if not isinstance(error, Unavailable) or at == len(found) - 1:
                    raise
        raise host.late(share)

    async def _addresses(self, host: Target, deadline: float) -> list[str]:
        """What to try in turn. libpq would look a name up by itself, and the thread, or the whole loop, would wait for that."""
        if host.has_address or any(not one or one.startswith(("/", "@")) for one in host.hosts):
            return [""]
        each: list[list[str]] = []
        for one in host.hosts:
            try:
                found = await look_up((one, _ANY_PORT), self.driver.bell(), deadline)
            except TimeoutError as error:
                raise Unavailable(f"the host {one!r}: {error}") from None
            except OSError as error:
                raise Unavailable(f"the host {one!r} is not known: {error}") from None
            each.append(list(dict.fromkeys(str(address[0]) for *_, address in found)))
        # Of several hosts that libpq is to choose from, the first address each.
        return each[0] if len(each) == 1 else [",".join(some[0] for some in each)]

    async def is_shared(self, within: float) -> bool:
        """See greeting.py."""
        deadline = self._now() + within
        both: list[Connection] = []
        try:
            for _ in range(2):
                both += [await self._dial(self._kind, deadline)]
            return is_lent([await both[which].tell(sql, self._by(deadline)) for which, sql in SHARING])
        except ServerError as error:
            raise replies.explained(error, self.where, self.target.schema) from None
        except Broken as error:
            raise Unavailable(str(error)) from None
        finally:
            for connection in both:
                connection.close()

    # ---- the end

    def reset(self) -> None:
        """The server is not what it was (a failover, an emptied schema): connect anew."""
        self.greeting.known = False
        self._pool.close_idle()
        self._close_apart()
        self._close_replacements()
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.close()
        self.ear.lose()

    def _close_apart(self) -> None:
        with contextlib.suppress(IndexError):  # a renewal may have taken the last one
            while True:
                self._apart.pop().close()

    def forked(self) -> None:
        for connection in list(self._everything):
            connection.disown()
        self._fresh()
        self.released.forget()
        self.ear.forked()

    async def close(self) -> None:
        self.closed = True
        self.reset()
        self.ear.close()


def _note(params: Params) -> None:
    if isinstance(params, Once):
        params.twice = True


async def _hold(
    conversation: Generator[Question, list[Row], None], ask: Callable[[Question], Awaitable[list[Row]]]
) -> None:
    try:
        question = next(conversation)
        while True:
            try:
                rows = await ask(question)
            except ServerError as error:
                question = conversation.throw(error)
            else:
                question = conversation.send(rows)
    except StopIteration:
        return
    finally:
        conversation.close()  # now, and not when somebody forgets what has failed
