"""What is asked of every store, by taking locks: it needs no rights but those of a holder."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterator

from ..claim import MAX_TTL, Snapshot, new_holder
from ..errors import HoldfastError
from ..recipes import DEFAULT_TTL
from ..sync import Locks
from .findings import Finding, ok, problem, unseen, warning

CLAIMS = 10
SLOW, VERY_SLOW = 0.1, 1.0  # seconds for a claim
OLD = 24 * 3600.0
MOST_LOOKED_AT = 1000  # names


def connection(locks: Locks) -> Iterator[Finding]:
    try:
        took = locks.ping()
    except HoldfastError as error:
        yield problem(str(error), "nothing else can be looked at until it answers")
        return
    yield ok(f"answers in {_ms(took)}")


def claims(locks: Locks) -> Iterator[Finding]:
    """Take and give back a lock of our own, ten times: rights, latency, and that tokens rise."""
    name = f"holdfast doctor {new_holder()[:8]}"
    ttl = min(max(DEFAULT_TTL, locks.traits.min_ttl), locks.traits.max_ttl)
    took, tokens = [], []
    try:
        for _ in range(CLAIMS):
            began = time.perf_counter()
            lease = locks.lock(name, ttl=ttl).acquire(timeout=5)
            took.append(time.perf_counter() - began)
            tokens.append(lease.token)
            lease.release()
    except HoldfastError as error:
        yield problem(f"no lock could be had: {error}", "until that is mended, nobody gets one")
        return
    usual, slowest = statistics.median(took), max(took)
    text = f"ten claims: {_ms(usual)} usually, {_ms(slowest)} the slowest"
    if usual > VERY_SLOW:
        yield problem(text, "renewals that slow are late: look at the store's load and at the network in between")
    elif usual > SLOW or slowest > VERY_SLOW:
        yield warning(text, "look at the store's load and at the network in between; or take a nearer store")
    else:
        yield ok(text)
    if tokens == sorted(set(tokens)):
        yield ok(f"tokens rise, from {tokens[0]} on")
    else:
        yield problem(f"tokens did not rise: {tokens}", "do not rely on this store; report it as a bug of holdfast")


def ttl(locks: Locks) -> Iterator[Finding]:
    least, most = locks.traits.min_ttl, locks.traits.max_ttl
    text = f"from {least:g} s to {f'{most:g} s' if most < MAX_TTL else '30 days'}"
    if not least <= DEFAULT_TTL <= most:
        yield warning(f"{text}; the usual ttl of {DEFAULT_TTL:g} s is outside", "pass ttl= with every lock")
    elif least > 1:
        yield ok(f"{text}: a dead holder blocks the others for {least:g} s at least")
    else:
        yield ok(text)


def leftovers(locks: Locks) -> Iterator[Finding]:
    """Locks of processes that are no more, as far as can be seen from this machine; and very old ones."""
    try:
        names = locks.names()
        snapshots = [locks.inspect(name) for name in names[:MOST_LOOKED_AT]]
    except HoldfastError as error:
        yield unseen(error, "`holdfast ls` and `holdfast why` need the same right")
        return
    gone = [who for one in snapshots for who in _dead(one)]
    if gone:
        told = ", ".join(f"{name!r} of {owner} (free in {left:.0f} s)" for name, owner, left in gone[:3])
        more = f" and {len(gone) - 3} more" if len(gone) > 3 else ""
        yield warning(
            f"{len(gone)} held by processes of this machine that have ended: {told}{more}",
            "wait for their ttl, or put them out: `holdfast release NAME --token T`",
        )
    old = [(one.name, held) for one in snapshots for held in one.holders if held.age > OLD]
    if old:
        name, held = max(old, key=lambda one: one[1].age)
        yield warning(
            f"{len(old)} held for more than a day, the oldest {name!r} by {held.owner} for {held.age / 86400:.1f} days",
            "is that meant? `holdfast why NAME` tells who waits for it",
        )
    if not gone and not old:
        many = f", of which the first {MOST_LOOKED_AT} were looked at" if len(names) > MOST_LOOKED_AT else ""
        yield ok(f"{len(names)} names in use{many}; none of a process of this machine that has ended")


def _dead(snapshot: Snapshot) -> Iterator[tuple[str, str, float]]:
    """An owner is host/pid/…: shown, never trusted, and so only ever reported."""
    here = socket.gethostname()
    for one in snapshot.holders:
        host, _, rest = one.owner.partition("/")
        pid = rest.partition("/")[0]
        if host == here and pid.isascii() and pid.isdigit() and not _is_alive(int(pid)):
            yield snapshot.name, one.owner, one.left


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"
