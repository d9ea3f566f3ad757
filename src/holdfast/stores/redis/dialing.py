"""To the server, to any node of a cluster, or to the one that the Sentinels call master."""

from __future__ import annotations

import contextlib
import time

from ...errors import Unavailable
from .connection import Connection, Talk, together
from .keys import pack
from .replies import NONSENSE, Reply, ReplyError, explained, nonsense
from .url import Address, Target, show

_clock = time.monotonic


def dial(target: Target, deadline: float, *, known: bool = False) -> Connection:
    """Connected and logged in; or, to a server that took our login before, on the way there.

    A login that was taken before need not be waited for: so a release follows its claim to a server that has fallen silent,
    on whatever connection, and no ghost is left when it wakes.
    """
    if target.kind == "sentinel":
        return _dial_master(target, deadline)
    *others, last = target.addresses
    if known and not others and not target.database:
        return Connection(target, last, known=True, deadline=deadline)
    for number, address in enumerate(others):
        share = (deadline - _clock()) / (len(others) + 1 - number)
        with contextlib.suppress(Unavailable):
            return _logged_in(target, address, _clock() + share)
    return _logged_in(target, last, deadline)


def _logged_in(target: Target, address: Address, deadline: float) -> Connection:
    within = deadline - _clock()
    connection = Connection(target, address, deadline=deadline)
    try:
        # Look first: to a socket of this machine we are connected at once, and a quick server has answered already.
        while connection.next() is not False or not connection.greeted:
            if not connection.wait(deadline):
                raise connection.late(max(within, 0.0))
            connection.step()
    except BaseException:
        connection.close()
        raise
    return connection


def _dial_master(target: Target, deadline: float) -> Connection:
    failures = []
    for sentinel in target.addresses:
        left = deadline - _clock()
        if left <= 0:
            break
        try:
            return _logged_in(target, _master(target, sentinel, left / 2), deadline)
        except Unavailable as error:
            failures.append(str(error))
    raise Unavailable(f"no Sentinel led to a master of {target.service!r}: {'; '.join(failures) or 'no time was left'}")


def _master(target: Target, sentinel: Address, within: float) -> Address:
    connection = Connection(as_sentinel(target), sentinel, deadline=_clock() + within)
    try:
        talk = Talk(connection, [master_question(target)])
        together([talk], within)
    finally:
        connection.close()
    if talk.trouble is not None:
        raise talk.trouble
    return master_address(target, sentinel, talk.replies[0])


def as_sentinel(target: Target) -> Target:
    """How a Sentinel itself is asked."""
    return target._replace(
        kind="redis", username=target.sentinel_username, password=target.sentinel_password, database=0
    )


def master_question(target: Target) -> bytes:
    return pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", target.service)


def master_address(target: Target, sentinel: Address, reply: Reply) -> Address:
    if isinstance(reply, ReplyError):
        raise explained(reply, show(sentinel))
    if reply is None:
        raise Unavailable(f"the Sentinel at {show(sentinel)} knows no service {target.service!r}")
    try:
        host, port = reply
        return host.decode(), int(port)
    except NONSENSE as error:
        raise nonsense(reply, show(sentinel)) from error
