"""A lease is changed because its holder says so: renewed now, moved, or made a reader's."""

from __future__ import annotations

from .claim import ROUND, Grant
from .engine import Engine
from .errors import Misuse, Unavailable
from .lease import HELD, Lease
from .waiting import FIND_OUT


async def renew(engine: Engine, lease: Lease, seconds: float | None = None) -> None:
    """Now, because the caller says so. With `seconds`: its end is then so far away, and it is renewed until there."""
    lease.check()
    lease = lease._stay or lease  # what is renewed is the grant
    if seconds is not None and lease._limit is None:
        raise Misuse(f"the lease of {lease.name!r} renews itself, and has no end to be moved: that is for renew=False")
    sent = engine.driver.now()
    if seconds is None and lease._limit is not None:
        seconds = lease._grant.claim.ttl
    (verdict,) = await engine.store.renew([lease._grant], min(ROUND, max(lease.remaining(), FIND_OUT)))
    if isinstance(verdict, Unavailable):
        raise verdict
    engine.renewer.renewed(lease, verdict, sent, None if seconds is None else sent + seconds)
    lease.check()


async def downgrade(engine: Engine, lease: Lease) -> None:
    """A writer becomes a reader, and keeps its token; readers in line come in.

    Unavailable: it may have happened, so there may be readers now. It may be repeated.
    """
    lease.check()
    claim = lease._grant.claim
    if claim.units != claim.capacity or claim.capacity == 1:
        raise Misuse(f"{lease.name!r} is not write-locked by this lease: only a writer can downgrade")
    sent = engine.driver.now()
    reader = claim._replace(units=1, queue=False)
    try:
        answer = await engine.store.claim(reader, ROUND)
    except Unavailable as error:
        lease._strays = True
        try:
            if (left := sent + ROUND - engine.driver.now()) <= 0:
                raise
            answer = await engine.store.claim(reader, left)
        except Unavailable:
            raise Unavailable(
                f"whether {lease.name!r} was downgraded is not known, so others may be reading: "
                f"do not write, and downgrade() again ({error})"
            ) from error
    same = type(answer) is Grant and answer.token == lease.token
    with engine.mutex:
        held = lease._state is HELD
        if held and same and type(answer) is Grant:
            engine.renewer.keep(lease, answer, sent)
        elif held:
            engine.renewer.lose(lease, "it ran out before it could be downgraded")
    if not (held and same):
        await engine.leaving.withdraw(claim, FIND_OUT)  # what the store granted instead is not what the caller holds
        if held:
            engine.renewer.announce([lease])
        raise lease._over()
    if lease._key is None:
        engine.mine.remember(lease)
