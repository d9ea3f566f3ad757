"""To the server, to any node of a cluster, or to the one that the Sentinels call master; a wire says how to connect."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol, TypeVar

from ...errors import Unavailable
from .keys import pack
from .replies import NONSENSE, Reply, ReplyError, explained, nonsense, sent_to
from .url import Address, Target, show

C = TypeVar("C")


class Dialler(Protocol[C]):
    """How one address is connected to, all by a deadline."""

    async def open(self, target: Target, address: Address, deadline: float, *, known: bool) -> C:
        """Connected and logged in; or, if `known`, on the way there."""
        ...

    async def ask(self, connection: C, request: bytes, deadline: float) -> Reply: ...
    def close(self, connection: C) -> None: ...


async def dial(
    target: Target, deadline: float, now: Callable[[], float], dialler: Dialler[C], *, known: bool = False
) -> C:
    """Connected and logged in; or, to a server that took our login before, on the way there.

    A login that was taken before need not be waited for: so a release follows its claim to a server that has fallen silent,
    on whatever connection, and no ghost is left when it wakes.
    """
    if target.kind == "sentinel":
        return await _dial_master(target, deadline, now, dialler)
    *others, last = target.addresses
    for number, address in enumerate(others):
        share = (deadline - now()) / (len(others) + 1 - number)
        with contextlib.suppress(Unavailable):
            return await dialler.open(target, address, now() + share, known=False)
    return await dialler.open(target, last, deadline, known=known and not others and not target.database)


async def _dial_master(target: Target, deadline: float, now: Callable[[], float], dialler: Dialler[C]) -> C:
    failures = []
    for sentinel in target.addresses:
        left = deadline - now()
        if left <= 0:
            break
        try:
            master = await _master(target, sentinel, now() + left / 2, dialler)
            return await dialler.open(target, master, deadline, known=False)
        except Unavailable as error:
            failures.append(str(error))
    raise Unavailable(f"no Sentinel led to a master of {target.service!r}: {'; '.join(failures) or 'no time was left'}")


async def _master(target: Target, sentinel: Address, deadline: float, dialler: Dialler[C]) -> Address:
    connection = await dialler.open(as_sentinel(target), sentinel, deadline, known=False)
    try:
        reply = await dialler.ask(connection, pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service), deadline)
    finally:
        dialler.close(connection)
    if isinstance(reply, ReplyError):
        raise explained(reply, show(sentinel))
    if reply is None:
        raise Unavailable(f"the Sentinel at {show(sentinel)} knows no service {target.service!r}")
    try:
        host, port = reply
        return sent_to(host.decode(), port)
    except NONSENSE as error:
        raise nonsense(reply, show(sentinel)) from error


def as_sentinel(target: Target) -> Target:
    """How a Sentinel itself is asked."""
    return target._replace(
        kind="redis", username=target.sentinel_username, password=target.sentinel_password, database=0
    )
