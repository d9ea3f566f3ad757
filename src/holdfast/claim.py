"""The data that passes between recipes, engine and stores. All of it immutable.

Named tuples rather than frozen dataclasses: a claim is built on every acquire, and a named tuple is built three times as
fast; importing `dataclasses` alone would cost more than the rest of holdfast together.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple

from .drivers.system import at_fork
from .errors import Misuse, Unavailable

MAX_NAME_BYTES = 512
MAX_NOTE_BYTES = 1024
MAX_TOKEN = 2**53 - 1  # the highest that a store gives out: what Lua and JSON keep whole
MIN_TTL = 0.05
MAX_TTL = 30 * 24 * 3600.0
MAX_TIMEOUT = 10 * 365 * 24 * 3600.0
MAX_CAPACITY = 2**31 - 1
ROUND = 3.0  # seconds: no conversation with a store takes longer, unless told otherwise
LAST_WORDS = 0.7  # seconds: so much of the time for close() is the store's own
KEPT = "kept for "  # so begins the note of a grant that stays with its process, to be lent there: idle, perhaps
CARRIED = "traceparent="  # so begins a note that ties the traces of two processes together
_HUGE = 10**18  # beyond it a number is told as this: Python refuses to print an int of thousands of digits


class Claim(NamedTuple):
    """One attempt to enter `name`: asks for `units` of its `capacity`."""

    name: str
    holder: str  # 128 random bits, new for every attempt: makes repeating harmless, and is the secret that releases
    owner: str  # host/pid/thread/label: shown to people, never trusted
    ttl: float
    units: int = 1
    capacity: int = 1
    fair: bool = True
    queue: bool = True  # join the line when there is no room
    note: str = ""  # what an election's candidate tells the others

    @property
    def lock(self) -> str:
        """Of what kind, in a word."""
        if self.capacity == 1:
            return "mutex"
        if self.capacity < MAX_CAPACITY:
            return "semaphore"
        return "read" if self.units == 1 else "write"

    def __repr__(self) -> str:
        return f"Claim({self.name!r}, {self.units}/{self.capacity} units, ttl={self.ttl:g}, owner={self.owner!r})"


class Candidacy(Claim):
    """In an election. Whoever stands by waits, and whoever leads holds, for as long as they live: neither is alarming."""

    __slots__ = ()

    @property
    def lock(self) -> str:
        return "election"


class Grant(NamedTuple):
    """Yes. Valid for `ttl` seconds from *before the claim was sent*."""

    claim: Claim
    token: int
    ttl: float

    def __repr__(self) -> str:
        return f"Grant({self.claim.name!r}, token={self.token}, ttl={self.ttl:g}, owner={self.claim.owner!r})"


class Place(NamedTuple):
    """Not yet. In line, if the claim was willing to queue; ask again after the bell, or after `wake_in` seconds."""

    claim: Claim
    wake_in: float  # when the line may move without a bell, because somebody's time runs out

    def __repr__(self) -> str:
        return f"Place({self.claim.name!r}, owner={self.claim.owner!r})"


class Holding(NamedTuple):
    """Somebody who is inside. Times are seconds, by the store's clock.

    `owner`: host/pid/thread/label. `token`: the fencing token. `units`: how many of the capacity. `age`: since it came
    in. `left`: until it is over unless it is renewed. `note`: what it said of itself, such as a leader's address. `ttl`:
    what it asked for; 0: this store does not say.
    """

    owner: str
    token: int
    units: int
    age: float
    left: float
    note: str = ""
    ttl: float = 0.0


class Waiting(NamedTuple):
    """Somebody who is in line. Times are seconds.

    `owner`: host/pid/thread/label. `units`: how many it wants. `age`: since it came. `left`: until its place is over
    unless it is heard of. `fair`: False: it comes in whenever there is room.
    """

    owner: str
    units: int
    age: float
    left: float
    fair: bool = True


class Eviction(NamedTuple):
    """The last forced release of a name.

    `owner`: who was evicted. `evicted_token`: theirs. `token`: one that outranks it. `by`: whoever did it. `age`: how
    many seconds ago.
    """

    owner: str
    evicted_token: int
    token: int
    by: str
    age: float


class Snapshot(NamedTuple):
    """Who is inside and who waits.

    `name`: of the lock. `capacity`: how many units there are; 0: not in use. `holders`: who is inside. `waiters`: who is
    in line, the first first. `eviction`: the last forced release, if one is remembered.
    """

    name: str
    capacity: int = 0
    holders: tuple[Holding, ...] = ()
    waiters: tuple[Waiting, ...] = ()
    eviction: Eviction | None = None

    @property
    def used(self) -> int:
        """How many units are taken."""
        return sum(holding.units for holding in self.holders)


Verdict = Grant | Unavailable | None  # of a renewal: kept, unknown (the store did not say in time), lost


class Traits(NamedTuple):
    """What a store promises, and, as plainly, what it does not.

    `system`: which store. `scope`: how far exclusion reaches: "process", "machine", "network". `fenced`: how tokens keep
    rising. `fair`: first come, first served. `bell`: a release wakes the next in line; False: waiting polls, with jitter.
    `durable`: what outlives a crash of the store. `clock`: whose clock ends a lease. `survives`: which failures it stays
    available and safe through. `min_ttl`, `max_ttl`: in seconds.
    """

    system: str
    scope: str
    fenced: str
    fair: bool
    bell: bool
    durable: str
    clock: str
    survives: str
    min_ttl: float = MIN_TTL
    max_ttl: float = MAX_TTL


HOLDER = 32  # characters of a nonce
_nonces: list[str] = []


def new_holder() -> str:
    """A nonce of 128 bits from the kernel, which is asked for a few dozen at a time; a fork hands out none of them twice."""
    try:
        return _nonces.pop()
    except IndexError:
        noise = os.urandom(1024).hex()
        _nonces.extend(noise[at : at + 32] for at in range(32, 2048, 32))
        return noise[:32]


at_fork(after_in_child=_nonces.clear)


def valid_name(name: object, what: str = "name") -> str:
    """`name`, if a lock may be called that: any text of 1 to 512 bytes of UTF-8 without NUL."""
    if type(name) is not str:
        raise Misuse(f"a {what} must be a str, not {type(name).__name__}: {name!r:.80}")
    if not name:
        raise Misuse(f"a {what} must not be empty")
    if not name.isascii():
        try:
            size = len(name.encode())
        except UnicodeEncodeError:
            raise Misuse(f"a {what} must be valid Unicode, without surrogates: {name!r:.80}") from None
    else:
        size = len(name)
    if size > MAX_NAME_BYTES:
        raise Misuse(f"a {what} may have {MAX_NAME_BYTES} bytes of UTF-8, this one has {size}: {name[:40]!r}… Hash it")
    if "\0" in name:
        raise Misuse(f"a {what} must not contain NUL: {name!r:.80}")
    return name


def is_name(name: str) -> bool:
    try:
        return bool(valid_name(name))
    except Misuse:
        return False


def valid_prefix(prefix: object) -> str:
    """What names may begin with; nothing is what they all do."""
    return valid_name(prefix, "prefix") if prefix != "" else ""


def valid_note(note: object, what: str) -> str:
    """A short text that other people will see: printable, so that it cannot play tricks with their terminal."""
    if type(note) is not str:
        raise Misuse(f"{what} must be a str, not {type(note).__name__}: {note!r:.80}")
    if not note.isprintable():
        raise Misuse(f"{what} must be printable text: {note!r:.80}")
    if len(note.encode()) > MAX_NOTE_BYTES:
        raise Misuse(f"{what} may have {MAX_NOTE_BYTES} bytes of UTF-8: {note[:40]!r}…")
    return note


def printable(text: str, most: int = MAX_NOTE_BYTES) -> str:
    """Fit for a log or a terminal. A thread may be called anything, and what others wrote into the store is not to be trusted:
    neither a forged line of a log nor an escape sequence gets through, nor more than `most` characters."""
    shown = text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown if len(shown) <= most else shown[:most] + "…"


def _number(value: object, what: str) -> float:
    if type(value) is float or type(value) is int:
        if type(value) is int or math.isfinite(value):
            return float(max(-_HUGE, min(value, _HUGE)))
        raise Misuse(f"{what} must be a finite number of seconds, not {value!r}")
    raise Misuse(f"{what} must be a number of seconds, not {type(value).__name__}: {value!r:.80}")


def valid_ttl(ttl: object, what: str = "ttl") -> float:
    seconds = _number(ttl, what)
    if seconds < MIN_TTL:
        raise Misuse(
            f"{what} must be at least {MIN_TTL} s, not {seconds:g}: a shorter lease is over before it can be renewed"
        )
    if seconds > MAX_TTL:
        raise Misuse(
            f"{what} may be {MAX_TTL:.0f} s (30 days), not {seconds:g}: a dead holder would block all others that long"
        )
    return seconds


def valid_keep(keep: object) -> float:
    """0 keeps nothing."""
    seconds = _number(keep, "keep")
    if seconds < 0:
        raise Misuse(f"keep must not be negative ({seconds:g}): 0 gives the lock back at once")
    if seconds > MAX_TTL:
        raise Misuse(f"keep may be {MAX_TTL:.0f} s (30 days), not {seconds:g}")
    return seconds


def valid_timeout(timeout: object) -> float | None:
    """None waits for ever, 0 tries once."""
    if timeout is None:
        return None
    if type(timeout) is float and timeout == math.inf:
        raise Misuse("timeout must be finite; to wait for ever, pass timeout=None")
    seconds = _number(timeout, "timeout")
    if seconds < 0:
        raise Misuse(f"timeout must not be negative ({seconds:g}); None waits for ever, 0 tries once")
    return min(seconds, MAX_TIMEOUT)  # threading.TIMEOUT_MAX is a usual way to say "for ever"


def valid_closing(timeout: object) -> float:
    seconds = _number(timeout, "timeout")
    if seconds < 0:
        raise Misuse(f"timeout must not be negative ({seconds:g})")
    return min(seconds, MAX_TIMEOUT)


def valid_units(units: object, capacity: int, what: str = "units") -> int:
    if type(units) is not int:
        raise Misuse(f"{what} must be an int, not {type(units).__name__}: {units!r:.80}")
    if units < 1:
        raise Misuse(f"{what} must be at least 1, not {float(max(units, -_HUGE)):g}")
    if units > capacity:
        raise Misuse(
            f"{what} must be at most the capacity {capacity}, not {float(min(units, _HUGE)):g}: it could never be granted"
        )
    return units
