"""Other libraries' words for what we call otherwise: whoever comes from there is told, and not left to guess."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import Misuse

_WAIT = "`timeout=`: None waits for ever, 0 tries once, n waits n seconds"
_TTL = "`ttl=`, given to lock(): how long the lock outlives a holder that died; it is renewed meanwhile"
_URL = "the URL, as in redis://user:password@host:6379/0"

ARGUMENTS = {
    "blocking": _WAIT,
    "blocking_timeout": _WAIT,
    "acquire_timeout": _WAIT,
    "wait": _WAIT,
    "wait_timeout": _WAIT,
    "lock_timeout": _WAIT,
    "max_wait": _WAIT,
    "expire": _TTL,
    "expires": _TTL,
    "expiry": _TTL,
    "expiration": _TTL,
    "lease_time": _TTL,
    "lease_seconds": _TTL,
    "auto_release_time": _TTL,
    "lock_at_most_for": "`at_most=`, given to once()",
    "lock_at_least_for": "`at_least=`, given to once()",
    "auto_renewal": "`renew=`, which is True unless you say otherwise",
    "auto_renew": "`renew=`, which is True unless you say otherwise",
    "auto_extend": "`renew=`, which is True unless you say otherwise",
    "sleep": "nothing: a waiter is woken, and does not poll",
    "poll_interval": "nothing: a waiter is woken, and does not poll",
    "check_interval": "nothing: a waiter is woken, and does not poll",
    "thread_local": "nothing: who has the lease is inside, in whatever thread",
    "strict": "nothing: a lease belongs to one acquire",
    "id": "`connect(url, label=…)`, for what others are shown; ownership is in the lease",
    "value": "`units=`, given to a semaphore's acquire()",
    "max_leases": "`capacity`, the second argument of semaphore()",
    "host": _URL,
    "hosts": _URL,
    "port": _URL,
    "db": _URL,
    "username": _URL,
    "password": _URL,
    "namespace": "`prefix` in the URL, where the store has one",
}

_OURS = (
    *("ttl", "timeout", "key", "fair", "reentrant", "renew", "keep", "confirm", "otherwise", "at_least", "at_most"),
    *("capacity", "units", "cancel", "label", "check", "observe", "also", "address"),
)

ATTRIBUTES = {
    "release": "the lease is released: `lease = lock.acquire()`, then `lease.release()`; or use `with`",
    "locked": "ask the store: `locks.inspect(lock.name).holders`",
    "is_locked": "ask the store: `locks.inspect(lock.name).holders`",
    "owned": "ask the lease: `lease.held`",
    "is_acquired": "ask the lease: `lease.held`",
    "extend": "the lease is extended: `lease.extend(seconds)`; it also renews itself, unless you pass `renew=False`",
    "reacquire": "the lease is renewed: `lease.renew()`; it also renews itself, unless you pass `renew=False`",
    "renew": "the lease is renewed: `lease.renew()`; it also renews itself, unless you pass `renew=False`",
    "reset": "`locks.force_release(name, token=…)` evicts the holder that you looked at",
    "force_release": "`locks.force_release(name, token=…)` evicts the holder that you looked at",
}


def refuse(call: str, foreign: Mapping[str, object]) -> None:
    """Nobody knows this argument here."""
    for word in foreign:
        if word in ARGUMENTS:
            raise Misuse(f"{call} takes no `{word}=`; here that is {ARGUMENTS[word]}")
        raise TypeError(f"{call} got an unexpected keyword argument {word!r}{_near(word)}")


def _near(word: str) -> str:
    from difflib import get_close_matches  # only for whoever has mistyped it

    near = get_close_matches(word, _OURS, 1, 0.6)
    return f": did you mean {near[0]!r}?" if near else ""


_OF_A_LEASE = ("token", "held", "lost", "name", "check", "release", "renew", "extend", "in_danger", "downgrade")


def not_awaited(of: object, attribute: str) -> AttributeError:
    """Of what acquire() returns in asyncio."""
    hint = "; `await` it first: `lease = await lock.acquire()`" if attribute in _OF_A_LEASE else ""
    return AttributeError(f"{type(of).__name__!r} object has no attribute {attribute!r}{hint}", name=attribute, obj=of)


def missing(of: object, attribute: str) -> AttributeError:
    """The same for what is asked of a lock, and is the lease's here."""
    hint = ATTRIBUTES.get(attribute)
    kind = type(of).__name__
    return AttributeError(
        f"{kind!r} object has no attribute {attribute!r}" + (f"; {hint}" if hint else ""), name=attribute, obj=of
    )
