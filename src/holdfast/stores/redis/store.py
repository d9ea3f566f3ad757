"""Locks in one Redis or Valkey: the line, the capacity, the tokens and the clock are the server's, in one script each."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from ... import rule
from ...claim import HOLDER, LAST_WORDS, MAX_TOKEN, ROUND, Claim, Grant, Place, Snapshot, Verdict
from ...drivers.base import Driver
from ...errors import HoldfastError, Unavailable
from .. import promises
from ..kit.repeats import Repeats
from .connection import Disconnected
from .keys import NameKeys, message_pack, name_of, pack, state_key, word
from .looking import snapshot
from .replies import NONSENSE, Reply, ReplyError, explained, foreign, is_missing_script, nonsense
from .scanning import COUNT, Scan, pattern_of
from .scripts import ALL, CLAIM, EVICT, INSPECT, JOIN, KINDS, RELEASE, RENEW, RENEW_MANY, WANTED, WATCH
from .url import Target
from .wiring import Wire

_KEPT, _CROWDED = b"12"  # what renew.lua says of a grant; else it is lost
_FREE, _HELD = b"01"  # what kinds.lua says of a name; else one has to look
_JUST_NOW = 1.0  # seconds
RENEWALS_A_SCRIPT = 200  # measured: about 1 ms of the server's time on a busy machine
_MOMENT = 0.5
_MOST_CROWDED = 1000
_MOST_PACKED = 4096
_tuple = tuple.__new__  # a named tuple's own constructor is a function in Python around this
_REMEMBER_EVICTIONS = 24 * 3600.0


class RedisStore(Repeats):
    traits = promises.REDIS

    def __init__(self, target: Target, wire: Wire, driver: Driver) -> None:
        self._target = target
        self._wire = wire
        # A wire for threads has a plain function too, which spares them a coroutine for every request.
        self._talk: Callable[[bytes, float], Reply] | None = getattr(wire, "talk", None)
        self._driver = driver
        self._now = driver.now
        self._prefix = target.prefix.encode()
        self._keys = NameKeys(self._prefix)
        self._retention = b"%d" % (target.retention * 1_000_000)
        self._end_of_release = b"\r\n" + word(self._retention)
        self._times = lru_cache(64)(self._pack_times)
        # Who asks, and for what, is mostly the same from claim to claim: packed once, all but the holder.
        self._claims: dict[tuple[object, ...], tuple[bytes, bytes, bytes]] = {}
        self._releases: dict[str, bytes] = {}
        self._terms = lru_cache(1024)(self._pack_terms)
        self._far = word(b"1" if target.kind == "cluster" else b"0")
        # A script may touch one slot of a cluster only, so one name at a time; the requests go out together all the same.
        self._at_once = 1 if target.kind == "cluster" else COUNT
        self._bells: dict[str, Any] = {}
        self._places = itertools.count(1)
        self._crowded: set[str] = set()  # names that had a line when last claimed: there, join it at the first asking
        self._taught = -_JUST_NOW  # when the server was last told the scripts
        self._wait = pack("WAIT", target.replicas, int(target.replicas_timeout * 1000)) if target.replicas else b""

    @property
    def reached(self) -> bool:
        return self._wire.reached

    # ---- the protocol

    async def claim(self, claim: Claim, within: float = ROUND, repeats: int = 2) -> Grant | Place:
        name, holder, owner, ttl, units, capacity, fair, queue, note = claim
        bell = None
        if self._bells or self._crowded:
            bell = self._bells.get(holder)
            if bell is None and name in self._crowded and queue and self._wire.ear.is_open:
                self._crowded.discard(name)  # unless it turns out to be so again
                bell = self._bells[holder] = self._wire.ear.expect(b"%x" % next(self._places))
        if bell is None:
            known = self._claims.get((name, owner, ttl, units, capacity, fair, note))
            if known is None or len(holder) != HOLDER:
                known = self._packed(claim)
            request = known[0] + holder.encode() + known[1]
        else:
            request = self._joining(claim, self._terms(owner, ttl, units, capacity, fair, note), bell)
        deadline = self._now() + within
        try:
            if self._wait:
                return await self._replicated(claim, request, deadline)
            reply = await self._wire.ask(request, within) if self._talk is None else self._talk(request, within)
            if type(reply) is not int or bell is not None or not 0 < reply <= MAX_TOKEN:
                return await self._claimed(claim, request, reply, deadline)
            return _tuple(Grant, (claim, reply, ttl))
        except Disconnected:
            if not repeats or self._now() >= deadline:
                raise
        self._repeats(holder)
        return await self.claim(claim, deadline - self._now(), repeats - 1)

    async def wait(self, place: Place, timeout: float) -> None:
        bell = self._bells.get(place.claim.holder)
        if bell is not None:
            await self._wire.ear.hear(bell, timeout)
        else:
            await self._driver.sleep(min(timeout, 0.05))

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        started = self._now()
        by_ttl: dict[float, list[int]] = {}
        for index, grant in enumerate(grants):
            by_ttl.setdefault(grant.claim.ttl, []).append(index)
        step = min(self._at_once, RENEWALS_A_SCRIPT)
        batches = [some[at : at + step] for some in by_ttl.values() for at in range(0, len(some), step)]
        replies = await self._run_all([self._renewal([grants[i] for i in batch]) for batch in batches], within)
        renewed: list[Verdict] = [None] * len(grants)
        crowded = []
        for batch, reply in zip(batches, replies, strict=True):
            for at, index in enumerate(batch):
                if isinstance(reply, Unavailable):
                    renewed[index] = reply
                elif type(reply) is not bytes or len(reply) != len(batch):
                    renewed[index] = nonsense(reply, self._wire.where)
                elif reply[at] == _KEPT:
                    renewed[index] = grants[index]
                elif reply[at] == _CROWDED:
                    crowded.append(index)
        if crowded:
            left = max(0.0, within - (self._now() - started))
            replies = await self._run_all([self._renewal_in_crowd(grants[index]) for index in crowded], left)
            for index, reply in zip(crowded, replies, strict=True):
                if isinstance(reply, Unavailable):
                    renewed[index] = reply
                elif type(reply) is not int:
                    renewed[index] = nonsense(reply, self._wire.where)
                else:
                    renewed[index] = grants[index] if reply == 1 else None
        return all_but_all_unknown(renewed)

    def post(self, claim: Claim, answered: Callable[[bool | None], None]) -> bool:
        posting = getattr(self._wire, "post", None)
        if posting is None:  # a cluster, which may answer that it is to be asked elsewhere
            return False
        sent: bool = posting(self._release_of(claim), answered)
        return sent

    def _release_of(self, claim: Claim) -> bytes:
        name, holder, *_ = claim
        if holder in self._bells:
            self._forget_bell(holder)
        start = self._releases.get(name)
        if start is None or len(holder) != HOLDER:
            start = self._packed(claim)[2]
        return start + holder.encode() + self._end_of_release

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        name = claim.name
        request = self._release_of(claim)
        started = self._now()
        twice = False
        try:
            reply = await self._wire.ask(request, within) if self._talk is None else self._talk(request, within)
        except Disconnected:
            twice = True
            reply = await self._ask(request, started + within)
        if type(reply) is not int:
            # Once: whoever repeats it knows that the first one may have arrived.
            reply = await self._settled(request, reply, name, started + within, once=True)
            if type(reply) is not int:
                self._answer(name, reply)
        # Not there any more: since the first one arrived, as far as anybody can tell. That is no loss.
        return bool(reply or twice)

    async def watch(self, name: str, token: int, timeout: float) -> None:
        ear = self._wire.ear
        deadline = self._now() + timeout
        to_ask = min(max(timeout, _MOMENT), ROUND)  # a short look is no reason to call the server silent
        asked = self._now() + to_ask
        bell = ear.expect(state_key(self._prefix, name))
        try:
            await ear.follow(bell, to_ask)
            long = b"%d" % ((timeout + self._target.timeout) * 1_000_000)
            keys = self._keys.counted(name, 4)
            request = WATCH.call(keys, b"%d" % token, long, self._retention)
            reply = await self._run(request, name, asked)
            if type(reply) is not int:
                self._answer(name, reply)
            elif reply > 0:
                await ear.hear(bell, min(deadline - self._now(), reply / 1_000_000))
        finally:
            ear.unfollow(bell)

    async def wanted(self, grant: Grant, timeout: float) -> bool:
        claim, token, _ = grant
        ear, now = self._wire.ear, self._now
        until = now() + timeout
        asked = now() + min(max(timeout, _MOMENT), ROUND)
        await ear.open(asked - now())
        bell = ear.expect(b"%x" % next(self._places))
        try:
            words = (claim.holder.encode(), b"%d" % token, ear.channel, bell.what, self._retention)
            reply = await self._run(WANTED.call(self._keys.counted(claim.name, 4), *words), claim.name, asked)
            if type(reply) is not int:
                self._answer(claim.name, reply)
            elif reply == 0:
                await ear.hear(bell, until - now())
        finally:
            ear.forget(bell)
        return now() < until

    async def evict(self, name: str, token: int, by: str) -> int | None:
        long = b"%d" % (max(_REMEMBER_EVICTIONS, self._target.retention) * 1000)
        keys = self._keys.counted(name, 5)
        request = EVICT.call(keys, b"%d" % token, by.encode(), self._retention, long)
        deadline = self._now() + ROUND
        # Once: asked again, it would not find whom it has put out, and say that nobody was there.
        reply = await self._settled(request, await self._wire.ask(request, ROUND), name, deadline, once=True)
        if type(reply) is not int:
            self._answer(name, reply)
        return rule.given_token(reply, self._wire.where) if reply else None

    async def inspect(self, name: str, within: float = ROUND) -> Snapshot:
        request = INSPECT.call(self._keys.counted(name, 5))
        deadline = self._now() + within
        (reply,) = await self._wire.ask_all([request], within)
        reply = await self._settled(request, reply, name, deadline)
        if reply == [3]:
            self._answer(name, reply)
        try:
            return snapshot(name, reply)
        except NONSENSE as error:
            raise nonsense(reply, self._wire.where) from error

    async def names(self, prefix: str = "") -> Sequence[str]:
        found: set[str] = set()
        scan: Scan | None = None
        for part in await self._wire.parts(ROUND):
            scan = Scan(pattern_of(self._prefix, prefix), part.where, scan)
            while not scan.is_over:
                (reply,) = await part.ask_all([scan.request()], ROUND)
                if isinstance(reply, ReplyError):
                    raise self._refused(reply, prefix)
                found.update(await self._in_use([key for key in scan.take(reply) if name_of(self._prefix, key)]))
        return sorted(name for name in found if name.startswith(prefix))

    def forked(self) -> None:
        self._bells = {}
        self._wire.forked()

    def wake_waiters(self) -> None:
        self._wire.ear.wake_waiters()

    async def close(self, within: float = LAST_WORDS) -> None:
        await self._wire.close()

    # ---- requests

    def _packed(self, claim: Claim) -> tuple[bytes, bytes, bytes]:
        """What goes before and after the holder in a claim, and before it in a release."""
        name, holder, owner, ttl, units, capacity, fair, _, note = claim
        if len(self._claims) >= _MOST_PACKED:
            self._claims.clear()
        if len(self._releases) >= _MOST_PACKED:
            self._releases.clear()
        keys = self._keys.counted(name, 4) + b"$%d\r\n" % len(holder)
        end = b"\r\n" + self._terms(owner, ttl, units, capacity, fair, note)
        packed = CLAIM.head + keys, end, RELEASE.head + keys
        if len(holder) == HOLDER:
            self._claims[name, owner, ttl, units, capacity, fair, note] = packed
            self._releases[name] = packed[2]
        return packed

    def _pack_times(self, ttl: float) -> bytes:
        return word(b"%d" % (ttl * 1_000_000)) + word(b"%d" % ((ttl + self._target.retention) * 1000 + 1))

    def _pack_terms(self, owner: str, ttl: float, units: int, capacity: int, fair: bool, note: str) -> bytes:
        terms = message_pack(units, capacity, fair, owner.encode("utf-8", "replace"), note.encode())
        return self._pack_times(ttl) + word(self._retention) + word(terms)

    def _joining(self, claim: Claim, terms: bytes, bell: Any) -> bytes:
        """A claim that, if there is no room, joins the line, and says where to ring."""
        line = b"".join((word(self._wire.ear.channel), word(bell.what), self._far))
        return b"".join((JOIN, self._keys.counted(claim.name, 4), word(claim.holder.encode()), terms, line))

    async def _claimed(self, claim: Claim, request: bytes, reply: Reply, deadline: float) -> Grant | Place:
        """Whatever is not the plain yes to a first claim."""
        if type(reply) is not int:
            reply = await self._settled(request, reply, claim.name, deadline, once=True)
        if type(reply) is int:
            return await self._granted(claim, reply)
        _, wake_in = self._answer(claim.name, reply, claim.capacity)
        ear = self._wire.ear
        if claim.queue:
            if len(self._crowded) > _MOST_CROWDED:
                self._crowded.clear()
            self._crowded.add(claim.name)
        if claim.queue and not (claim.holder in self._bells and ear.is_open):
            # Now that there is a line to join, make sure that the bell will be heard, and only then join.
            await ear.open(deadline - self._now())
            bell = self._bells.get(claim.holder)
            if bell is None:
                bell = self._bells[claim.holder] = ear.expect(b"%x" % next(self._places))
            _, _, owner, ttl, units, capacity, fair, _, note = claim
            request = self._joining(claim, self._terms(owner, ttl, units, capacity, fair, note), bell)
            reply = await self._wire.ask(request, deadline - self._now())
            if type(reply) is not int:
                reply = await self._settled(request, reply, claim.name, deadline, once=True)
            if type(reply) is int:
                return await self._granted(claim, reply)
            _, wake_in = self._answer(claim.name, reply, claim.capacity)
        return Place(claim, wake_in / 1_000_000)

    def _renewal(self, grants: Sequence[Grant]) -> bytes:
        """All of one ttl."""
        keys = b"".join([self._keys.bare(grant.claim.name, 1) for grant in grants])
        terms = b"".join(
            [word(struct.pack(">dB", token, len(claim.holder)) + claim.holder.encode()) for claim, token, _ in grants]
        )
        terms = b"".join((self._times(grants[0].claim.ttl), word(self._retention), terms))
        return RENEW.call_many(keys, len(grants), terms, 3 + len(grants))

    def _renewal_in_crowd(self, grant: Grant) -> bytes:
        claim, token, _ = grant
        ttl = b"%d" % (claim.ttl * 1_000_000)
        return RENEW_MANY.call(
            self._keys.counted(claim.name, 4), claim.holder.encode(), b"%d" % token, ttl, self._retention
        )

    async def _in_use(self, keys: list[bytes]) -> list[str]:
        kinds = b""
        for at in range(0, len(keys), self._at_once):
            some = keys[at : at + self._at_once]
            request = KINDS.call_many(b"".join(map(word, some)), len(some), b"", 0)
            told = await self._run(request, "", self._now() + ROUND)
            if type(told) is not bytes or len(told) != len(some):
                raise nonsense(told, self._wire.where)
            kinds += told
        found = []
        for key, kind in zip(keys, kinds, strict=True):
            name = name_of(self._prefix, key)
            if name is None or kind == _FREE:
                continue
            if kind == _HELD or (await self.inspect(name)).capacity:
                found.append(name)
        return found

    # ---- conversations

    async def _run(self, request: bytes, name: str, deadline: float) -> Reply:
        return await self._settled(request, await self._ask(request, deadline), name, deadline)

    async def _ask(self, request: bytes, deadline: float) -> Reply:
        """Once more if the connection breaks: whatever is asked so is harmless to repeat."""
        try:
            return await self._wire.ask(request, deadline - self._now())
        except Disconnected:
            if self._now() >= deadline:
                raise
        return await self._wire.ask(request, deadline - self._now())

    async def _settled(self, request: bytes, reply: Reply, name: str, deadline: float, *, once: bool = False) -> Reply:
        """The reply, after the server has learnt the scripts if need be; its errors are raised."""
        if isinstance(reply, ReplyError):
            # Nothing was done: the server was restarted, or its scripts flushed.
            if is_missing_script(reply) and self._now() < self._taught + _JUST_NOW:
                # Somebody here is telling it already; thousands who come together need not all do so.
                reply = await (
                    self._wire.ask(request, deadline - self._now()) if once else self._ask(request, deadline)
                )
            if is_missing_script(reply):
                self._taught = self._now()
                loads = [script.load for script in ALL]
                reply = (await self._wire.ask_all([*loads, request], deadline - self._now(), once=once))[-1]
            if isinstance(reply, ReplyError):
                raise self._refused(reply, name)
        return reply

    async def _run_all(self, requests: list[bytes], within: float) -> list[Reply]:
        """Apart from user work. What was not answered is answered for by why not."""
        deadline = self._now() + within
        replies = await self._wire.ask_apart(requests, within)
        missing = [index for index, reply in enumerate(replies) if is_missing_script(reply)]
        if missing:
            loads = [script.load for script in ALL]
            again = await self._wire.ask_apart([*loads, *(requests[at] for at in missing)], deadline - self._now())
            for index, reply in zip(missing, again[len(loads) :], strict=True):
                replies[index] = reply
        replies = [self._refused(reply, "") if isinstance(reply, ReplyError) else reply for reply in replies]
        return [
            Unavailable(str(reply)) if isinstance(reply, Exception) and not isinstance(reply, Unavailable) else reply
            for reply in replies
        ]

    def _refused(self, reply: ReplyError, name: str) -> HoldfastError:
        if any(code in str(reply) for code in ("READONLY", "MASTERDOWN", "UNBLOCKED")):
            self._wire.reset()
        key = state_key(self._prefix, name).decode() if name else f"{self._target.prefix}:…"
        return explained(reply, self._wire.where, self._target.prefix, key)

    def _answer(self, name: str, reply: Reply, capacity: int = 0) -> list[int]:
        """The numbers of an answer that is not a plain yes, or what they stand for as an error."""
        if reply != [3] and (type(reply) is not list or list(map(type, reply)) != [int, int]):
            raise nonsense(reply, self._wire.where)
        answer: list[int] = reply
        if answer[0] == 1:
            rule.same_capacity(name, capacity, answer[1])
        elif answer[0] == 2:
            rule.next_token(answer[1], MAX_TOKEN + 1, name)
        elif answer[0] == 3:
            raise foreign(state_key(self._prefix, name).decode(), self._wire.where)
        return answer

    async def _granted(self, claim: Claim, token: int) -> Grant:
        self._forget_bell(claim.holder)
        return Grant(claim, rule.given_token(token, self._wire.where), claim.ttl)

    def _forget_bell(self, holder: str) -> None:
        bell = self._bells.get(holder)
        if bell is not None:
            self._wire.ear.forget(bell)  # first: interrupted in between, it is forgotten the next time
            self._bells.pop(holder, None)

    async def _replicated(self, claim: Claim, request: bytes, deadline: float) -> Grant | Place:
        """A grant counts only when enough replicas have it; else it is undone. WAIT follows on the same connection."""
        reply, acknowledged = await self._wire.ask_slowly([request, self._wait], deadline - self._now())
        answer = await self._claimed(claim, request, reply, deadline)
        if type(answer) is not Grant:
            return answer
        if type(reply) is not int:  # granted at the second asking: the scripts were not there, or it had to join first
            _, acknowledged = await self._wire.ask_slowly([request, self._wait], deadline - self._now())
        if type(acknowledged) is not int:
            await self.release(claim, max(deadline - self._now(), _MOMENT))
            if isinstance(acknowledged, ReplyError):
                raise self._refused(acknowledged, claim.name)
            raise nonsense(acknowledged, self._wire.where)
        if acknowledged < self._target.replicas:
            await self.release(claim, max(deadline - self._now(), _MOMENT))
            raise Unavailable(
                f"only {acknowledged} of {self._target.replicas} replicas of Redis at {self._wire.where} acknowledged the "
                f"claim of {claim.name!r} within {self._target.replicas_timeout:g} s: it was undone"
            )
        return answer


def all_but_all_unknown(verdicts: list[Verdict]) -> list[Verdict]:
    """Verdicts; but if nobody could be asked at all, that is an error."""
    troubles = [verdict for verdict in verdicts if isinstance(verdict, Unavailable)]
    if troubles and len(troubles) == len(verdicts):
        raise troubles[0]
    return verdicts
