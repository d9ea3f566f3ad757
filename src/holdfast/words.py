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

# Ours, and which call takes them: who gives one to another call is told where it goes.
_LOCKS = ("lock()", "semaphore()", "rwlock()")
OURS = {
    "ttl": (*_LOCKS, "all_of()", "election()"),
    "timeout": (*_LOCKS, "all_of()", "acquire()"),
    "fair": (*_LOCKS, "all_of()"),
    "renew": (*_LOCKS, "all_of()"),
    "otherwise": (*_LOCKS, "once()"),
    "key": ("lock()", "once()"),
    "reentrant": ("lock()",),
    "keep": ("lock()", "rwlock()"),
    "confirm": ("lock()",),
    "at_least": ("once()",),
    "at_most": ("once()",),
    "capacity": ("semaphore()",),
    "address": ("election()",),
    "cancel": ("acquire()",),
    "units": ("acquire() of a semaphore",),
    "label": ("connect()",),
    "check": ("connect()",),
    "observe": ("connect()",),
    "also": ("connect()",),
}

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

# What is looked for in the wrong place, by the class in which it is.
_READ_OR_WRITE = "it has two sides: `rwlock.read()` and `rwlock.write()` are locks"
_LEAD = "`with election.lead() as lease:` is entered as the leader"
_FIRST = "a connection has the locks, and `locks.lock(name)` is one: `with locks.lock(name) as lease:`"
ELSEWHERE = {
    "RWLock": dict.fromkeys(("acquire", "try_acquire", "release", "lock"), _READ_OR_WRITE),
    "Election": dict.fromkeys(("acquire", "try_acquire", "release", "campaign", "is_leader"), _LEAD),
    "Locks": dict.fromkeys(("acquire", "try_acquire", "release", "get_lock", "create_lock", "Lock", "mutex"), _FIRST),
}


def refuse(call: str, foreign: Mapping[str, object]) -> None:
    """Nobody knows this argument here."""
    for word in foreign:
        if word in ARGUMENTS:
            raise Misuse(f"{call} takes no `{word}=`; here that is {ARGUMENTS[word]}")
        if word in OURS:
            raise Misuse(f"{call} takes no `{word}=`; that is for {', '.join(OURS[word])}")
        raise TypeError(f"{call} got an unexpected keyword argument {word!r}{_near(call, word)}")


def _near(call: str, word: str) -> str:
    from difflib import get_close_matches  # only for whoever has mistyped it

    taken = [one for one, calls in OURS.items() if any(each.startswith(call) for each in calls)]
    near = get_close_matches(word, taken, 1, 0.6)
    return f": did you mean {near[0]!r}?" if near else ""


_OF_A_LEASE = ("token", "held", "lost", "name", "check", "release", "renew", "extend", "in_danger", "downgrade")


def not_awaited(of: object, attribute: str) -> AttributeError:
    """Of what acquire() returns in asyncio."""
    hint = "; `await` it first: `lease = await lock.acquire()`" if attribute in _OF_A_LEASE else ""
    return AttributeError(f"{type(of).__name__!r} object has no attribute {attribute!r}{hint}", name=attribute, obj=of)


def missing(of: object, attribute: str) -> AttributeError:
    """The same for what is asked of a lock, and is the lease's here; or of what has locks, and is none."""
    kind = type(of).__name__
    hint = ELSEWHERE.get(kind, ATTRIBUTES).get(attribute)
    return AttributeError(
        f"{kind!r} object has no attribute {attribute!r}" + (f"; {hint}" if hint else ""), name=attribute, obj=of
    )


_MADE_BY = {"LockOr": "lock", "RWLock": "rwlock", "Semaphore": "semaphore"}


def made_by_connect(kind: str) -> str:
    """What is said to who calls a class that is only to be named in annotations."""
    call = f"locks.{_MADE_BY.get(kind, 'lock')}(…)"
    return f"{kind} is what {call} returns, and is not called: `locks = holdfast.connect()`, then `{call}`"
