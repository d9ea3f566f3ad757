"""One run of a key, once for threads and asyncio: look, claim or wait, let the user work, keep the result.

Rule 1: the key is claimed, for all to see, before the work begins; the claim ends by itself, by the store's clock.
Rule 2: a result is kept only under the token of the latest claim: whoever was taken over is refused.
Rule 3: where the user's database is the store, the result and what the user wrote are one transaction, or none.
Rule 4: work whose effect stands is never run again because its result could not be kept: so that is said again, on another
        connection, if it was not answered.
Rule 5: a connection that was opened for us goes back whenever it is not needed: while others work, and while the body works
        unless it writes through it. Else a pool of connections is soon empty, and each waits for another.
"""

from __future__ import annotations

import contextlib
import os
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ...claim import valid_name, valid_timeout, valid_ttl
from ...databases.failures import collided, lacks_table
from ...drivers.base import Driver
from ...errors import HoldfastError, InFlight, KeyReused, Misuse, StaleToken, Unstorable
from ...events import report
from .codec import JSON, Codec, encoded, fingerprint
from .ledger import Open, nothing_to_close
from .rule import Entry, Verdict, judge
from .sql import TABLE

MAX_LIMIT = 512 * 1024 * 1024
_PATIENCE = 5.0  # seconds, for a store that is away when there is a result to be kept
_PURGE_EVERY = 256  # runs, on average: what is forgotten is swept away without anybody having to think of it

_running: ContextVar[frozenset[str]] = ContextVar("holdfast.idempotency.running", default=frozenset())


@dataclass(frozen=True)
class Rules:
    """What holds for all keys of one `Keys`."""

    ttl: float = 30.0
    keep: float = 86400.0
    timeout: float | None = None
    limit: int = 1_000_000
    codec: Codec = JSON
    atomic: bool = True
    create: bool = False

    def __post_init__(self) -> None:
        valid_ttl(self.ttl)
        valid_timeout(self.timeout)
        if type(self.keep) not in (int, float) or not 0 < self.keep <= 3650 * 86400:
            raise Misuse(f"keep must be a number of seconds, up to ten years, not {self.keep!r:.80}")
        if type(self.limit) is not int or not 0 < self.limit <= MAX_LIMIT:
            raise Misuse(f"limit must be a number of bytes from 1 to {MAX_LIMIT}, not {self.limit!r:.80}")
        if not callable(getattr(self.codec, "dumps", None)) or not callable(getattr(self.codec, "loads", None)):
            raise Misuse(f"a codec has dumps and loads; {type(self.codec).__name__} has not")


class Run:
    """In the body: is this the `first` run of the key, so that the work is to be done; or what is its `result`?"""

    __slots__ = ("connection", "first", "key", "result", "token")

    def __init__(self, key: str, first: bool, result: Any, token: int, connection: Any) -> None:
        self.key = key
        self.first = first
        self.result = result  # to be set by the body, if it is the first
        self.token = token  # rises with every run of this key: fenced storage can refuse an older one
        self.connection = connection  # what the body writes through, to be of one piece with the result

    def __repr__(self) -> str:
        return f"<Run of {self.key!r}, token {self.token}, {'first' if self.first else 'done before'}>"


class Session:
    """Between entering and leaving the body."""

    def __init__(self, driver: Driver, open_: Open, rules: Rules, key: str, payload: object) -> None:
        self._driver = driver
        self._open = open_
        self._rules = rules
        self._key = valid_name(key, "idempotency key")
        self._payload = fingerprint(payload)
        self._run: Run | None = None
        self._entry: Entry | None = None
        self._owes_release = False
        self._runner = ""  # under which name the key is ours, or may be: the answer to a claim may not have come
        self._until = 0.0  # when our run counts as dead

    async def enter(self) -> Run:
        if self._key in _running.get():
            raise Misuse(
                f"the work for {self._key!r} asks for its own result: it would wait for itself. Give the inner work another key"
            )
        await self._borrow()
        try:
            entry = await self._decided()
            result = self._loaded(entry) if entry.done else None
            if not entry.done:
                self._entry = entry
                if self._atomic:
                    await self._ledger.begin()
        except BaseException as error:
            refused = error
            await self._driver.shield(lambda: self._withdraw(refused))
            raise
        if entry.done:
            await self._give_back(None)
            return Run(self._key, False, result, entry.token, None)
        connection = self._ledger.connection
        if self._lent and not self._atomic:
            connection = None
            try:
                await self._give_back(None)
            except BaseException as error:
                cause = error
                await self._driver.shield(lambda: self._undone(cause))
                raise
        self._outside = _running.set(_running.get() | {self._key})
        self._run = Run(self._key, True, None, entry.token, connection)
        return self._run

    async def _borrow(self) -> None:
        self._ledger, self._close = await self._open()
        self._lent = self._close is not nothing_to_close
        self._here = True

    async def _give_back(self, error: BaseException | None) -> None:
        if self._here:
            self._here = False
            await self._close(error)

    @property
    def _atomic(self) -> bool:
        return self._rules.atomic and self._ledger.transactional

    async def _withdraw(self, error: BaseException) -> None:
        """Whatever ended it before the body began: a claim that may have arrived is taken back."""
        try:
            if self._runner:
                await self._release()
        finally:
            await self._give_back(error)
        await self._release_anew()

    async def _decided(self) -> Entry:
        """The entry: done, or ours to run."""
        rules = self._rules
        runner = ""
        started = None
        for round_ in range(1 << 62):
            entry = await self._look()
            verdict = judge(entry, self._payload)
            if verdict is Verdict.DONE and entry is not None:
                return entry
            if verdict is Verdict.FREE:
                if not runner:
                    self._ledger.ready()
                    runner = os.urandom(16).hex()
                self._runner = runner
                self._until = self._driver.now() + rules.ttl
                entry = await self._ledger.claim(self._key, self._payload, runner, rules.ttl, rules.keep)
                if entry.runner == runner:
                    return entry
                self._runner = ""
                verdict = judge(entry, self._payload)
            if entry is None or verdict is Verdict.FREE:
                continue  # it was free for a moment, and somebody was faster
            if verdict is Verdict.DONE:
                return entry
            if verdict is Verdict.REUSED:
                raise KeyReused(
                    f"the idempotency key {self._key!r} was used before, with another payload. Two different requests need "
                    "two keys"
                )
            now = self._driver.now()
            started = now if started is None else started
            left = entry.left or 0.0
            if rules.timeout is not None:
                rest = rules.timeout - (now - started)
                if rest <= 0:
                    raise InFlight(
                        f"somebody is at work under the key {self._key!r} now; in {left:.1f} s at the latest it is done, or "
                        "may be taken over. Nothing was done here",
                        self._key,
                        left,
                    )
                left = min(left, rest)
            if self._lent and self._ledger.transactional:  # waiting there is sleeping
                await self._give_back(None)
            await self._ledger.wait(self._key, entry, left, round_)
            if not self._here:
                await self._borrow()
        raise AssertionError("it ends by itself")

    async def _look(self) -> Entry | None:
        try:
            return await self._ledger.look(self._key)
        except Exception as error:
            if not lacks_table(error, TABLE):
                raise
            if not self._rules.create:
                raise Misuse(
                    f"this database has no table {TABLE}: create it once, with create_table(), or by the statements that "
                    "idempotency.schema(dialect) gives for your migrations; or allow it with create=True"
                ) from error
        await self._ledger.create()
        return await self._ledger.look(self._key)

    def _loaded(self, entry: Entry) -> Any:
        if entry.result is None:
            raise Unstorable(
                f"the work for {self._key!r} was done, and is not done again; but its result was not kept: {entry.flaw}"
            )
        return self._rules.codec.loads(entry.result)

    async def leave(self, error: BaseException | None) -> None:
        run, entry = self._run, self._entry
        if run is None or entry is None:
            return
        with contextlib.suppress(ValueError):  # left in another context: then that one ends with its own
            _running.reset(self._outside)
        if error is None:
            await self._done(run, entry)
        else:
            cause = error
            await self._driver.shield(lambda: self._undone(cause))

    async def _done(self, run: Run, entry: Entry) -> None:
        give_up = min(self._until, self._driver.now() + _PATIENCE)
        pause = 0.0  # the first time at once: one connection that broke says little of the next
        while True:
            try:
                await self._done_once(run, entry)
            except HoldfastError:
                raise
            except Exception:
                anew = self._lent or not self._ledger.transactional  # a client of Redis opens connections by itself
                if self._atomic or not anew or self._driver.now() + pause >= give_up:
                    raise
                await self._driver.sleep(self._driver.uniform(pause / 2, pause))
                pause = min(2 * pause + 0.05, 0.5)
            else:
                return

    async def _done_once(self, run: Run, entry: Entry) -> None:
        if not self._here:
            await self._borrow()
        try:
            await self._keep(run, entry)
        except BaseException as error:
            await self._give_back(error)
            await self._driver.shield(self._release_anew)
            raise
        await self._give_back(None)

    async def _undone(self, error: BaseException) -> None:
        if not self._here:
            try:
                await self._borrow()
            except Exception:
                return  # the ttl gives the key free
        try:
            await self._give_up(error)
        finally:
            await self._give_back(error)
        await self._release_anew()

    async def _keep(self, run: Run, entry: Entry) -> None:
        rules, ledger = self._rules, self._ledger
        data: bytes | None = None
        unstorable: Unstorable | None = None
        try:
            data = encoded(rules.codec, run.result, rules.limit, self._key)
        except Unstorable as error:
            if self._atomic:  # nothing stands yet, so nothing need be kept: what the body wrote is taken back with it
                await self._give_up(error)
                raise
            unstorable = error
        try:
            kept = await ledger.finish(self._key, entry, data, str(unstorable) if unstorable else None, rules.keep)
            if not kept:
                raise await self._refusal(entry)
            await ledger.end(None)
        except BaseException as error:
            await self._failed(entry, error)
            raise
        if unstorable is not None:
            unstorable.result = run.result
            raise unstorable
        assert data is not None
        run.result = rules.codec.loads(data)  # as all who come later will get it
        if int.from_bytes(os.urandom(4), "big") % _PURGE_EVERY == 0:
            await self._sweep()

    async def _sweep(self) -> None:
        """The work is done and its result kept: what goes wrong here is no failure of that."""
        try:
            await self._ledger.purge(self._rules.keep)
        except Exception as error:
            report(error, "deleting old idempotency keys")

    async def _failed(self, entry: Entry, error: BaseException) -> None:
        """What was begun is rolled back, so the next may run. Without a transaction the effect stands: then only the ttl
        gives the key free. (Should the commit have come through after all, the entry is done, and a release does nothing.)"""
        if not self._atomic:
            return
        await self._ledger.end(error)
        if collided(error):  # REPEATABLE READ says it so when the row was changed under us: were we taken over?
            found = await self._ledger.look(self._key)
            if found is None or found.token != entry.token:
                raise await self._refusal(entry) from error
        await self._release()

    async def _refusal(self, entry: Entry) -> StaleToken:
        """Who was at it when we came back too late."""
        await self._ledger.end(StaleToken("taken over"))
        found = await self._ledger.look(self._key)
        seen = found.token if found else 0
        undone = (
            "What it wrote through the same connection was rolled back"
            if self._atomic
            else "Its effect may stand twice"
        )
        return StaleToken(
            f"the work for {self._key!r} took longer than its ttl of {self._rules.ttl:g} s and was taken over (token "
            f"{entry.token}, now {seen or 'forgotten'}): its result is refused. {undone}. Give it a longer ttl",
            self._key,
            seen,
            entry.token,
        )

    async def _give_up(self, error: BaseException) -> None:
        try:
            await self._ledger.end(error)
        finally:
            await self._release()

    async def _release(self) -> None:
        """If it cannot be said, the ttl says it: nobody is kept waiting for longer than that."""
        self._owes_release = True
        with contextlib.suppress(Exception):
            await self._ledger.release(self._key, self._runner)
            self._owes_release = False

    async def _release_anew(self) -> None:
        """What ended us may have been the end of the connection, too; one that was opened for us can be opened again."""
        if self._owes_release and self._lent:
            with contextlib.suppress(Exception):
                await self._borrow()
                try:
                    await self._release()
                finally:
                    await self._give_back(None)
