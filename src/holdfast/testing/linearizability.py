"""Is there an order of the operations, each at a moment between its invocation and its answer, in which one fenced lock with
expiry would have given these answers? A search after Wing, Gong and Lowe, with memory of what was tried.

The lock of the model knows who is inside, with how many units and which token. It may let a holder's lease end, though not
before its ttl has passed since its last claim or renewal; to whom the room goes, the line decides, which is not modelled.

Operations without an answer may have happened at any time since, or never. Of those, only the ones are tried that can help:
releases, evictions, and claims whose token is known from a later answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

from .history import (
    CLAIM,
    DONE,
    EVICT,
    GRANTED,
    LOST,
    OPEN,
    PLACED,
    RELEASE,
    RENEW,
    RENEWED,
    TURNED_AWAY,
    UNKNOWN,
    Operation,
)

MAX_STATES = 200_000


class Undecided(Exception):
    """The search was given up: the history is too tangled for it."""


class _Inside(NamedTuple):
    holder: str
    token: int
    units: int
    may_end: float  # not before this
    asked: float = 0.0  # when that was asked for, where time runs from then
    told: float = 0.0  # and when its owner knew, if it goes by its own clock


class _State(NamedTuple):
    clock: float  # it cannot be earlier than this
    last_token: int
    inside: tuple[_Inside, ...]


def first_violation(
    mine: Sequence[Operation],
    early: Sequence[float] = (),
    *,
    own_clock: bool = False,
    from_asking: bool = False,
    given_up: Mapping[int, float] | None = None,
) -> Operation | None:
    """None if such an order exists for what one lock was asked; else the operation that no order reaches.

    At the moments `early` the server's clock was set forward: whoever is inside then may have been put out.
    `own_clock`: a claim is ended by the process that made it, and its time runs from before it was asked for.
    `from_asking`: its time runs from then, too, but nobody ends it before.
    `given_up`: grants, by token, that end with their process, from that moment on.
    """
    return _Search(mine, early, own_clock, from_asking or own_clock, given_up or {}).run()


class _Search:
    def __init__(
        self,
        mine: Sequence[Operation],
        early: Sequence[float],
        own_clock: bool,
        from_asking: bool,
        given_up: Mapping[int, float],
    ) -> None:
        self._early = sorted(early)
        self._given_up = given_up
        self._from_asking = from_asking
        self._own_clock = own_clock
        revealed: dict[tuple[str, str], set[int]] = {}
        for one in mine:
            if one.outcome == GRANTED:
                revealed.setdefault((one.process, one.holder), set()).add(one.token)
        self._tokens = revealed
        self._definite = sorted((one for one in mine if _constrains(one)), key=lambda one: one.invoked)
        self._optional = [
            one
            for one in mine
            if (one.outcome == UNKNOWN and one.kind in (RELEASE, EVICT))
            or (one.kind == CLAIM and one.outcome in (UNKNOWN, TURNED_AWAY) and (one.process, one.holder) in revealed)
        ]
        # Asked for again when an answer was lost, a claim is done twice: first as what its owner had, then as something new.
        self._optional += [
            replace(one, outcome=UNKNOWN, token=0, returned=OPEN)
            for one in mine
            if one.kind == CLAIM and one.outcome == GRANTED and min(revealed[one.process, one.holder]) < one.token
        ]
        # By its own clock it was over when the answer came, so that told its owner to wait; and yet it may have got in.
        self._optional += [
            replace(one, outcome=UNKNOWN)
            for one in mine
            if own_clock and one.kind == CLAIM and one.outcome == PLACED and one.returned - one.invoked >= one.ttl
            if (one.process, one.holder) in revealed
        ]
        # Of several servers, each is put out of some by one and of the others by the other: both have done it.
        several = from_asking and not own_clock
        self._together = [one for one in self._definite if several and _evicted_by_another(one, mine)]
        self._first_optional = len(self._definite)
        self._all = self._definite + self._optional
        self._tried: set[tuple[int, _State]] = set()
        self._everything = (1 << len(self._definite)) - 1
        self._furthest = 0
        self._blocked: Operation | None = None

    def run(self) -> Operation | None:
        stack = [self._next(0, _State(0.0, 0, ()))]
        if not self._definite:
            return None
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                continue
            done, state = step
            if done & self._everything == self._everything:
                return None
            if (done, state) in self._tried:
                continue
            self._tried.add((done, state))
            if len(self._tried) > MAX_STATES:
                raise Undecided(f"no verdict after {MAX_STATES} states")
            stack.append(self._next(done, state))
        return self._blocked

    def _next(self, done: int, state: _State) -> Iterator[tuple[int, _State]]:
        """Every operation that may come next, those with an answer first, and what becomes of the lock."""
        operations, candidates = self._all, []
        index = (
            ~done & (done + 1)
        ).bit_length() - 1  # the first that has not happened; they are in the order of invocation
        soonest = OPEN
        while index < self._first_optional and operations[index].invoked <= soonest:
            if not done >> index & 1:
                candidates.append(index)
                soonest = min(soonest, operations[index].returned)
            index += 1
        candidates = [index for index in candidates if operations[index].invoked <= soonest]
        candidates.sort(key=lambda index: operations[index].returned)
        depth = (done & self._everything).bit_count()
        if depth >= self._furthest and candidates:
            self._furthest = depth
            self._blocked = operations[candidates[0]]
        for index in range(self._first_optional, len(operations)):
            if not done >> index & 1 and operations[index].invoked <= soonest:
                candidates.append(index)
        for index in candidates:
            operation = self._all[index]
            for after in self._apply(state, operation):
                if after.clock <= soonest and (index < self._first_optional or _helps(state, after)):
                    yield done | 1 << index, after

    def _apply(self, state: _State, operation: Operation) -> Iterator[_State]:
        clock = max(state.clock, operation.invoked)
        if operation.outcome == TURNED_AWAY:  # it may have been inside, was given a shorter time, and that was over
            mine = next((one for one in state.inside if one.holder == operation.holder), None)
            if mine is not None and clock <= operation.returned:
                yield _replaced(state, mine, self._prolonged(mine, operation, clock), clock)
        elif operation.kind == RELEASE:
            left = tuple(one for one in state.inside if one.holder != operation.holder)
            yield _State(clock, state.last_token, left)
        elif operation.kind == CLAIM:
            known = {operation.token} if operation.token else self._tokens[operation.process, operation.holder]
            for token in sorted(known):
                yield from self._claimed(state, operation, token, clock)
        elif operation.kind == EVICT:
            inside = any(one.token == operation.token for one in state.inside)
            if inside or operation.outcome == UNKNOWN or any(one is operation for one in self._together):
                left = tuple(one for one in state.inside if one.token != operation.token)
                yield _State(clock, max(state.last_token, operation.past), left)
        else:
            yield from self._renewed(state, operation, clock)

    def _renewed(self, state: _State, operation: Operation, clock: float) -> Iterator[_State]:
        mine = next((one for one in state.inside if one.holder == operation.holder), None)
        if operation.outcome == RENEWED:
            if mine is not None:
                yield _replaced(state, mine, self._prolonged(mine, operation, clock), clock)
        elif mine is None:
            yield _State(clock, *state[1:])
        elif mine.may_end <= operation.returned:
            yield _replaced(state, mine, None, max(clock, mine.may_end))

    def _prolonged(self, mine: _Inside, operation: Operation, clock: float) -> _Inside:
        end = self._end(clock, operation, mine.token)
        if operation.invoked < mine.asked:  # it arrives late: its owner has asked for more since, and goes by that
            if self._own_clock and operation.kind == CLAIM and mine.told < operation.returned < OPEN:
                # but if it was told this last, by this: and may end it from then on
                return mine._replace(may_end=min(mine.may_end, max(end, operation.returned)))
            return mine
        if self._own_clock and operation.returned > mine.may_end:
            end = min(end, mine.may_end)  # its owner was told too late, and may have sent for its end before
        told = operation.returned if self._own_clock else 0.0
        return mine._replace(may_end=end, asked=self._asked(operation), told=told)

    def _asked(self, operation: Operation) -> float:
        return operation.invoked if self._from_asking else 0.0

    def _end(self, clock: float, operation: Operation, token: int) -> float:
        """When a lease that is given or renewed then may end."""
        since = operation.invoked if self._from_asking else clock
        end = min(since + operation.ttl, self._given_up.get(token, OPEN))
        return min([end, *(at for at in self._early if at >= clock)]) if self._early else end

    def _claimed(self, state: _State, operation: Operation, token: int, clock: float) -> Iterator[_State]:
        mine = next((one for one in state.inside if one.holder == operation.holder), None)
        if mine is not None and mine.token == token:  # repeated: the same token, a fresh ttl, perhaps fewer units
            units = min(mine.units, operation.units)
            yield _replaced(state, mine, self._prolonged(mine, operation, clock)._replace(units=units), clock)
            return
        if token <= state.last_token:
            return
        for ended in _endings(state, operation, mine):
            left = tuple(one for one in state.inside if one not in ended)
            # Its own may have ended by this very claim, which a client repeats when its connection breaks: at the first
            # time it was given a shorter ttl, at the second it was over.
            sooner = OPEN if mine and operation.invoked < mine.asked else self._end(clock, operation, token)
            at = max([clock, *(min(one.may_end, sooner) if one is mine else one.may_end for one in ended)])
            if at <= operation.returned and sum(one.units for one in left) + operation.units <= operation.capacity:
                end = self._end(at, operation, token)
                entered = _Inside(operation.holder, token, operation.units, end, self._asked(operation))
                yield _State(at, token, (*left, entered))


def _constrains(operation: Operation) -> bool:
    """Answers that tell something about the lock. "Placed" tells about the line, "gone" nothing that matters here."""
    return (operation.kind, operation.outcome) in (
        (CLAIM, GRANTED),
        (RENEW, RENEWED),
        (RENEW, LOST),
        (EVICT, DONE),
    ) or (operation.kind == RELEASE and operation.outcome not in (UNKNOWN, "failed"))


def _evicted_by_another(one: Operation, mine: Sequence[Operation]) -> bool:
    """At the same time, for all that we know."""
    return one.kind == EVICT and any(
        other is not one
        and (other.kind, other.token) == (EVICT, one.token)
        and other.invoked <= one.returned
        and one.invoked <= other.returned
        for other in mine
    )


def _helps(before: _State, after: _State) -> bool:
    """Is it worth while to believe that what was not answered has happened? Not if it only made leases longer."""
    if len(before.inside) != len(after.inside):
        return True
    pairs = zip(before.inside, after.inside, strict=True)
    return any(one[:3] != other[:3] or other.may_end < one.may_end for one, other in pairs)


def _endings(state: _State, operation: Operation, mine: _Inside | None) -> Iterator[tuple[_Inside, ...]]:
    """Whose leases may have run out to make room, the fewest first. An older grant of the claimant must have."""
    must = (mine,) if mine is not None else ()
    may = [one for one in state.inside if one is not mine and one.may_end <= operation.returned]
    for size in range(len(may) + 1):
        for some in combinations(may, size):
            yield (*must, *some)


def _replaced(state: _State, old: _Inside, new: _Inside | None, clock: float) -> _State:
    inside = tuple(new if one is old else one for one in state.inside)
    return _State(clock, state.last_token, tuple(one for one in inside if one is not None))
