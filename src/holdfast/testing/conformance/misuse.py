"""What is wrong is refused at once, with a message that helps, and changes nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from ...errors import Misuse
from .tampering import tamper
from .world import Actor, World

Call = Callable[[Any], Any]

BAD: dict[str, tuple[Call, str]] = {
    "no name": (lambda locks: locks.lock(""), "must not be empty"),
    "None as a name": (lambda locks: locks.lock(None), "must be a str, not NoneType"),
    "bytes as a name": (lambda locks: locks.lock(b"x"), "must be a str, not bytes"),
    "a number as a name": (lambda locks: locks.semaphore(5, 1), "must be a str, not int"),
    "NUL in a name": (lambda locks: locks.lock("a\0b"), "must not contain NUL"),
    "a surrogate in a name": (lambda locks: locks.rwlock("\ud800"), "valid Unicode"),
    "a name too long": (lambda locks: locks.lock("x" * 513), "may have 512 bytes of UTF-8, this one has 513"),
    "a name too long in bytes": (lambda locks: locks.election("é" * 257), "this one has 514"),
    "no names": (lambda locks: locks.all_of(), "at least one name"),
    "one bad name of many": (lambda locks: locks.all_of("a", ""), "must not be empty"),
    "an empty name to look at": (lambda locks: locks.inspect(""), "must not be empty"),
    "a prefix that is none": (lambda locks: locks.names(b"x"), "must be a str, not bytes"),
    "ttl of zero": (lambda locks: locks.lock("x", ttl=0), "ttl must be at least 0.05 s, not 0"),
    "ttl below zero": (lambda locks: locks.lock("x", ttl=-1), "ttl must be at least 0.05 s, not -1"),
    "ttl of nan": (lambda locks: locks.lock("x", ttl=math.nan), "ttl must be a finite number of seconds, not nan"),
    "ttl without end": (lambda locks: locks.lock("x", ttl=math.inf), "ttl must be a finite number"),
    "ttl of None": (lambda locks: locks.lock("x", ttl=None), "ttl must be a number of seconds, not NoneType"),
    "ttl as text": (lambda locks: locks.rwlock("x", ttl="30"), "ttl must be a number of seconds, not str"),
    "ttl of True": (lambda locks: locks.election("x", ttl=True), "ttl must be a number of seconds, not bool"),
    "ttl too small": (lambda locks: locks.semaphore("x", 2, ttl=0.049), "ttl must be at least 0.05 s"),
    "ttl too large": (lambda locks: locks.all_of("x", ttl=10**9), r"ttl may be 2592000 s \(30 days\)"),
    "ttl far too large": (lambda locks: locks.lock("x", ttl=10**5000), r"ttl may be 2592000 s \(30 days\)"),
    "timeout below zero": (lambda locks: locks.lock("x", timeout=-1), "timeout must not be negative"),
    "timeout of nan": (lambda locks: locks.lock("x").acquire(timeout=math.nan), "timeout must be a finite number"),
    "timeout without end": (lambda locks: locks.lock("x").acquire(timeout=math.inf), "pass timeout=None"),
    "timeout as text": (lambda locks: locks.all_of("x").acquire(timeout="5"), "timeout must be a number"),
    "timeout of False": (lambda locks: locks.lock("x").acquire(timeout=False), "timeout must be a number"),
    "a name and a key": (lambda locks: locks.lock("x", key=str), "a name or a key, not both"),
    "a key that is none": (lambda locks: locks.once(key="x"), "key must be a function"),
    "no name to take": (lambda locks: locks.lock().acquire(), "a lock without a name is for decorators"),
    "otherwise where nothing can be skipped": (
        lambda locks: locks.lock("x", otherwise="skip").acquire(),
        "for decorators",
    ),
    "another library's word": (lambda locks: locks.lock("x", blocking_timeout=5), "here that is `timeout=`"),
    "another library's ttl": (lambda locks: locks.lock("x", expire=5), "here that is `ttl=`"),
    "another library's acquire": (lambda locks: locks.lock("x").acquire(blocking=False), "here that is `timeout=`"),
    "an election's timeout": (lambda locks: locks.election("x").lead(timeout=-1), "timeout must not be negative"),
    "capacity of zero": (lambda locks: locks.semaphore("x", 0), "capacity must be at least 1, not 0"),
    "capacity of half": (lambda locks: locks.semaphore("x", 1.5), "capacity must be an int, not float"),
    "capacity too large": (lambda locks: locks.semaphore("x", 2**31), "capacity must be at most"),
    "units of zero": (lambda locks: locks.semaphore("x", 2).acquire(units=0), "units must be at least 1, not 0"),
    "units below zero": (lambda locks: locks.semaphore("x", 2).try_acquire(units=-1), "units must be at least 1"),
    "units of True": (lambda locks: locks.semaphore("x", 2).acquire(units=True), "units must be an int, not bool"),
    "units beyond the capacity": (lambda locks: locks.semaphore("x", 2).acquire(units=3), "could never be granted"),
    "fair that is no flag": (lambda locks: locks.lock("x", fair=1), "fair must be True or False, not 1"),
    "renew that is no flag": (lambda locks: locks.lock("x", renew="no"), "renew must be True or False, not 'no'"),
    "reentrant that is no flag": (lambda locks: locks.lock("x", reentrant=None), "reentrant must be True or False"),
    "otherwise that is unknown": (lambda locks: locks.lock("x", otherwise="panic"), 'must be "raise" or "skip"'),
    "at_least beyond at_most": (lambda locks: locks.once("x", at_least=9, at_most=5), "at_least must be a number of"),
    "at_least of None": (lambda locks: locks.once("x", at_least=None), "at_least must be a number of seconds"),
    "at_most of zero": (lambda locks: locks.once("x", at_most=0), "at_most must be at least 0.05 s"),
    "an address with a line break": (lambda locks: locks.election("x", address="a\nb"), "must be printable"),
    "an address too long": (lambda locks: locks.election("x", address="a" * 1025), "may have 1024 bytes"),
    "an address that is no text": (lambda locks: locks.election("x", address=None), "must be a str"),
    "a token that is none": (lambda locks: locks.force_release("x", token=0), "takes the token of the grant"),
    "a token of True": (lambda locks: locks.force_release("x", token=True), "takes the token of the grant"),
    "a token as text": (lambda locks: locks.force_release("x", token="5"), "takes the token of the grant"),
    "events of no known kind": (lambda locks: locks.subscribe(print, ["exploded"]), "no such kind of event"),
    "events of a bare word": (lambda locks: locks.subscribe(print, "lost"), "no such kind of event"),
}


def answer(actor: Actor, call: Call, message: str) -> str:
    try:
        actor.do(call)
    except Misuse as error:
        return "refused" if re.search(message, str(error)) else f"refused, but: {error}"
    return "accepted"


class Misuses:
    def test_what_is_wrong_is_refused_and_nothing_is_sent(self, world: World) -> None:
        a = world.actor("a")
        hand = tamper(a.locks)
        assert [what for what, (call, message) in BAD.items() if answer(a, call, message) != "refused"] == []
        assert set(hand.calls) <= {"release"}, "a claim that was never sent may be taken back, but nothing else"
        assert world.names() == []

    def test_a_generator_cannot_be_decorated(self, world: World) -> None:
        a = world.actor("a")

        def generator() -> Any:
            yield 1

        with pytest.raises(Misuse, match="is a generator"):
            a.do(lambda locks: locks.lock("x")(generator))

    def test_a_function_of_the_other_world_cannot_be_decorated(self, world: World) -> None:
        a = world.actor("a")

        async def later() -> None: ...
        def now() -> None: ...

        with pytest.raises(Misuse, match="decorate it with a lock from holdfast"):
            a.do(lambda locks: locks.lock("x")(now if world.asynchronous else later))

    def test_a_closed_connection_says_so(self, world: World) -> None:
        a = world.actor("a")
        a.do(lambda locks: locks.close())
        with pytest.raises(Misuse, match="this connection was closed"):
            a.do(lambda locks: locks.lock("x").acquire())
        assert world.names() == []

    def test_on_lost_takes_something_to_call(self, world: World) -> None:
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x").acquire())
        with pytest.raises(Misuse, match="something to call"):
            lease.on_lost("a function")
        a.do(lambda _: lease.release())
