"""Conversations with one server: on a connection of the pool, retried where that is harmless, errors in our words.

Every statement here may be repeated: claims and releases are told apart by their nonce. A statement whose answer nobody waits
for any more may still run in the server, and arrive after its own withdrawal. So before anything else is said, it is ended.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from functools import partial

from ...drivers.base import Driver
from ...errors import HoldfastError, Misuse, Unavailable, Unsupported
from ..kit.doubts import Doubts
from ..kit.hands import NOTHING, Hand, Pool
from ..kit.wary import NONSENSE, nonsense, understood
from . import definitions
from .connections import Connection, Dial, Rows
from .faults import DEADLOCK, EXISTS, MISSING, ServerError, explained
from .url import Target

_ATTEMPTS = 10  # deadlocks: none are known, but what else locks rows there is not ours to know
_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}  # JSON_TABLE and SKIP LOCKED
_DOES = "SELECT COMMAND FROM information_schema.PROCESSLIST WHERE ID = IS_USED_LOCK('holdfast:line:{}')"
_AT_LEAST = 0.001  # a conversation that is begun gets a moment


class Conversation:
    def __init__(self, target: Target, dial: Dial, driver: Driver) -> None:
        self.target = target
        self._dial = dial
        self._driver = driver
        self._closed = False
        self._everything: weakref.WeakSet[Connection] = weakref.WeakSet()  # also those that are being talked on
        self._start()
        self.forgetful = ""  # why a commit of this server may be lost in a crash; "" if it is not, or not yet known
        self._known = False
        self.reached = False  # see Store
        self.strays: set[str] = set()  # names of connections that we left in the middle of an answer

    def _start(self) -> None:
        self._pool: Pool[Connection] = Pool(self.target.pool, self._driver)
        self._apart: Pool[Connection] = Pool(1, self._driver)  # for renewals, which user work cannot keep waiting
        self._spare: list[Connection] = []  # opened in place of one that fell silent, for whoever asks again
        self._doubts = Doubts(self._driver)

    def left(self, give_up: float) -> float:
        return max(give_up - self._driver.now(), _AT_LEAST)

    @understood("MySQL", lambda conversation: conversation.target.shown())
    async def dial(self, within: float) -> Connection:
        give_up = self._driver.now() + within
        connection = await self._dial(self.target, within)
        self.reached = True
        self._everything.add(connection)
        if not self._known:
            try:
                check_version(connection.server, self.target.shown())
                await self._ask_durability(connection, self.left(give_up))
            except BaseException as error:
                connection.close()
                if isinstance(error, ServerError):
                    raise explained(error, self.target.shown(), self.target.database) from None
                raise
            self._known = True
        return connection

    async def _ask_durability(self, connection: Connection, within: float) -> None:
        """The setting is the server's alone: nothing that a session does changes it. So look, and say."""
        (((flush,),),) = await connection.ask("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit", within)
        if int(flush) != 1:
            self.forgetful = f"innodb_flush_log_at_trx_commit is {flush}: a crash may lose the last second's claims"
            if not self.target.relaxed:
                import logging

                logging.getLogger("holdfast").warning(
                    "MySQL at %s: %s, and another may then be given the same lock, with a higher token. Set it to 1, or say "
                    "?durability=relaxed if you mean it",
                    self.target.shown(),
                    self.forgetful,
                )

    async def ask(
        self,
        statement: str,
        within: float | None = None,
        *,
        apart: bool = False,
        repeated: Callable[[], object] = lambda: None,
    ) -> list[Rows]:
        """In at most `within` seconds, and at most ?timeout: waiting for a connection, dialling and repeating included.

        `repeated()` is called if it may have arrived twice.
        """
        give_up = self._driver.now() + min(self.target.timeout, self.target.timeout if within is None else within)
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._ask_once(statement, give_up, self._apart if apart else self._pool)
            except _Broken as broken:
                if attempt >= _ATTEMPTS or self._driver.now() >= give_up:
                    raise broken.error from None
                repeated()
            except ServerError as error:
                if error.code == DEADLOCK and attempt < _ATTEMPTS and self._driver.now() < give_up:
                    await self._driver.sleep(self._driver.uniform(0.001, 0.005 * attempt))
                elif error.code not in MISSING or attempt > 1:
                    raise explained(error, self.target.shown(), self.target.database) from None
            except HoldfastError:  # of which some are of these kinds too
                raise
            except NONSENSE as error:
                raise nonsense("MySQL", self.target.shown(), error) from error

    async def _ask_once(self, statement: str, give_up: float, pool: Pool[Connection]) -> list[Rows]:
        hand = Hand()
        try:
            if not (pool.take(hand) and hand.connection is not None and hand.connection.alive()):
                await self._lend(hand, pool, give_up)
            connection: Connection = hand.connection
            try:
                if self.strays:
                    await self.end_strays_by(connection, give_up)
                # To its end, whatever interrupts us: it costs less than to end it in the server.
                return await self._driver.shield(partial(connection.ask, statement, self.left(give_up)))
            except ServerError as error:
                if error.code in MISSING:
                    await self._set_up(connection, error, give_up)
                raise
            except Unavailable as error:
                self.strays.add(connection.name)
                raise _Broken(error) from None
            except BaseException:
                if not connection.alive():
                    self.strays.add(connection.name)
                raise
        finally:
            self._take_back(hand, pool)

    async def _lend(self, hand: Hand, pool: Pool[Connection], give_up: float) -> Connection:
        """A live connection."""
        if hand.connection is NOTHING and not pool.take(hand):
            await pool.wait(hand, give_up, self._all_busy)
        if hand.connection is not None and not hand.connection.alive():
            hand.drop()
        if hand.connection is None:
            # To its end too, for whoever comes next: impatient callers would throw away one after the other.
            await self._driver.shield(partial(self._dial_into, hand, give_up))
        connection: Connection = hand.connection
        return connection

    async def _dial_into(self, hand: Hand, give_up: float) -> None:
        connection = self._take_spare() or await self.dial(self.left(give_up))
        hand.connection = connection
        connection.doubted = weakref.WeakMethod(self._doubted)

    # ---- one that has fallen silent

    async def _doubted(self, connection: Connection, left: float) -> bool:
        """It is alone with its silence, and another is there in its place."""
        another = await self._doubts.instead(partial(self._newcomer, connection.name), connection.speaks, left)
        if another is None:
            return False
        self._pool.close_idle()  # what has silenced one has most likely silenced all that lie here
        self._close_spare()
        self._spare.append(another)
        if self._closed:
            self._close_spare()
        return True

    async def _newcomer(self, name: str, within: float) -> Connection | None:
        """None: the server is at work on what that other one was asked. It may have to wait for a row, or for its disk."""
        give_up = self._driver.now() + within
        connection = await self.dial(within)
        try:
            (rows,) = await connection.ask(_DOES.format(name), self.left(give_up))
        except BaseException:
            connection.close()
            raise
        if all(command == "Sleep" for (command,) in rows):
            return connection
        connection.close()
        return None

    def _take_spare(self) -> Connection | None:
        with contextlib.suppress(IndexError):
            while True:
                spare = self._spare.pop()
                if spare.alive():
                    return spare
                spare.close()
        return None

    def _close_spare(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._spare.pop().close()

    def _take_back(self, hand: Hand, pool: Pool[Connection]) -> None:
        """Whatever became of it: still waiting, had, or broken."""
        try:
            try:
                if hand.connection is not NOTHING and hand.connection is not None and not hand.connection.alive():
                    hand.drop()
            finally:
                pool.put_back(hand)
        finally:
            pool.put_back(hand)  # if it was in that line above that we were interrupted
            if self._closed:
                pool.close_idle()

    def _all_busy(self, waited: float) -> Unavailable:
        return Unavailable(
            f"all {self.target.pool} connections to MySQL at {self.target.shown()} were busy for {waited:.2g} s: raise ?pool"
        )

    async def end_strays_by(self, connection: Connection, give_up: float) -> None:
        """By name, not by number: after a restart of the server, others have the numbers."""
        for name in list(self.strays):
            lock = f"'holdfast:line:{name}'"
            ((number,),) = (await connection.ask(f"SELECT IS_USED_LOCK({lock})", self.left(give_up)))[0]
            if number is not None:
                with contextlib.suppress(ServerError):  # it has ended by itself
                    await connection.ask(f"KILL {number}", self.left(give_up))
                # Its lock is free when the server is done with it: what it did not do by now, it will not do.
                left = self.left(give_up)
                await connection.ask(f"SELECT GET_LOCK({lock}, {left:.3f}), RELEASE_LOCK({lock})", left)
            self.strays.discard(name)

    async def end_strays(self, within: float) -> None:
        if self.strays:
            await self.ask("DO 0", within)

    async def set_up(self, missing: ServerError, within: float) -> None:
        """Create what is missing."""
        give_up = self._driver.now() + within
        hand, pool = Hand(), self._pool
        try:
            await self._set_up(await self._lend(hand, pool, give_up), missing, give_up)
        finally:
            self._take_back(hand, pool)

    async def _set_up(self, connection: Connection, missing: ServerError, give_up: float) -> None:
        try:
            await self._driver.shield(lambda: set_up(connection, self.target, lambda: self.left(give_up)))
        except ServerError as error:
            forbidden = missing if missing.code == 1370 else error
            raise explained(forbidden, self.target.shown(), self.target.database) from None

    def forked(self) -> None:
        for connection in list(self._everything):
            connection.disown()
        self._everything = weakref.WeakSet()
        self.strays = set()
        self._start()

    def close(self) -> None:
        self._closed = True
        self._pool.close_idle()
        self._apart.close_idle()
        self._close_spare()


class _Broken(Exception):
    """The connection ended in the middle of a conversation, which may be had again on another."""

    def __init__(self, error: Unavailable) -> None:
        super().__init__(str(error))
        self.error = error


def check_version(server: str, where: str) -> None:
    """A MariaDB may call itself 5.5.5-10.11…, for the sake of old replicas."""
    kind = "MariaDB" if "mariadb" in server.lower() else "MySQL"
    digits = server.removeprefix("5.5.5-").split("-")[0].split(".")
    version: Sequence[int] = [int(part) for part in digits[:2] if part.isdigit()]
    if len(version) == 2 and tuple(version) < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        raise Unsupported(f"{where} is {kind} {server}: locks need {kind} {oldest} or later")


async def set_up(connection: Connection, target: Target, left: Callable[[], float]) -> None:
    """Create what is missing. One at a time: DDL is not transactional, and others may be at it.

    Who has no time for all of it leaves the rest to whoever comes next.
    """
    (((alone,),),) = await connection.ask(f"SELECT GET_LOCK('holdfast:schema', {left():.3f})", left() + 0.2)
    if alone != 1:
        raise Unavailable(f"another process is creating the tables of locks in {target.shown()}: try again")
    try:
        found = 0
        try:
            answer = await connection.ask("SELECT version FROM holdfast_meta WHERE one = 1", left())
            found = answer[0][0][0] if answer[0] else 0
        except ServerError as error:
            if error.code not in (1146, 1142):
                raise
        if found > definitions.VERSION:
            raise Misuse(
                f"the tables of locks in {target.shown()} are of version {found}, from a newer holdfast; this one knows "
                f"{definitions.VERSION}: upgrade it"
            )
        if found == definitions.VERSION and await _is_whole(connection, left):
            return  # somebody was faster
        await connection.ask(definitions.SQL_MODE, left())
        for statement in definitions.tables():
            await connection.ask(statement, left())
        for _, body in definitions.procedures():
            try:
                await connection.ask(body, left())
            except ServerError as error:
                if error.code not in EXISTS:
                    raise
        await connection.ask(definitions.WHOLE, left())
    finally:
        if connection.alive():
            await connection.ask("DO RELEASE_LOCK('holdfast:schema')", left())


async def _is_whole(connection: Connection, left: Callable[[], float]) -> bool:
    procedures = [name for name, _ in definitions.procedures()]
    ((counts,),) = await connection.ask(
        "SELECT (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN "  # noqa: S608
        f"({_listed(definitions.TABLES)})), (SELECT COUNT(*) FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = "
        f"DATABASE() AND ROUTINE_NAME IN ({_listed(procedures)}))",
        left(),
    )
    return counts == (len(definitions.TABLES), len(procedures))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
