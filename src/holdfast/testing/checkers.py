"""Was everything kept that is promised? Each checker takes a history and returns what it found wrong: nothing, if all is well.

They know plain data only, so they judge a recording from real servers as they judge a simulation. All times of a history must be
of one clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from . import linearizability
from .history import (
    ACQUIRE,
    CHECK,
    CLAIM,
    CLOSED,
    CRASHED,
    DONE,
    EVICT,
    FAILED,
    FORGOT,
    GRANTED,
    LEFT,
    LOST,
    OPEN,
    PLACED,
    READ,
    RELEASE,
    RENEW,
    RENEWED,
    SET_BACK,
    SET_FORWARD,
    STALE,
    TOLD_LOST,
    UNKNOWN,
    WRITE,
    History,
    Operation,
)

UNDECIDED = "undecided"
SLACK = 1e-9  # of floating point, not of clocks
BEHIND = 2.0  # seconds that a replica may be behind


class Finding(NamedTuple):
    checker: str
    name: str  # of the lock or resource
    message: str

    def __str__(self) -> str:
        return f"[{self.checker}] {self.name}: {self.message}"


# May a lower token follow a higher one, of that name? Both tokens, and between which moments they were given.
Excuse = Callable[[str, int, int, float, float], bool]


def no_excuse(name: str, higher: int, lower: int, since: float, until: float) -> bool:
    return False


def check_safety(
    history: History, excuse: Excuse = no_excuse, *, own_clock: bool = False, from_asking: bool = False
) -> list[Finding]:
    """All that must hold at any time, whatever fails. `own_clock`: each process ends its own claims, by its own clock.
    `from_asking`: several servers each count the time of a claim from when they had it, so only what runs from its asking
    is sure."""
    return [
        *check_storage(history),
        *check_tokens(history, excuse),
        *check_linearizability(history, excuse, own_clock=own_clock, from_asking=from_asking),
        *check_honesty(history),
    ]


# ---- storage


def check_storage(history: History) -> Iterator[Finding]:
    """Accepted tokens never decrease, no acknowledged update is lost, and nobody is refused without cause."""
    yield from check_updates(history)
    yield from check_order(history)
    yield from check_refusals(history)


def check_updates(history: History) -> Iterator[Finding]:
    """No acknowledged update is lost."""
    for resource, touches in _touches(history):
        final = history.final.get(resource)
        kept = set(final or ())
        for one in touches:
            if final is not None and one.kind == WRITE and one.outcome == DONE and not kept.issuperset(one.value):
                yield Finding("storage", resource, f"an acknowledged update was lost: {one}; at the end: {final}")


def check_order(history: History) -> Iterator[Finding]:
    """No stale write is accepted: tokens never decrease, neither as they were answered nor in what is there at the end."""
    for resource, touches in _touches(history):
        tokens = [token for _, token in history.final.get(resource, ())]
        if tokens != sorted(tokens):
            yield Finding("storage", resource, f"an older token wrote after a newer one: {history.final[resource]}")
        yield from _tokens_going_back(resource, touches)


def check_refusals(history: History) -> Iterator[Finding]:
    """Nobody is refused without cause."""
    for resource, touches in _touches(history):
        for one in touches:
            if one.outcome == STALE and not any(
                other.token > one.token and other.invoked <= one.returned for other in touches
            ):
                yield Finding("storage", resource, f"refused, though nobody had come with a newer token: {one}")


def _touches(history: History) -> Iterator[tuple[str, list[Operation]]]:
    for resource, touches in history.about(READ, WRITE).items():
        yield resource, [one for one in touches if one.token]


def _tokens_going_back(resource: str, touches: Iterable[Operation]) -> Iterator[Finding]:
    accepted = [one for one in touches if one.outcome == DONE]
    for one, highest in _falls(accepted, asked=lambda one: one.invoked, known=lambda one: one.returned):
        yield Finding("storage", resource, f"accepted {one} after {highest}")


# ---- tokens


class _Minted(NamedTuple):
    token: int
    attempt: tuple[str, str]
    earliest: float  # the first claim of its holder was sent then
    latest: float  # somebody had been told of it by then


def check_tokens(history: History, excuse: Excuse = no_excuse) -> Iterator[Finding]:
    """A token belongs to one attempt, and they rise in the order in which they were granted."""
    for name, claims in history.about(CLAIM).items():
        minted = _minted(claims)
        yield from _shared(name, minted)
        for one, highest in _fallen(claims, minted):
            if not excuse(name, highest.token, one.token, highest.earliest, one.latest):
                yield Finding(
                    "tokens",
                    name,
                    f"token {one.token} was asked for at {one.earliest:.4f}, after {highest.token} was known "
                    f"({highest.latest:.4f})",
                )


def _minted(claims: Iterable[Operation]) -> list[_Minted]:
    asked: dict[tuple[str, str], float] = {}
    told: dict[tuple[int, tuple[str, str]], float] = {}
    for one in claims:
        attempt = one.process, one.holder
        asked.setdefault(attempt, one.invoked)
        if one.outcome == GRANTED:
            key = one.token, attempt
            told[key] = min(told.get(key, OPEN), one.returned)
    return [_Minted(token, attempt, asked[attempt], at) for (token, attempt), at in told.items()]


def _fallen(claims: Iterable[Operation], minted: list[_Minted]) -> Iterator[tuple[_Minted, _Minted]]:
    """Tokens that were asked for when a higher one was known already. What an attempt is told may have been given at its
    first asking, whose answer was lost; but not if it was told a higher one since."""
    yield from _falls(minted, *_TIMES)
    told: dict[tuple[str, str], list[_Minted]] = defaultdict(list)
    for one in claims:
        if one.outcome == GRANTED:
            attempt = one.process, one.holder
            answer = _Minted(one.token, attempt, one.invoked, one.returned)
            before = [other for other in told[attempt] if other.latest <= answer.earliest and other.token > one.token]
            if before:
                yield answer, max(before)
            told[attempt].append(answer)


def _shared(name: str, minted: Iterable[_Minted]) -> Iterator[Finding]:
    owners: dict[int, tuple[str, str]] = {}
    for one in minted:
        other = owners.setdefault(one.token, one.attempt)
        if other != one.attempt:
            yield Finding(
                "tokens", name, f"token {one.token} was given to {' '.join(other)} and {' '.join(one.attempt)}"
            )


T = TypeVar("T", Operation, _Minted)
_TIMES = (lambda one: one.earliest), (lambda one: one.latest)


def _falls(some: list[T], asked: Callable[[T], float], known: Callable[[T], float]) -> Iterator[tuple[T, T]]:
    """Whatever was asked for when a higher token was known already, with the highest of those."""
    by_answer = sorted(some, key=known)
    highest: T | None = None
    done = 0
    for one in sorted(some, key=asked):
        while done < len(by_answer) and known(by_answer[done]) < asked(one):
            if highest is None or by_answer[done].token > highest.token:
                highest = by_answer[done]
            done += 1
        if highest is not None and one.token < highest.token:
            yield one, highest


# ---- linearizability


def check_linearizability(
    history: History, excuse: Excuse = no_excuse, *, own_clock: bool = False, from_asking: bool = False
) -> Iterator[Finding]:
    """Did each lock answer as one lock would? Not to be asked where a server forgot, nor where tokens fell: that is judged
    by itself, and there fencing is what is left. (Nor where they may have fallen unseen, since the higher one was told late,
    if there is an excuse for it.) A clock that is set forward may end any lease."""
    forgotten = {note.name for note in history.notes if note.what == FORGOT}
    early = [note.at for note in history.notes if note.what == SET_FORWARD]
    if "" in forgotten:
        return
    for name, asked in history.about(CLAIM, RENEW, RELEASE, EVICT).items():
        claims = [one for one in asked if one.kind == CLAIM]
        if name in forgotten or any(_fallen(claims, _minted(claims))):
            continue
        try:
            given_up = _given_up(history, name) if own_clock else None
            blocked = linearizability.first_violation(
                asked, early, own_clock=own_clock, from_asking=from_asking, given_up=given_up
            )
        except linearizability.Undecided as undecided:
            yield Finding(UNDECIDED, name, str(undecided))  # not known to be right is not right
            continue
        if blocked is not None and not _fell_unseen(history, name, _minted(claims), excuse):
            yield Finding("linearizability", name, f"no order explains {blocked}")


def _given_up(history: History, name: str) -> dict[int, float]:
    """Where a session ends with its process: what its owner had been told is lost need not be released, and goes with the
    connection, though its time by the store is not over. Whoever closes it without having been told releases first."""
    found: dict[int, float] = {}
    for note in history.notes:
        if note.what == TOLD_LOST and note.name == name:
            closed = [each.at for each in history.notes if (each.process, each.what) == (note.process, CLOSED)]
            found[note.token] = min([at for at in closed if at >= note.at], default=OPEN)
    return found


def _fell_unseen(history: History, name: str, minted: Sequence[_Minted], excuse: Excuse) -> bool:
    """May a clock that was set back have given a lower token after a higher one, whose owner was not told before?"""
    set_back = [note.at for note in history.notes if note.what == SET_BACK]
    return any(
        lower.token < higher.token
        and any(higher.earliest <= at <= lower.latest for at in set_back)
        and excuse(name, higher.token, lower.token, higher.earliest, lower.latest)
        for higher in minted
        for lower in minted
    )


# ---- overlap


class Overlap(NamedTuple):
    name: str
    since: float
    seconds: float
    who: tuple[str, ...]


class _Hold(NamedTuple):
    since: float
    until: float
    units: int
    process: str


def overlaps(history: History) -> list[Overlap]:
    """When more believed to be inside than fit. To be counted, not failed: a client that is paused cannot know better."""
    found = []
    used: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in history.of(CHECK, READ, WRITE, RELEASE, CLAIM):
        used[one.name, one.holder].append(one)
    for name, asked in history.about(ACQUIRE).items():
        taken = [one for one in asked if one.outcome == GRANTED]
        holds = [hold for one in taken for hold in _believed(_during(taken, one, used[name, one.holder]), one)]
        for newest in holds:
            inside = [hold for hold in holds if hold.since <= newest.since < hold.until]
            if sum(hold.units for hold in inside) > taken[0].capacity:
                seconds = min(hold.until for hold in inside) - newest.since
                found.append(Overlap(name, newest.since, seconds, tuple(hold.process for hold in inside)))
    return found


def _during(taken: Iterable[Operation], one: Operation, used: Iterable[Operation]) -> list[Operation]:
    """What is kept is lent again and again: of its uses, those before the next who has it."""
    again = min(
        (other.returned for other in taken if other.holder == one.holder and other.returned > one.returned),
        default=OPEN,
    )
    return [use for use in used if use.invoked < again]


def _believed(used: Iterable[Operation], taken: Operation) -> Iterator[_Hold]:
    """From being told until its user last saw it held, used it, or asked to release it; after a downgrade, with fewer units."""
    mine = [one for one in used if one.invoked >= taken.returned]
    asked = [one.invoked for one in mine if one.kind == RELEASE]  # repeated until it is answered: the first time counts
    until = min(asked) if asked else max((one.invoked for one in mine), default=taken.returned)
    fewer = next((one for one in mine if one.kind == CLAIM and one.units < taken.units), None)
    if fewer is None:
        yield _Hold(taken.returned, until, taken.units, taken.process)
    else:
        yield _Hold(taken.returned, fewer.invoked, taken.units, taken.process)
        yield _Hold(fewer.invoked, until, fewer.units, taken.process)


# ---- liveness


def check_liveness(history: History, healed: float, within: float) -> Iterator[Finding]:
    """Everybody who waited when the faults were over, or came later, was served or answered within so many seconds."""
    gone = {note.process: note.at for note in history.notes if note.what == CRASHED}
    for one in history.of(ACQUIRE):
        waited = min(one.returned, gone.get(one.process, OPEN)) - max(one.invoked, healed)
        if waited > within and "cancelled" not in one.detail:
            yield Finding(
                "liveness", one.name, f"not served within {within:g} s of {max(one.invoked, healed):.4f}: {one}"
            )


# Until when may those who are rung have been refused, of a release of that name between these moments?
Refused = Callable[[str, float, float], float]


def never_refused(name: str, since: float, until: float) -> float:
    return since


def check_handoff(
    history: History, healed: float, within: float, refused: Refused = never_refused
) -> Iterator[Finding]:
    """With nothing in the way, a release wakes whoever is first in line, and so does a downgrade: they need not wait for a
    timer."""
    set_back = any(note.what == SET_BACK for note in history.notes)
    back = [note.at for note in history.notes if set_back and note.what == FORGOT and not note.name]
    for name, mine in history.about().items():
        for release in mine:
            if release.invoked < healed or not (_left(release) or _downgraded(mine, release)):
                continue
            until = max(release.returned, refused(name, release.invoked, release.returned + within)) + within
            if _inside(mine, release, set_back, back) or not _in_line(mine, release.invoked, until):
                continue
            if not any(
                one.kind == CLAIM and one.outcome == GRANTED and release.invoked <= one.returned <= until
                for one in mine
                if one.holder != release.holder
            ):
                yield Finding("handoff", name, f"nobody was let in within {within:g} s of {release}")


def _left(one: Operation) -> bool:
    return one.kind == RELEASE and one.outcome == LEFT


def _downgraded(mine: Sequence[Operation], one: Operation) -> bool:
    """Does it keep fewer units than it had, so that there is room for everybody who may be in line?"""
    if one.kind != CLAIM or one.outcome != GRANTED:
        return False
    claims = [other for other in mine if other.kind == CLAIM]
    more = any(other.holder == one.holder and other.outcome == GRANTED and other.units > one.units for other in claims)
    over = {other.holder for other in mine if other.kind == RELEASE and other.returned <= one.invoked}
    return more and all(
        other.units + one.units <= one.capacity
        for other in claims
        if other.holder != one.holder
        and other.holder not in over
        and other.invoked <= one.returned
        and one.invoked < other.invoked + other.ttl
    )


def _inside(mine: Iterable[Operation], release: Operation, set_back: bool, back: Sequence[float]) -> bool:
    """Might somebody else still be inside, or come in unseen? What landed after its release goes by the server's clock, and
    if that was set back, it is there until somebody has waited for a ttl. So is who had left just before a replica took
    over (at a moment of `back`) that had not heard of it."""
    still: dict[str, bool] = defaultdict(bool)
    for one in mine:
        if one.holder != release.holder and one.invoked <= release.returned:
            if set_back and one.kind == CLAIM and one.outcome == UNKNOWN:
                return True
            if one.kind == CLAIM and one.outcome != PLACED:
                still[one.holder] = True
            elif one.kind == RELEASE and one.returned <= release.returned:
                still[one.holder] = any(one.invoked <= at <= one.returned + BEHIND for at in back)
    return any(still.values())


def _in_line(mine: Iterable[Operation], since: float, until: float) -> bool:
    """Is there somebody who had been told to wait before `since`, was still alive, and did not give up before `until`?"""
    waiting: dict[str, bool] = {}
    for one in mine:
        if one.kind == CLAIM and one.returned < since:
            waiting[one.holder] = one.outcome == PLACED and since < one.invoked + one.ttl
        elif one.kind == RELEASE and one.invoked <= until:
            waiting[one.holder] = False
    return any(waiting.values())


# ---- freed


class _Wish(NamedTuple):
    """A name that was given up while somebody wanted it: from when, and until when nobody had it."""

    release: Operation
    seconds: float


def _wishes(history: History) -> Iterator[_Wish]:
    gone = {note.process: note.at for note in history.notes if note.what == CRASHED}
    about = history.about(ACQUIRE, CLAIM, RELEASE)
    for name in history.names(RELEASE):
        asked = [one for one in about[name] if one.kind == ACQUIRE]
        let_in = sorted(one.returned for one in asked if one.outcome == GRANTED)
        dead = [(gone[one.process], one.ttl) for one in asked if one.process in gone and _may_linger(history, one)]
        inside = {one.holder for one in about[name] if one.kind == CLAIM and one.outcome == GRANTED}
        seen: set[str] = set()
        for release in about[name]:
            if release.kind != RELEASE or release.holder in seen or release.holder not in inside:
                continue
            seen.add(release.holder)
            at = release.invoked
            next_in = next((when for when in let_in if when > at), OPEN)
            # Since somebody wanted it, until somebody had it, or the last gave up.
            wanting = [(max(one.invoked, at), min(one.returned, gone.get(one.process, OPEN))) for one in asked]
            wanting = [(since, until) for since, until in wanting if until > since and since < next_in]
            since = min((since for since, _ in wanting), default=at)
            until = min(next_in, max((until for _, until in wanting), default=at))
            if since < until < OPEN and not any(since < died + 3 * ttl and until > died for died, ttl in dead):
                yield _Wish(release, until - since)


def _may_linger(history: History, acquire: Operation) -> bool:
    """Of a process that died: was it inside or in line when it did?"""
    later = [one for one in history.of(ACQUIRE) if one.process == acquire.process and one.invoked > acquire.invoked]
    return not later and acquire.outcome != FAILED


def longest_free(history: History) -> float:
    """The longest time that a name stayed taken which its holder had given up and others wanted."""
    return max((wish.seconds for wish in _wishes(history)), default=0.0)


def check_freed(history: History, within: float) -> Iterator[Finding]:
    """A name that was given up is had by the next who wants it within so many seconds, whatever the ttl and the network.

    Only a process that died may leave one behind: what it may have held or waited for is left out, for three of its ttls.
    """
    for release, seconds in _wishes(history):
        if seconds > within:
            yield Finding("freed", release.name, f"stayed taken for {seconds:.2f} s after it was given up: {release}")


# ---- honesty


def check_honesty(history: History) -> Iterator[Finding]:
    """Whenever a lease said that it was held, it had a right to: confirmed, within its ttl since that was asked for, not lost."""
    signalled = {
        (note.process, note.name, note.token): note.at for note in reversed(history.notes) if note.what == TOLD_LOST
    }
    by_holder: dict[tuple[str, str], list[Operation]] = defaultdict(list)
    for one in history.of(CLAIM, RENEW, RELEASE):
        by_holder[one.process, one.holder].append(one)
    for check in history.of(CHECK):
        if check.outcome != DONE:
            continue
        about = by_holder[check.process, check.holder]
        at = check.returned
        confirmed = [one for one in about if one.outcome in (GRANTED, RENEWED) and one.returned <= at]
        right = max((one.invoked + one.ttl for one in confirmed), default=0.0)
        if at > right + SLACK:
            yield Finding(
                "honesty", check.name, f"held at {at:.4f}, though nothing was confirmed past {right:.4f}: {check}"
            )
        if any(one.kind == RENEW and one.outcome == LOST and one.returned < at for one in about):
            yield Finding("honesty", check.name, f"held, though the store had said that it is lost: {check}")
        if any(one.kind == RELEASE and one.invoked < at for one in about):
            yield Finding("honesty", check.name, f"held, though it was released: {check}")
        if signalled.get((check.process, check.name, check.token), OPEN) < at:
            yield Finding("honesty", check.name, f"held again, though its loss had been signalled: {check}")
