"""Session locks (`?mode=session`): the server's own named locks. A lock lives with its connection, and that with its holder.

A connection a lock: it is dedicated and watched, and when it ends, the loss is told at once. The server ends it, too, when
nothing was heard of it for a ttl (its wait_timeout), so that a holder that was cut off or stopped blocks others no longer
than with leases. Capacity is 1: GET_LOCK knows neither semaphores nor readers.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Callable, Sequence

from ...claim import ROUND, Claim, Grant, Holding, Place, Snapshot, Traits, Verdict
from ...drivers.base import Driver
from ...errors import Unavailable, Unsupported
from .conversation import Conversation
from .faults import ServerError, explained
from .pool import Dial, Line, Rows
from .store import _SECOND, last_eviction, literal, spent
from .url import Target

TRAITS = Traits(
    system="mysql session",
    scope="network",
    fenced="yes: last token + 1, or the server's time in µs if that is more, committed while the lock is held",
    fair=False,
    bell=True,
    durable="tokens are, as InnoDB commits them; a lock ends with its connection, and so with the server",
    clock="none for a connection that lives; one that is silent is ended by the server after a ttl, rounded up to seconds",
    survives="kill -9 of any client; not a failover or a restart, which free all locks, nor a pooler between",
)
_SPARE = 4  # connections kept for the next lock
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._:-]*")


def lock_key(database: str, name: str) -> str:
    """GET_LOCK's names are the server's, not the database's; have 64 characters; and may ignore case.

    So a name of small letters, digits and ._:- that fits is itself. Any other goes by its SHA-256: nobody has yet found two
    texts with the same one. The first letters keep the two apart.
    """
    plain = f"hf:{database}/{name}"
    if len(plain) <= 64 and _PLAIN.fullmatch(name) and _PLAIN.fullmatch(database):
        return plain
    digest = hashlib.sha256(f"{database}/{name}".encode()).digest()
    return "hf#" + base64.b32encode(digest).decode().rstrip("=").lower()


class SessionStore:
    traits = TRAITS

    def __init__(self, target: Target, dial: Dial, driver: Driver) -> None:
        self._target = target
        self._driver = driver
        self._server = Conversation(target, dial, driver)
        self._lines: dict[str, Line] = {}  # by holder
        self._spare: list[Line] = []
        self._lost: Callable[[str, str], None] | None = None
        self._closed = False

    def tell_losses_to(self, listener: Callable[[str, str], None]) -> None:
        """`listener(holder, why)` is called when a connection that holds a lock has ended."""
        self._lost = listener

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        if claim.capacity != 1:
            raise Unsupported(
                f"{claim.name!r}: session locks know neither semaphores nor readers and writers: leave out ?mode=session"
            )
        token = await self._claim(claim, 0)
        if token:
            return Grant(claim, token, claim.ttl)
        if not claim.queue:
            self._give_back(claim.holder)
        return Place(claim, claim.ttl)

    async def wait(self, place: Place, timeout: float) -> None:
        """The server's own line: GET_LOCK waits there, and nobody polls."""
        started = self._driver.now()
        granted = await self._claim(place.claim, timeout)
        if not granted and self._driver.now() - started < min(timeout, 0.2):  # a server that knows whole seconds only
            await self._driver.sleep(min(timeout, self._driver.uniform(0.02, 0.05)))

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        """A word on every connection: it proves that it lives, and keeps the server from ending it."""
        give_up = self._driver.now() + within
        renewed: list[Grant | None] = []
        for grant in grants:
            line = self._lines.get(grant.claim.holder)
            try:
                if line is None or not line.alive():
                    raise Unavailable("it has ended")
                await line.ask("DO 1", max(give_up - self._driver.now(), 0.001))
                renewed.append(grant)
            except (Unavailable, ServerError):  # the connection is closed by now, and so the lock is gone
                self._lines.pop(grant.claim.holder, None)
                renewed.append(None)
        return renewed

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        line = self._lines.get(claim.holder)
        if line is None or not line.alive():
            self._give_back(claim.holder)
            return False
        key = lock_key(self._target.database, claim.name)
        try:
            (((there,),),) = await self._ask(
                line, f"CALL holdfast_session_release_1({literal(claim.name)}, '{key}', {self._retention})"
            )
        except BaseException:
            self._lines.pop(claim.holder, None)
            line.close()  # which releases it as well
            raise
        self._give_back(claim.holder)
        return bool(there)

    async def watch(self, name: str, token: int, timeout: float) -> None:
        """Named locks tell nobody of a change but who is next: so look again, with jitter."""
        await self._driver.sleep(min(timeout, self._driver.uniform(0.1, 0.3)))

    async def evict(self, name: str, token: int, by: str) -> int | None:
        (((verdict, number),),) = await self._server.ask(
            f"CALL holdfast_session_evict_1({literal(name)}, {token}, {literal(by)})"
        )
        return number if verdict == "evicted" else None

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        held, evicted = await self._server.ask(f"CALL holdfast_session_look_1({literal(name)}, 0)")
        holders = tuple(
            Holding(owner.decode(), token, 1, age / _SECOND, float(silence), note.decode())
            for _, owner, token, age, silence, note in held
        )
        return Snapshot(name, 1 if holders else 0, holders, (), last_eviction(evicted))

    async def names(self, prefix: str = "") -> Sequence[str]:
        held, _ = await self._server.ask(f"CALL holdfast_session_look_1({literal(prefix)}, 1)")
        return sorted(row[0].decode() for row in held)

    def forked(self) -> None:
        for line in (*self._lines.values(), *self._spare):
            line.disown()
        self._lines, self._spare = {}, []
        self._server.forked()

    async def close(self) -> None:
        self._closed = True
        for line in (*self._lines.values(), *self._spare):
            line.close()
        self._lines, self._spare = {}, []
        self._server.close()
        await self._driver.sleep(0)

    # ---- connections

    @property
    def _retention(self) -> int:
        return int(self._target.retention * _SECOND)

    async def _claim(self, claim: Claim, seconds: float) -> int:
        """The token; 0: not yet."""
        name, holder, owner, ttl, *_, note = claim
        key = lock_key(self._target.database, name)
        line = await self._line_of(holder)
        try:
            (((verdict, number),),) = await self._ask(
                line,
                f"CALL holdfast_session_claim_1({literal(name)}, '{key}', {literal(owner)}, {literal(note)}, {seconds:.3f}, "
                f"{math.ceil(ttl) + 1}, {self._retention})",
                seconds,
            )
        except BaseException:
            self._lines.pop(holder, None)
            line.close()
            raise
        if verdict == "spent":
            self._give_back(holder)
            spent(name, number)
        return int(number) if verdict == "granted" else 0

    async def _line_of(self, holder: str) -> Line:
        line = self._lines.get(holder)
        if line is not None and line.alive():
            return line
        while self._spare:
            line = self._spare.pop()
            if line.alive():
                self._lines[holder] = line
                return line
            line.close()
        line = self._lines[holder] = await self._server.dial(self._target.timeout)
        ended = line
        line.watch(lambda: self._ended(ended))
        return line

    async def _ask(self, line: Line, statement: str, seconds: float = 0.0) -> list[Rows]:
        try:
            return await line.ask(statement, seconds + self._target.timeout)
        except ServerError as error:
            if error.code not in (1146, 1305, 1370):
                raise explained(error, self._target.shown(), self._target.database) from None
        await self._server.ask("CALL holdfast_names_1('')")  # creates what is missing
        try:
            return await line.ask(statement, seconds + self._target.timeout)
        except ServerError as error:
            raise explained(error, self._target.shown(), self._target.database) from None

    def _give_back(self, holder: str) -> None:
        line = self._lines.pop(holder, None)
        if line is None:
            return
        if line.alive() and len(self._spare) < _SPARE and not self._closed:
            self._spare.append(line)
        else:
            line.close()

    def _ended(self, line: Line) -> None:
        for holder, one in list(self._lines.items()):
            if one is line:
                self._lines.pop(holder, None)
                if self._lost is not None:
                    self._lost(holder, "the server, or the network, ended the connection that it lived with")
