"""Locks that a majority of independent Redis nodes agrees on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial

from ... import rule
from ...claim import LAST_WORDS, ROUND, Claim, Eviction, Grant, Holding, Place, Snapshot, Verdict, Waiting
from ...drivers.base import Driver
from ...errors import HoldfastError, Misuse, Unavailable
from .. import promises
from ..kit.repeats import Repeats
from ..redis.keys import message_pack, name_of, state_key, word
from ..redis.replies import Reply, ReplyError, explained, is_missing_script
from ..redis.scanning import Scan, pattern_of
from ..redis.store import all_but_all_unknown
from ..redis.url import Target, show
from . import fan as shapes
from . import quorum
from .fan import LAST, Enough, Fan, Fits, Question
from .scripts import ALL, CLAIM, EVICT, INSPECT, RELEASE, RENEW
from .strays import Strays

RENEWALS_A_SCRIPT = 250
_LOST = ord("0")  # what renew.lua says of a grant that is not there; of one that is, 1
_RAISES = 5  # how often a proposal is raised before others are left to finish
_NODE_SHARE = 0.1  # of the ttl: what one question to the nodes may take
_LEAST = 0.05  # seconds: a shorter question would fail for no reason
_SPLIT_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
_FIRST_PAUSE = 0.004
_LONGEST_PAUSE = 0.12
_MOST_ATTEMPTS = 10_000
_FORGET_AFTER = 100  # times the ttl: long after its last renewal would have been
_REMEMBER_EVICTIONS_MS = 24 * 3600 * 1000


class Attempt:
    """What is remembered of a claim from its first proposal to its release."""

    __slots__ = ("granted", "pause", "repeated", "slots", "token", "until", "waited")

    def __init__(self) -> None:
        self.token = 0  # proposed; 0: none stands
        self.granted = False  # by a majority: somebody may hold it
        self.slots = ""
        self.waited = False  # some node may list it among those who wait
        self.repeated = False  # some node was asked twice, and the first question may arrive after the second
        self.pause = _FIRST_PAUSE
        self.until = 0.0  # when nobody will ask any more


class RedlockStore(Repeats):
    traits = promises.REDLOCK

    def __init__(self, target: Target, fan: Fan, driver: Driver) -> None:
        self._target = target
        self._fan = fan
        self._driver = driver
        self._count = len(target.addresses)
        self._majority = quorum.majority(self._count)
        self._decided: Enough = partial(quorum.decided, nodes=self._count)
        self._is_gone: Enough = partial(quorum.is_gone, nodes=self._count)
        self._prefix = f"{target.prefix}:redlock".encode()
        self._retention = word(b"%d" % (target.retention * 1_000_000))
        self._key = lru_cache(4096)(lambda name: word(state_key(self._prefix, name)))
        self._keys = lru_cache(4096)(lambda name, *parts: self._pack_keys(name, parts))
        self._shown_key = lru_cache(4096)(lambda name: state_key(self._prefix, name).decode() if name else "")
        self._terms = lru_cache(1024)(self._pack_terms)
        self._told: dict[str, int] = {}  # the highest token that we were told of, by name
        self._attempts: dict[str, Attempt] = {}  # by holder
        self._strays = Strays(driver, fan.settle, self._leave_again)

    @property
    def reached(self) -> bool:
        return self._fan.reached

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        deadline = self._driver.now() + within
        for pause in _SPLIT_PAUSES:
            answer, split = await self._propose(claim, deadline)
            if claim.queue or not split:
                break
            pause = self._driver.uniform(pause / 4, pause)
            if self._driver.now() + pause >= deadline:
                break
            # Several who try once, at the same moment, must not all be told that somebody else has it: nobody does.
            await self._driver.sleep(pause)
        return answer

    async def _propose(self, claim: Claim, deadline: float) -> tuple[Grant | Place, bool]:
        sent = self._driver.now()
        attempt = await self._attempt(claim, sent, deadline)
        if attempt.granted:
            return await self._repeated(claim, attempt, sent, deadline), False
        answers: list[Reply] = []
        refusing = set(range(self._count))  # nodes that have said no to every one of these proposals
        for _ in range(_RAISES):
            request = self._claim_request(claim, attempt)
            attempt.waited = attempt.waited or claim.queue  # from now on, until a node is told otherwise
            fits, shares = shapes.of_claim(attempt.token), self._shares(claim.ttl, deadline)
            answers = await self._ask(request, fits, self._decided, *shares, claim.name, holder=claim.holder)
            counted = quorum.tally(answers)
            # Who says no to one may have accepted a lower one, or yet do so: others went in above it, or it was slow to say so.
            refusing.intersection_update([at for at, answer in enumerate(answers) if type(answer) is list])
            if counted.granted(self._count, attempt.token):
                if self._driver.now() < sent + quorum.validity(claim.ttl):
                    attempt.granted = True
                    return Grant(claim, attempt.token, quorum.validity(claim.ttl)), False
                break
            self._tell(claim.name, counted.highest)
            if not counted.worth_raising(self._count) and counted.yes < self._majority:
                break
            attempt.token = self._mint(claim.name)
        place = await self._refused(claim, attempt, answers, refusing, deadline)
        return place, quorum.tally(answers).split(self._count)

    async def _repeated(self, claim: Claim, attempt: Attempt, sent: float, deadline: float) -> Grant | Place:
        """A claim that was granted, asked for again: to keep fewer units of it, or for another time.

        Somebody holds it, so its token stands. Without an answer from a majority it is unknown what came of the question, and
        nothing is given back; only when a majority says that it is gone, it is.
        """
        token = attempt.token
        request = self._claim_request(claim, attempt)
        fits, shares = shapes.of_claim(token), self._shares(claim.ttl, deadline)
        answers = await self._ask(request, fits, self._decided, *shares, claim.name, holder=claim.holder)
        counted = quorum.tally(answers)
        if attempt.token != token:  # somebody else who asked again (close() and its owner, say) has found it gone
            await self._give_back(claim, token, answers, (), deadline)
            return Place(claim, claim.ttl)
        if counted.yes + counted.silent < self._majority:
            return await self._refused(claim, attempt, answers, (), deadline)
        if counted.yes < self._majority or self._driver.now() >= sent + quorum.validity(claim.ttl):
            raise self._no_quorum(claim.name, answers)
        return Grant(claim, token, quorum.validity(claim.ttl))

    async def _refused(
        self, claim: Claim, attempt: Attempt, answers: Sequence[Reply], refusing: Collection[int], deadline: float
    ) -> Place:
        counted = quorum.tally(answers)
        token, attempt.token, attempt.granted = attempt.token, 0, False
        self._tell(claim.name, token)  # the next proposal of this claim is another
        too_few = None if counted.reachable(self._count) else self._no_quorum(claim.name, answers)
        repeated, attempt.repeated = attempt.repeated, False
        await self._give_back(claim, token, answers, () if repeated else refusing, deadline)
        if counted.capacity and counted.full >= self._majority:
            rule.same_capacity(claim.name, claim.capacity, counted.capacity)
        if too_few is not None:
            raise too_few
        return Place(claim, max(counted.wake_us / 1_000_000, 0.001) if counted.wake_us else claim.ttl)

    async def wait(self, place: Place, timeout: float) -> None:
        """No bell: each looks again after a time of its own, longer each time, so that they neither herd nor collide."""
        attempt = self._attempts.get(place.claim.holder) or Attempt()
        pause, attempt.pause = attempt.pause, min(attempt.pause * 1.6, _LONGEST_PAUSE)
        await self._driver.sleep(min(timeout, self._driver.uniform(pause / 2, pause)))

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        verdicts: list[Verdict] = []
        deadline = self._driver.now() + within
        for at in range(0, len(grants), RENEWALS_A_SCRIPT):
            batch = grants[at : at + RENEWALS_A_SCRIPT]
            left = deadline - self._driver.now()
            verdicts += await self._renew(batch, min(max(0.0, left), max(self._target.timeout, within / 4)))
        return all_but_all_unknown(verdicts)

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        attempt = self._attempts.get(claim.holder)
        # One that was released may be listed again, by a claim that came late.
        waited = attempt is None or attempt.waited
        answers, heard = await self._release(claim, self._is_gone, min(within, LAST), within, waited=waited)
        there = quorum.present(answers, self._count)
        if there is None and sum(answer is not None for answer in answers) < self._majority:
            raise self._no_quorum(claim.name, answers)
        self._attempts.pop(claim.holder, None)
        if None in heard:
            self._strays.add(claim, 0, heard)
        return there is not False  # of those who answered, nobody has it any more: what the silent would say is no loss

    async def watch(self, name: str, token: int, timeout: float) -> None:
        await self._driver.sleep(min(timeout, self._driver.uniform(0.05, 0.15)))

    async def evict(self, name: str, token: int, by: str) -> int | None:
        put_out, broken = False, list[bool]()
        told = partial(broken.append, True)
        for _ in range(_RAISES):
            self._tell(name, token)
            past = self._mint(name)
            request = EVICT.call(
                self._keys(name, b"", b":evicted"),
                b"%d" % token, b"%d" % (self._target.retention * 1_000_000), b"%d" % past, by.encode(),
                b"%d" % _REMEMBER_EVICTIONS_MS,
            )  # fmt: skip
            shares = self._target.timeout, ROUND
            answers = await self._ask(request, shapes.of_eviction, _all_answered, *shares, name, broken=told)
            put_out = put_out or any(
                answer == 1 for answer in answers
            )  # where it is gone, it is not there the next time
            counted = quorum.tally([answer if type(answer) is not int else None for answer in answers])
            self._tell(name, counted.highest)
            if counted.low == 0:
                if sum(answer is not None for answer in answers) < self._majority:
                    raise self._no_quorum(name, answers)
                if broken and not put_out:  # a node that was asked twice may have done it the first time
                    raise Unavailable(
                        f"whether {name!r} was evicted is not known, since a connection broke: look again"
                    )
                return past if put_out else None
        raise Unavailable(f"{name!r} is being claimed all the time: try again")

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        answers = await self._inspect(name, within)
        if sum(answer is not None for answer in answers) < self._majority:
            raise self._no_quorum(name, answers)
        return _snapshot(name, [answer for answer in answers if answer is not None], self._majority)

    async def names(self, prefix: str = "") -> Sequence[str]:
        seen: set[str] = set()
        timeout = self._target.timeout
        # Every node has its own cursor, but the question goes to all: those who are through are asked again from 0.
        for index, address in enumerate(self._target.addresses):
            scan = Scan(pattern_of(self._prefix, prefix), show(address))
            while not scan.is_over:
                enough = partial(_answered, index)
                answers = await self._ask(scan.request(), shapes.of_scan, enough, timeout, timeout, "")
                if answers[index] is None:
                    break
                keys = scan.take(answers[index])
                seen.update(name for key in keys if (name := name_of(self._prefix, key)) is not None)
        return [name for name in sorted(seen) if name.startswith(prefix) and await self._is_used(name)]

    async def _is_used(self, name: str) -> bool:
        try:
            return bool((await self.inspect(name)).capacity)
        except Misuse:  # on a majority of nodes, something else has taken its key
            return False

    def forked(self) -> None:
        self._attempts.clear()
        self._strays.forget()
        self._fan.forked()

    def wake_waiters(self) -> None:
        """There is no bell, so nobody waits for longer than a moment: whoever does will see for itself."""

    async def close(self, within: float = LAST_WORDS) -> None:
        await self._strays.close(max(within - LAST, 0.0))
        await self._fan.close()

    # ---- proposals

    def _shares(self, ttl: float, deadline: float) -> tuple[float, float]:
        """What one question may take, with a majority of answers and without: then all that is left, but what undoing takes."""
        left = deadline - self._driver.now()
        if left <= 0:
            raise Unavailable(f"the {self._count} Redlock nodes came to no agreement in time")
        timeout = self._target.timeout
        return min(timeout, max(ttl * _NODE_SHARE, _LEAST), left / 2), min(ttl, max(left / 2, left - timeout))

    def _mint(self, name: str) -> int:
        """The clock is only a good guess at a number that nobody has used; what was told is what counts."""
        told, wall = self._told.get(name, 0), self._driver.wall_us()
        if told >= wall:
            # Others may have been told the same. Nodes that forgot would accept it from both, and storage lets equals pass.
            told += int(self._driver.uniform(0, 1000))
        token = rule.next_token(told, wall, name)
        self._tell(name, token)  # nor is it proposed a second time from here
        return token

    def _tell(self, name: str, highest: int) -> None:
        if highest > self._told.get(name, 0):
            self._told.pop(name, None)
            self._told[name] = highest
            while len(self._told) > 4096:
                del self._told[next(iter(self._told))]

    async def _attempt(self, claim: Claim, now: float, deadline: float) -> Attempt:
        """A claim that is repeated proposes what it proposed before: so it gets the same token."""
        attempt = self._attempts.get(claim.holder)
        if attempt is None:
            attempt = self._attempts[claim.holder] = Attempt()
            if len(self._attempts) > _MOST_ATTEMPTS:  # those that were lost are not released
                self._attempts = {holder: one for holder, one in self._attempts.items() if one.until > now}
        attempt.until = now + _FORGET_AFTER * claim.ttl
        if not attempt.token:
            if 1 < claim.capacity < rule.EVERYBODY:
                answers = await self._inspect(claim.name, deadline - now)
                taken = [entry[7].decode() for answer in answers if answer is not None for entry in answer[1]]
                attempt.slots = quorum.choose(claim.units, claim.capacity, taken, self._driver.uniform)
            attempt.token = self._mint(claim.name)
        return attempt

    # ---- questions

    def _pack_keys(self, name: str, parts: tuple[bytes, ...]) -> bytes:
        state = state_key(self._prefix, name)
        return b"".join(map(word, (b"%d" % len(parts), *(state + part for part in parts))))

    def _pack_terms(self, owner: str, ttl: float, units: int, capacity: int, fair: bool, note: str) -> bytes:
        terms = message_pack(units, capacity, fair, owner.encode("utf-8", "replace"), note.encode())
        return b"".join((word(b"%d" % (ttl * 1_000_000)), self._retention, word(terms)))

    def _claim_request(self, claim: Claim, attempt: Attempt) -> bytes:
        name, holder, owner, ttl, units, capacity, fair, queue, note = claim
        terms = self._terms(owner, ttl, units, capacity, fair, note)
        waits = b"$1\r\n%d\r\n" % (2 if attempt.waited else queue)
        who = (self._keys(name, b"", b":waiting"), word(holder.encode()), word(b"%d" % attempt.token))
        return b"".join((CLAIM.head, *who, terms, word(attempt.slots.encode()), waits))

    async def _ask(
        self,
        request: bytes,
        fits: Fits,
        enough: Enough,
        share: float,
        within: float,
        name: str,
        *,
        apart: bool = False,
        leaving: bool = False,
        holder: str = "",
        spared: Collection[int] = (),
        overtaken: set[int] | None = None,
        broken: Callable[[], None] | None = None,
    ) -> list[Reply]:
        """Errors of single nodes count as no answer; those that are the user's to mend, on a majority, are raised."""
        deadline = self._driver.now() + within
        ask = self._fan.ask_apart if apart else self._fan.ask
        key = self._shown_key(name)
        if holder and not leaving:
            broken = partial(self._asked_twice, holder)
        question = Question(request, fits, enough, key, leaving, broken, spared, holder, overtaken)
        answers = await ask(question, share, within)
        for answer in answers:
            if isinstance(answer, Exception):
                break
        else:
            self._failures = ()
            return answers  # this very list: see Fan.ask
        ignorant = [at for at, answer in enumerate(answers) if is_missing_script(answer)]
        if ignorant:
            for script in ALL:
                left = max(0.0, deadline - self._driver.now())
                learnt = Question(
                    script.load, shapes.of_loading, lambda got: all(got[at] is not None for at in ignorant)
                )
                await ask(learnt, min(share, left), left)
            left = max(0.0, deadline - self._driver.now())
            again = await ask(question, min(share, left), left)
            # Who has answered has done already what was asked; and whoever leaves may have been let go by the silent, too.
            answers = [
                again[at] if at in ignorant or (answer is None and not leaving) else answer
                for at, answer in enumerate(answers)
            ]
        failures = [
            explained(answer, show(address), self._target.prefix, key) if isinstance(answer, ReplyError) else answer
            for answer, address in zip(answers, self._target.addresses, strict=True)
            if isinstance(answer, (ReplyError, HoldfastError))
        ]
        mine = [failure for failure in failures if isinstance(failure, Misuse)]
        if len(mine) >= self._majority:
            raise mine[0]
        self._failures = failures
        return [None if isinstance(answer, Exception) else answer for answer in answers]

    _failures: Sequence[HoldfastError] = ()

    async def _release(
        self,
        claim: Claim,
        enough: Enough,
        share: float,
        within: float,
        *,
        waited: bool,
        token: int = 0,
        spared: Collection[int] = (),
    ) -> tuple[list[Reply], list[Reply]]:
        """What was answered; and of that, what is known to be over: who has not got the claim yet has nothing to let go of."""
        who = (self._keys(claim.name, b"", b":waiting"), word(claim.holder.encode()), self._retention)
        request = b"".join((RELEASE.head, *who, b"$1\r\n%d\r\n" % waited, word(b"%d" % token)))
        overtaken: set[int] = set()
        answers = await self._ask(
            request,
            shapes.of_release,
            enough,
            share,
            within,
            claim.name,
            leaving=True,
            holder=claim.holder,
            spared=spared,
            overtaken=overtaken,
        )
        if not overtaken:
            return answers, answers  # this very list: see Fan.ask
        return answers, [None if at in overtaken and answer != 1 else answer for at, answer in enumerate(answers)]

    async def _leave_again(
        self, claim: Claim, token: int, within: float = ROUND, answers: Sequence[Reply] = ()
    ) -> Sequence[Reply]:
        """On the nodes that have not been heard to let go of it."""
        within = min(within, self._target.timeout)
        spared = [at for at, answer in enumerate(answers) if type(answer) is int]
        _, heard = await self._release(
            claim, _all_answered, within, within, waited=not token, token=token, spared=spared
        )
        return heard

    def _asked_twice(self, holder: str) -> None:
        if (attempt := self._attempts.get(holder)) is not None:
            attempt.repeated = True
        self._repeats(holder)

    async def _give_back(
        self, claim: Claim, token: int, answers: Sequence[Reply], refused: Collection[int], deadline: float
    ) -> None:
        """On all nodes, also on those whose answer was lost; but those that have said that they let nobody in are spared."""
        if len(refused) == len(answers):
            return
        sent = [type(answer) is int for answer in answers]
        left = min(max(0.0, deadline - self._driver.now()), self._target.timeout)
        _, heard = await self._release(
            claim,
            lambda got: all(one is not None for one, yes in zip(got, sent, strict=True) if yes),
            left,
            left,
            waited=False,
            token=token,  # it may arrive late, by a connection that has been given up, when a later proposal of ours was accepted
            spared=refused,
        )
        if None in heard:
            self._strays.add(claim, token, heard)

    async def _renew(self, grants: Sequence[Grant], within: float) -> list[Verdict]:
        keys = b"".join([self._key(grant.claim.name) for grant in grants])
        terms = [
            b"".join((word(claim.holder.encode()), word(b"%d" % token), word(b"%d" % (claim.ttl * 1_000_000))))
            for claim, token, _ in grants
        ]
        request = RENEW.call_many(
            keys, len(grants), b"".join((word(b""), self._retention, *terms)), 2 + 3 * len(grants)
        )
        fits, enough = shapes.of_renewal(len(grants)), partial(_all_known, self._count, len(grants))
        answers = await self._ask(request, fits, enough, within, within, "", apart=True)
        verdicts: list[Verdict] = []
        for index, grant in enumerate(grants):
            kept = _kept(answers, index, self._count)
            verdicts.append(Unavailable(str(self._no_quorum(grant.claim.name, answers))) if kept is None else None)
            if kept:
                verdicts[-1] = grant
        return verdicts

    async def _inspect(self, name: str, within: float) -> list[Reply]:
        keys = self._keys(name, b"", b":waiting", b":evicted")
        request = b"".join((INSPECT.head, keys, word(b""), self._retention))
        share = min(within, self._target.timeout)
        return await self._ask(request, shapes.of_inspection, _all_answered, share, within, name)

    def _no_quorum(self, name: str, answers: Sequence[Reply]) -> HoldfastError:
        reached = sum(answer is not None for answer in answers)
        known = [*self._failures, *(error for error in self._fan.trouble if error is not None)]
        mine = [error for error in known if isinstance(error, Misuse)]
        if len(mine) >= self._majority:
            return mine[0]
        return Unavailable(
            f"only {reached} of {self._count} Redlock nodes answered in time for {name!r}, and {self._majority} are "
            f"needed{': ' + '; '.join(dict.fromkeys(map(str, known))) if known else ''}"
        )


def _all_answered(answers: Sequence[Reply]) -> bool:
    return None not in answers


def _answered(index: int, answers: Sequence[Reply]) -> bool:
    return answers[index] is not None


def _all_known(nodes: int, grants: int, answers: Sequence[Reply]) -> bool:
    """Enough have said of every grant whether they keep it: no need to wait for the others."""
    said = [answer for answer in answers if type(answer) is bytes]
    if len(said) < quorum.majority(nodes):
        return False
    if sum(not answer.strip(b"1") for answer in said) >= quorum.majority(nodes):
        return True
    return all(_kept(answers, index, nodes) is not None for index in range(grants))


def _kept(answers: Sequence[Reply], index: int, nodes: int) -> bool | None:
    said = [answer[index] - _LOST if type(answer) is bytes else None for answer in answers]
    return quorum.present(said, nodes)


def _snapshot(name: str, answers: Sequence[Reply], majority: int) -> Snapshot:
    """Who is inside on a majority of nodes: a token is one grant."""
    second = 1_000_000
    by_token: dict[int, list[Reply]] = {}
    evictions: dict[int, list[Reply]] = {}
    waiting: dict[bytes, list[Waiting]] = {}
    for _, inside, listed, evicted in answers:
        for who, owner, units, age, left, fair in listed:
            waiting.setdefault(who, []).append(Waiting(owner.decode(), units, age / second, left / second, bool(fair)))
        for entry in inside:
            by_token.setdefault(entry[1], []).append(entry)
        if evicted:
            evictions.setdefault(evicted[2], []).append(evicted)
    holders, capacity = [], 0
    for token, entries in sorted(by_token.items()):
        if len(entries) >= majority:
            left = sorted((entry[4] for entry in entries), reverse=True)[majority - 1]
            owner, _, units, age, _, note, capacity, _, ttl = entries[0]
            times = age / second, left / second
            holders.append(Holding(owner.decode(), token, units, *times, note.decode(), ttl / second))
    eviction = None
    if evictions:
        owner, evicted_token, past, by, age = evictions[max(evictions)][0]
        eviction = Eviction(owner.decode(), evicted_token, past, by.decode(), age / second)
    seen = [some[0] for some in waiting.values() if len(some) >= majority]
    waiters = tuple(sorted(seen, key=lambda one: -one.age))
    return Snapshot(name, capacity if holders else int(bool(waiters)), tuple(holders), waiters, eviction)
