"""What a server's answers mean: the first words of a conversation, and its errors in ours."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from ...errors import HoldfastError, Misuse, Unavailable
from ...secret import HIDDEN, SecretBytes
from .bounds import MOST, Bounds, ProtocolError, Reader, ReplyError
from .keys import pack
from .url import Address, Target, show

__all__ = [
    "ProtocolError",
    "Reader",
    "UNREADABLE",
    "ReplyError",
    "Reply",
    "MOST",
    "MOST_GREETING",
    "MOST_OF_LOOKING",
    "Bounds",
    "greeting",
    "check_greeting",
    "explained",
    "is_missing_script",
    "worded",
]

MOST_OF_LOOKING = 64 << 20  # but of who is inside and in line, and of names
MOST_GREETING = 1 << 16  # and of a server that has not even let us in
# What hiredis raises at what no Redis says. TypeError: a map of RESP 3, which nobody asked for, with a list for a key.
UNREADABLE = (ProtocolError, MemoryError, ValueError, TypeError)
# A Redis that does not know a command (AUTH, say: rename-command takes it away) repeats what came with it.
_REPEATED = re.compile("[,;:.]? with args beginning with")
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,255}")
Reply: TypeAlias = Any  # bytes, int, None, a list of them, or a ReplyError

# What the scripts and the wires use, and nothing besides: no category, which would bring CLIENT KILL or SCRIPT FLUSH along.
_COMMANDS = (
    "auth ping evalsha script|load get set setrange del exists pexpire pttl hget hset hdel hgetall zadd zrem zcard "
)
_COMMANDS += "zrange zrangebyscore time publish subscribe unsubscribe scan"
_REDLOCK = "auth ping evalsha script|load get set setrange del exists pexpire pttl hget hset hdel hgetall time scan"


def rights(target: Target) -> str:
    """The rules of an ACL for exactly this URL."""
    if target.kind == "redlock":
        keys, commands = f"~{target.prefix}:redlock:{{*", _REDLOCK
    else:
        keys = f"~{target.prefix}:{{* &{target.prefix}:{{* &{target.prefix}:bell:*"
        commands = _COMMANDS
    commands += " select" * bool(target.database) + " wait" * bool(target.replicas)
    commands += {"sentinel": " role", "cluster": " cluster|slots asking"}.get(target.kind, "")
    return f"{keys} {' '.join(f'+{word}' for word in commands.split())}"


def greeting(target: Target, *, known: bool) -> list[bytes]:
    """Sent on a new connection before anything else, in one piece. `known`: this server took our login before."""
    requests: list[bytes] = []
    if target.password:
        name = (target.username,) if target.username else ()
        requests.append(SecretBytes(pack("AUTH", *name, target.password.plain)))
    elif not known:
        requests.append(
            pack("PING")
        )  # a server that wants a password says so now, and to a script's many words less clearly
    if target.database:
        requests.append(pack("SELECT", target.database))
    if target.kind == "sentinel":
        requests.append(pack("ROLE"))
    return requests


def check_greeting(target: Target, address: Address, replies: list[Reply]) -> None:
    for reply in replies:
        if isinstance(reply, ReplyError):
            raise explained(_without_login(reply, target), show(address), target.prefix)
    if target.kind == "sentinel" and not (type(replies[-1]) is list and replies[-1][:1] == [b"master"]):
        raise Unavailable(f"{show(address)} is no longer the master of {target.service!r}: a failover is under way")


def _without_login(reply: ReplyError, target: Target) -> ReplyError:
    """Of whoever else repeats what they were told."""
    return ReplyError(str(reply).replace(target.password.plain, HIDDEN)) if target.password else reply


def worded(reply: Exception) -> str:
    """What a server said no with, and not what we had said: a login, a holder's nonce."""
    return _REPEATED.split(str(reply), maxsplit=1)[0]


def is_missing_script(reply: Reply) -> bool:
    return isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT")


_TROUBLE = {
    "READONLY": "it is a replica now: a failover is under way, or the URL names a replica",
    "LOADING": "it is still loading its data after a restart",
    "BUSY": "a script of somebody else keeps it busy: wait, or have an administrator run SCRIPT KILL",
    "OOM": "it is out of memory: raise maxmemory, or choose a maxmemory-policy that evicts (volatile-ttl spares locks longest)",
    "MASTERDOWN": "it has lost its master: a failover is under way",
    "NOREPLICAS": "it does not have the replicas that min-replicas-to-write asks for",
    "MISCONF": "it refuses to write because it cannot save to disk: look at its log",
    "CLUSTERDOWN": "its cluster is not complete",
    "TRYAGAIN": "its cluster is moving these keys just now",
    "EXECABORT": "it aborted the transaction",
    "UNBLOCKED": "the wait was ended by a failover or an administrator",
}


def explained(reply: ReplyError, where: str, prefix: str = "hf", key: str = "") -> HoldfastError:
    """A server's error as one of ours: what is the matter, and what to do."""
    text = worded(reply)
    code = text.partition(" ")[0]
    if code in _TROUBLE:
        return Unavailable(f"Redis at {where} cannot serve locks now: {_TROUBLE[code]} ({text:.200})")
    if code in ("NOAUTH", "WRONGPASS") or "without any password configured" in text or "invalid password" in text:
        return Misuse(f"Redis at {where} refuses the login: put the right user:password into the URL ({text:.200})")
    # The second is how Redis 7.0 says it of what a script may not do.
    if code == "NOPERM" or "user executing the script can't" in text:
        return Misuse(
            f"Redis at {where} forbids what locks need ({text:.200}). Grant the user what `holdfast migrate --acl` prints "
            f"for this URL: {rights(Target('redis', (), prefix=prefix))}"
        )
    if code == "WRONGTYPE" or "WRONGTYPE" in text or "Bad data format" in text:
        return foreign(key, where)
    if code in ("DENIED", "ERR") and ("max number of clients" in text or "protected mode" in text):
        return Unavailable(f"Redis at {where} refuses connections ({text:.200})")
    for trouble, meaning in _TROUBLE.items():  # inside a script's error
        if f"{trouble} " in text[:200] or f"-{trouble} " in text:
            return Unavailable(f"Redis at {where} cannot serve locks now: {meaning} ({text:.200})")
    return Unavailable(f"Redis at {where} answered with an error: {text:.300}")


# What taking apart a reply of another form than ours raises.
NONSENSE = (TypeError, ValueError, IndexError, KeyError, AttributeError)


def nonsense(reply: Reply, where: str) -> Unavailable:
    """No Redis with our scripts would say so: another program at this address, or one in between."""
    return Unavailable(f"what answers at {where} does not speak as Redis does: {reply!r:.80}")


def sent_to(host: str, port: str | bytes | int, otherwise: str = "") -> Address:
    """Where a server sends us, with our password: to a host, and not to a socket of this machine. Else ValueError."""
    number = int(port)
    if not (_HOST.fullmatch(host) or (not host and otherwise)) or not 0 < number < 65536:
        raise ValueError("no address")
    return host or otherwise, number


def heard(message: Reply, own: bytes, where: str, prefix: str = "hf") -> bytes | None:
    """Which bell a message on a connection that is subscribed stands for; None: for none. `own`: the store's own channel."""
    if isinstance(message, ReplyError):
        raise explained(message, where, prefix)
    if type(message) is not list or len(message) < 2:
        raise nonsense(message, where)
    kind, channel, *rest = message
    if kind == b"message" and channel == own and rest:
        return rest[0] if type(rest[0]) is bytes else None
    return channel if kind in (b"message", b"subscribe") and type(channel) is bytes else None


def foreign(key: str, where: str) -> Misuse:
    return Misuse(
        f"the key {key!r} in Redis at {where} was not written by holdfast: something else uses our keys. "
        "Delete it there, or give this program its own keys with ?prefix=… in the URL"
    )
