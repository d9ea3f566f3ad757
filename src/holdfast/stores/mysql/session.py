"""Session locks (`?mode=session`): the server's own named locks. A lock lives with its connection, and that with its holder.

A connection a lock: it is dedicated and watched, and when it ends, the loss is told at once. Where only the server's side of it
ends, nothing tells us; so every second, on another connection, the server is asked whose the locks are. The server ends a
connection, too, when nothing was heard of it for a ttl (its wait_timeout), so that a holder that was cut off or stopped blocks
others no longer than with leases. Capacity is 1: GET_LOCK knows neither semaphores nor readers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from ...claim import LAST_WORDS, ROUND, Claim, Grant, Holding, Place, Snapshot, Verdict
from ...drivers.base import Driver
from ...errors import Unavailable, Unsupported
from .. import promises
from ..kit.wary import understood, wary
from .connections import Connection, Dial, Rows
from .conversation import Conversation
from .faults import DEADLOCK, MISSING, ServerError, explained
from .store import _SECOND, last_eviction, literal, spent
from .url import Target

_SPARE = 4  # connections kept for the next lock
_LOOK = 1.0  # seconds between two looks at whose the locks are; a third of the ttl if that is less
_ATTEMPTS = 10

PingAll = Callable[[Sequence[Connection], float], Awaitable[list[bool | Unavailable]]]


class Held(NamedTuple):
    connection: Connection
    key: str  # the name that GET_LOCK knows
    ttl: float


@wary("MySQL", lambda store: store._target.shown())
class SessionStore:
    traits = promises.MYSQL_SESSIONS

    def __init__(self, target: Target, dial: Dial, ping_all: PingAll, driver: Driver) -> None:
        self._target = target
        self._driver = driver
        self._ping_all = ping_all
        self._server = Conversation(target, dial, driver)
        self._lost: Callable[[str, str], None] | None = None
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._connections: dict[str, Connection] = {}  # by holder
        self._held: dict[str, Held] = {}  # by holder: those that were granted
        self._waiting: dict[str, Connection] = {}  # by holder: those that wait in the server's line at this moment
        self._spare: list[Connection] = []
        self._looking = False

    @property
    def reached(self) -> bool:
        return self._server.reached

    def tell_losses_to(self, listener: Callable[[str, str], None]) -> None:
        """`listener(holder, why)` is called when a connection that holds a lock has ended."""
        self._lost = listener

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        if claim.capacity != 1:
            raise Unsupported(
                f"{claim.name!r}: session locks know neither semaphores nor readers and writers: leave out ?mode=session"
            )
        within = min(within, self._target.timeout)
        token = await self._claim(claim, 0, self._driver.now() + within)
        if token:
            return Grant(claim, token, claim.ttl)
        if not claim.queue:
            self._give_back(claim.holder)
        return Place(claim, claim.ttl)

    async def wait(self, place: Place, timeout: float) -> None:
        """The server's own line: GET_LOCK waits there, and nobody polls."""
        started = self._driver.now()
        holder = place.claim.holder
        try:
            granted = await self._claim(place.claim, timeout, started + timeout + 0.5)
        except Unavailable:
            if self._waiting.pop(holder, None) is None:  # woken, by wake_waiters: not an error
                return
            raise
        finally:
            self._waiting.pop(holder, None)
        if not granted and self._driver.now() - started < min(timeout, 0.2):  # a server that knows whole seconds only
            await self._driver.sleep(min(timeout, self._driver.uniform(0.02, 0.05)))

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        """A word on every connection: it proves that it lives, and keeps the server from ending it."""
        connections = {grant.claim.holder: self._connections.get(grant.claim.holder) for grant in grants}
        there = [(holder, connection) for holder, connection in connections.items() if connection is not None]
        verdicts: dict[str, Verdict | bool] = {}
        if there:
            answers = await self._ping_all([connection for _, connection in there], min(within, self._target.timeout))
            for (holder, connection), answer in zip(there, answers, strict=True):
                verdicts[holder] = answer
                if answer is False:  # the connection has ended, and so the lock is gone
                    self._let_go(holder, connection)
        return [
            unknown
            if isinstance(unknown := verdicts.get(grant.claim.holder), Unavailable)
            else grant
            if unknown
            else None
            for grant in grants
        ]

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        give_up = self._driver.now() + min(within, self._target.timeout)
        holder = claim.holder
        self._held.pop(holder, None)
        connection = self._connections.get(holder)
        there = False
        if connection is not None:
            try:
                (((released,),),) = await self._ask(
                    connection, f"CALL holdfast_session_release_1({literal(claim.name)})", give_up
                )
                there = bool(released)
            except Unavailable:
                self._let_go(holder, connection)  # which releases it as well, once the server knows
            except BaseException:
                self._let_go(holder, connection)
                raise
            else:
                self._give_back(holder)
        await self._server.end_strays(self._server.left(give_up))
        return there

    async def watch(self, name: str, token: int, timeout: float) -> None:
        """Named locks tell nobody of a change but who is next: so look again, with jitter."""
        await self._driver.sleep(min(timeout, self._driver.uniform(0.1, 0.3)))

    def wake_waiters(self) -> None:
        """Ends the connections on which the server keeps them waiting; their places end with those."""
        for holder in list(self._waiting):
            connection = self._waiting.pop(holder, None)
            if connection is not None:
                connection.close()

    async def evict(self, name: str, token: int, by: str) -> int | None:
        (((verdict, number),),) = await self._server.ask(
            f"CALL holdfast_session_evict_1({literal(name)}, {token}, {literal(by)})"
        )
        return number if verdict == "evicted" else None

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        held, evicted = await self._server.ask(f"CALL holdfast_session_look_1({literal(name)}, 0)", within)
        holders = tuple(
            Holding(owner.decode(), token, 1, age / _SECOND, float(silence), note.decode())
            for _, owner, token, age, silence, note in held
        )
        return Snapshot(name, 1 if holders else 0, holders, (), last_eviction(evicted))

    async def names(self, prefix: str = "") -> Sequence[str]:
        held, _ = await self._server.ask(f"CALL holdfast_session_look_1({literal(prefix)}, 1)")
        return sorted(row[0].decode() for row in held)

    def forked(self) -> None:
        for connection in (*self._connections.values(), *self._spare):
            connection.disown()
        self._start()
        self._server.forked()

    async def close(self, within: float = LAST_WORDS) -> None:
        self._closed = True
        for connection in (*self._connections.values(), *self._spare):
            connection.close()
        self._start()
        self._server.close()
        await self._driver.sleep(0)

    # ---- connections

    async def _claim(self, claim: Claim, seconds: float, give_up: float) -> int:
        """The token; 0: not yet. Waits in the server for so many seconds; over at `give_up`, whatever happens."""
        name, holder, owner, ttl, *_, note = claim
        connection, fresh = await self._connection_of(holder, give_up)
        if seconds:
            self._waiting[holder] = connection
        try:
            (((verdict, number, key),),) = await self._ask(
                connection,
                f"CALL holdfast_session_claim_1({literal(name)}, {literal(owner)}, {literal(note)}, {seconds:.3f}, "
                f"{math.ceil(ttl) + 1}, {int(self._target.retention * _SECOND)})",
                give_up,
                first=self._end_strays,
            )
        except BaseException as error:
            self._let_go(holder, connection)
            if isinstance(error, Unavailable) and not fresh and not seconds and self._driver.now() < give_up:
                return await self._claim(claim, seconds, give_up)  # it had ended unnoticed: now on a new one
            raise
        if verdict == "spent":
            self._give_back(holder)
            spent(name, number)
        if verdict != "granted":
            return 0
        connection.bear(ttl)
        self._held[holder] = Held(connection, key if isinstance(key, str) else key.decode(), ttl)
        self._look_after()
        return int(number)

    async def _connection_of(self, holder: str, give_up: float) -> tuple[Connection, bool]:
        """Its connection; and whether it is a new one."""
        connection = self._connections.get(holder)
        if connection is not None:  # being renewed, perhaps, at this moment; if it has ended, we shall be told
            return connection, False
        while self._spare:
            connection = self._spare.pop()
            if connection.alive():
                self._connections[holder] = connection
                return connection, False
            connection.close()
        connection = self._connections[holder] = await self._server.dial(self._server.left(give_up))
        ended = connection
        connection.watch(lambda: self._ended(ended))
        return connection, True

    async def _end_strays(self, connection: Connection, give_up: float) -> None:
        """One of those may be of this very claim, and in its way: an answer was lost, and the server's side lives on."""
        if self._server.strays:
            await self._server.end_strays_by(connection, give_up)

    async def _ask(
        self,
        connection: Connection,
        statement: str,
        give_up: float,
        first: Callable[[Connection, float], Awaitable[None]] | None = None,
    ) -> list[Rows]:
        """Repeated where that is harmless: the connection has its lock, or has not, whatever became of the rows."""
        attempt, created = 0, False
        while True:
            attempt += 1
            try:
                if first is not None:
                    await first(connection, give_up)
                return await connection.ask(statement, self._server.left(give_up))
            except ServerError as error:
                late = self._driver.now() >= give_up or attempt >= _ATTEMPTS
                if error.code == DEADLOCK and not late:
                    await self._driver.sleep(self._driver.uniform(0.001, 0.005 * attempt))
                elif error.code in MISSING and not created:
                    created = True
                    await self._server.set_up(error, self._server.left(give_up))
                else:
                    raise explained(error, self._target.shown(), self._target.database) from None

    def _give_back(self, holder: str) -> None:
        """It holds nothing any more, and may serve another."""
        self._held.pop(holder, None)
        connection = self._connections.pop(holder, None)
        if connection is None:
            return
        if connection.alive() and len(self._spare) < _SPARE and not self._closed:
            self._spare.append(connection)
        else:
            connection.close()

    def _let_go(self, holder: str, connection: Connection) -> None:
        """The connection is no good, or nobody knows what it is in the middle of. The server may think otherwise: it is told."""
        self._held.pop(holder, None)
        if self._connections.get(holder) is connection:
            del self._connections[holder]
        self._server.strays.add(connection.name)
        connection.close()

    # ---- losses

    def _ended(
        self, connection: Connection, why: str = "the server, or the network, ended the connection that it lived with"
    ) -> None:
        for holder, one in list(self._connections.items()):
            if one is connection:
                held = holder in self._held
                self._let_go(holder, connection)
                if held and self._lost is not None:
                    self._lost(holder, why)

    def _look_after(self) -> None:
        if not self._looking:
            self._looking = True
            try:
                self._driver.spawn(self._look, "holdfast-session")
            except BaseException:
                self._looking = False
                raise

    async def _look(self) -> None:
        """While anything is held: is it still ours? Asked on another connection, since ours may have ended without a word."""
        held = self._held
        try:
            while held and held is self._held:  # another dict after a fork, or when closed
                await self._driver.sleep(min([_LOOK, *(one.ttl / 3 for one in list(held.values()))]))
                asked = list(held.items()) if held is self._held else []
                for start in range(0, len(asked), 500):
                    with contextlib.suppress(Unavailable):  # then nothing is known: the renewal's deadline decides
                        await self._look_at(asked[start : start + 500])
        finally:
            if held is self._held:
                self._looking = False
        if held and held is self._held:  # granted between the last look and going home
            self._look_after()

    @understood("MySQL", lambda store: store._target.shown())
    async def _look_at(self, asked: list[tuple[str, Held]]) -> None:
        # By the name of its connection, not by the number: after a restart of the server, others have the numbers.
        columns = ", ".join(
            f"IS_USED_LOCK('{one.key}') = IS_USED_LOCK('holdfast:line:{one.connection.name}')" for _, one in asked
        )
        ((row,),) = await self._server.ask(f"SELECT {columns}", apart=True)
        for (holder, one), ours in zip(asked, row, strict=True):
            if not ours and self._held.get(holder) is one:
                self._ended(one.connection, "the server has ended its side of the connection that it lived with")
