"""In line, until the claim gets in, or its time is over. The only waiting loop of the library is here."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from . import events
from .asking import GiveUp
from .claim import ROUND, Claim, Grant, Place
from .errors import HoldfastError, Misuse, NotAcquired, Unavailable
from .in_the_way import in_the_way

if TYPE_CHECKING:
    from .engine import Engine

FIND_OUT = 1.0  # so long a call may outlast its timeout, to find out what became of it
PATIENCE = 10.0  # the longest wait for a bell before looking again: a ringer may be killed between change and ring
_LOOKED_AT = 8  # of those inside, for what they carry


async def in_line(
    engine: Engine,
    claim: Claim,
    answer: Grant | Place | None,
    timeout: float | None,
    started: float,
    cancel: GiveUp | None,
) -> tuple[Grant, float]:
    """The grant, and when what it is the answer to was sent."""
    now = engine.driver.now
    give_up = None if timeout is None else started + timeout
    troubled: float | None = None
    pause = 0.0  # the first time at once: a connection that broke says little of the next one
    if claim.queue and events.WAITING in engine.hook.by_kind:
        seen = "" if engine.hook.carry is None else await _carried_inside(engine, claim, give_up)
        engine._tell(claim, events.WAITING, seen)
    while True:
        if engine.closed:  # by another thread or task, while we waited
            raise engine._closed(claim.name)
        if cancel is not None and cancel.is_set():
            engine.hook.emit(events.NOT_ACQUIRED, claim.name, claim.owner, seconds=now() - started)
            raise NotAcquired(f"gave up waiting for {claim.name!r}: what was passed as cancel= is set", claim.name)
        left = PATIENCE if give_up is None else give_up - now()
        if cancel is not None:  # an event cannot wake us in whatever we sleep, so we look at it now and then
            left = min(left, FIND_OUT / 2)
        if left <= 0:
            raise await not_acquired(engine, claim, timeout, now() - started)
        sent = now()
        try:
            if type(answer) is Place:
                await engine.store.wait(answer, min(left, answer.wake_in, claim.ttl / 3, PATIENCE))
                if engine.closed:
                    raise engine._closed(claim.name)
                sent = now()
            answer = None  # if this is not answered, ask again: it may be our turn, and nobody rings twice
            if claim.holder not in engine._under_way:
                raise Misuse(
                    f"{claim.name!r} is waited for by the process that this one was forked from: acquire it here anew"
                )
            unanswered = engine._under_way[claim.holder]
            engine._under_way[claim.holder] = True
            answer = await engine.store.claim(
                claim, ROUND if give_up is None else max(FIND_OUT / 2, min(ROUND, give_up + FIND_OUT - sent))
            )
            engine._under_way[claim.holder] = unanswered
        except Unavailable as error:
            engine._store_failed("claim", claim, error)
            # A server that restarts is ridden out for a ttl: whoever had a place in line joins again.
            troubled = troubled or now()
            if now() >= troubled + claim.ttl or (give_up is not None and now() >= give_up):
                raise
            await engine.driver.sleep(engine.driver.uniform(pause, 5 * pause))
            pause = min(pause + 0.02, 0.08)
            continue
        troubled, pause = None, 0.0
        if type(answer) is Grant and now() < sent + answer.ttl:
            return answer, sent


async def _carried_inside(engine: Engine, claim: Claim, give_up: float | None) -> str:
    """Where it can be known in time: nobody waits longer for being seen."""
    left = FIND_OUT / 2 if give_up is None else min(FIND_OUT / 2, give_up - engine.driver.now())
    try:
        inside = (await engine.store.inspect(claim.name, left)).holders if left > 0 else ()
    except HoldfastError:
        return ""
    return " ".join(one.note for one in inside[:_LOOKED_AT] if one.note)


async def not_acquired(engine: Engine, claim: Claim, timeout: float | None, waited: float) -> NotAcquired:
    engine.hook.emit(events.NOT_ACQUIRED, claim.name, claim.owner, seconds=waited, lock=claim.lock, took=waited)
    snapshot = None
    left = FIND_OUT / 2 if timeout is None else min(FIND_OUT / 2, timeout + FIND_OUT - waited)
    if left > 0:  # else it was the store that took so long
        with suppress(Unavailable):
            snapshot = await engine.store.inspect(claim.name, left)
    when = f"within {timeout:g} s" if timeout is not None and timeout > 0 else "at once"
    story = in_the_way(snapshot, claim) if snapshot else "who holds it could not be found out"
    return NotAcquired(f"could not get {claim.name!r} {when}: {story}", claim.name, snapshot)
