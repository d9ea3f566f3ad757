"""Conversations with one server: on a connection of the pool, retried where that is harmless, errors in our words.

Every statement here may be repeated: claims and releases are told apart by their nonce.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from ...drivers.base import Driver
from ...errors import Misuse, Unavailable, Unsupported
from . import definitions
from .faults import DEADLOCK, EXISTS, MISSING, ServerError, explained
from .pool import Dial, Line, Pool, Rows
from .url import Target

_ATTEMPTS = 10  # deadlocks: none are known, but what else locks rows there is not ours to know
_OLDEST = {"MariaDB": (10, 6), "MySQL": (8, 0)}  # JSON_TABLE and SKIP LOCKED


class Conversation:
    def __init__(self, target: Target, dial: Dial, driver: Driver) -> None:
        self.target = target
        self._dial = dial
        self._driver = driver
        self.pool = Pool(self.dial, driver, target.pool, target.shown())
        self.apart = Pool(self.dial, driver, 1, target.shown())  # for renewals, which user work cannot keep waiting
        self.forgetful = ""  # why a commit of this server may be lost in a crash; "" if it is not, or not yet known
        self._known = False
        self._stray = 0

    async def dial(self, within: float) -> Line:
        line = await self._dial(self.target, within)
        if not self._known:
            try:
                check_version(line.server, self.target.shown())
                await self._ask_durability(line, within)
            except BaseException:
                line.close()
                raise
            self._known = True
        return line

    async def _ask_durability(self, line: Line, within: float) -> None:
        """The setting is the server's alone: nothing that a session does changes it. So look, and say."""
        (((flush,),),) = await line.ask("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit", within)
        if int(flush) != 1:
            self.forgetful = f"innodb_flush_log_at_trx_commit is {flush}: a crash may lose the last second's claims"
            if self.target.durability == "full":
                import logging

                logging.getLogger("holdfast").warning(
                    "MySQL at %s: %s, and another may then be given the same lock, with a higher token. Set it to 1, or say "
                    "?durability=relaxed if you mean it",
                    self.target.shown(),
                    self.forgetful,
                )

    async def ask(self, statement: str, *, within: float | None = None, apart: bool = False) -> list[Rows]:
        within = self.target.timeout if within is None else within
        pool = self.apart if apart else self.pool
        give_up = self._driver.now() + within
        attempt = 0
        while True:
            attempt += 1
            line = await pool.take(max(give_up - self._driver.now(), 0.001))
            try:
                if self._stray:
                    await self._end_stray(line, within)
                # To its end, whatever interrupts us: a claim that runs on in the server could arrive after its release.
                answer = await self._driver.shield(
                    partial(line.ask, statement, max(give_up - self._driver.now(), 0.001))
                )
            except ServerError as error:
                if error.code in MISSING and attempt == 1:
                    await self._set_up(pool, line, error)
                    continue
                pool.give_back(line)
                if error.code == DEADLOCK and attempt < _ATTEMPTS and self._driver.now() < give_up:
                    await self._driver.sleep(self._driver.uniform(0.001, 0.005 * attempt))
                    continue
                raise explained(error, self.target.shown(), self.target.database) from None
            except BaseException as error:
                pool.give_back(line)
                if not isinstance(error, Exception) and not line.alive():
                    self._stray = line.connection_id  # Ctrl-C: what was asked there runs on
                raise
            pool.give_back(line)
            return answer

    async def _end_stray(self, line: Line, within: float) -> None:
        stray, self._stray = self._stray, 0
        with contextlib.suppress(ServerError):  # it has ended by itself
            await line.ask(f"KILL {stray}", within)

    async def _set_up(self, pool: Pool, line: Line, missing: ServerError) -> None:
        try:
            await self._driver.shield(lambda: set_up(line, self.target))
        except ServerError as error:
            pool.give_back(line)
            forbidden = missing if missing.code == 1370 else error
            raise explained(forbidden, self.target.shown(), self.target.database) from None
        except BaseException:
            pool.give_back(line)
            raise
        pool.give_back(line)

    def forked(self) -> None:
        self._stray = 0
        self.pool.forked()
        self.apart.forked()

    def close(self) -> None:
        self.pool.close()
        self.apart.close()


def check_version(server: str, where: str) -> None:
    """A MariaDB may call itself 5.5.5-10.11…, for the sake of old replicas."""
    kind = "MariaDB" if "mariadb" in server.lower() else "MySQL"
    digits = server.removeprefix("5.5.5-").split("-")[0].split(".")
    version: Sequence[int] = [int(part) for part in digits[:2] if part.isdigit()]
    if len(version) == 2 and tuple(version) < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        raise Unsupported(f"{where} is {kind} {server}: locks need {kind} {oldest} or later")


async def set_up(line: Line, target: Target) -> None:
    """Create what is missing. One at a time: DDL is not transactional, and others may be at it."""
    within = max(30.0, target.timeout)
    (((alone,),),) = await line.ask("SELECT GET_LOCK('holdfast:schema', 20)", within)
    if alone != 1:
        raise Unavailable(f"another process has been creating the tables of locks in {target.shown()} for 20 s")
    try:
        found = 0
        try:
            answer = await line.ask("SELECT version FROM holdfast_meta WHERE one = 1", within)
            found = answer[0][0][0] if answer[0] else 0
        except ServerError as error:
            if error.code not in (1146, 1142):
                raise
        if found > definitions.VERSION:
            raise Misuse(
                f"the tables of locks in {target.shown()} are of version {found}, from a newer holdfast; this one knows "
                f"{definitions.VERSION}: upgrade it"
            )
        await line.ask(definitions.SQL_MODE, within)
        for statement in definitions.tables():
            await line.ask(statement, within)
        for _, body in definitions.procedures():
            try:
                await line.ask(body, within)
            except ServerError as error:
                if error.code not in EXISTS:
                    raise
        await line.ask(definitions.WHOLE, within)
    finally:
        if line.alive():
            await line.ask("DO RELEASE_LOCK('holdfast:schema')", within)
