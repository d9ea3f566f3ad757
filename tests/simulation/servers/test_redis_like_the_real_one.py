"""The simulated Redis answers as the real one does: random commands, and our own scripts, to both; times aside."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from hiredis import Reader, ReplyError

from holdfast.stores.redis import scripts
from holdfast.stores.redis.keys import PARTS, message_pack, pack
from holdfast.stores.redlock import scripts as redlock_scripts
from holdfast.testing import servers
from holdfast.testing.servers.redis import Redis
from holdfast.testing.simulation.servers.redis.execution import Execution
from holdfast.testing.simulation.servers.redis.keyspace import Refused, Status

pytestmark = pytest.mark.server

LONG = 1000 * 1_000_000  # µs: a ttl that does not end here
OVER = 1  # and one that is over by the next request
RETENTION = b"3600000000"
PATIENCE = 60.0  # seconds that this test may take: times differ by no more


class Real:
    def __init__(self, server: Redis) -> None:
        self._socket = socket.create_connection(server.address, timeout=PATIENCE)
        self._reader = Reader()

    def ask(self, words: Sequence[bytes]) -> Any:
        return self.ask_all([words])[0]

    def ask_all(self, requests: Sequence[Sequence[bytes]]) -> list[Any]:
        self._socket.sendall(b"".join(pack(*words) for words in requests))
        return [self.next() for _ in requests]

    def next(self) -> Any:
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(65536))
        return f"!{reply}" if isinstance(reply, ReplyError) else reply

    def close(self) -> None:
        self._socket.close()


class Simulated:
    """Without streams: its clock is this machine's, and one channel is heard."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self._run = Execution(lambda: time.time_ns() // 1000, self._publish, lambda _: None)

    def _publish(self, channel: bytes, message: bytes) -> int:
        if channel != b"heard":
            return 0
        self.heard.append(message)
        return 1

    def ask(self, words: Sequence[bytes]) -> Any:
        try:
            answer = self._run.ask(words)
        except Refused as refused:
            return f"!{refused}"
        return answer.text if isinstance(answer, Status) else answer


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with servers.start("redis", "--appendonly", "no") as one:
        yield one


@pytest.fixture
def real(server: Redis) -> Iterator[Real]:
    with contextlib.closing(Real(server)) as one:
        one.ask([b"FLUSHALL"])
        yield one


class Same:
    """Are two answers the same? Tokens are, if they are the same one in the order in which they appeared."""

    def __init__(self) -> None:
        self._tokens: tuple[dict[int, int], dict[int, int]] = {}, {}

    def __call__(self, one: Any, other: Any) -> bool:
        if isinstance(one, list) and isinstance(other, list):
            return len(one) == len(other) and all(map(self, one, other))
        if isinstance(one, int) and isinstance(other, int):
            if min(one, other) > 10**15:
                first, second = (
                    tokens.setdefault(token, len(tokens))
                    for tokens, token in zip(self._tokens, (one, other), strict=True)
                )
                return first == second
            return one == other or (min(one, other) >= 0 and abs(one - other) < PATIENCE * 1_000_000)
        if isinstance(one, str) and isinstance(other, str):
            return one.partition(" ")[0] == other.partition(" ")[0]
        return bool(one == other)


# ---- commands

KEYS = (b"a", b"b", b"c")
FIELDS = (b"f", b"g", b"", b"h\x00i", b"j" * 300)
NUMBERS = (
    b"0",
    b"1",
    b"-1",
    b"2",
    b"3.5",
    b"100",
    b"-7",
    b"1700000000000001",
    b"x",
    b"",
    b"1e3",
    b"99999999999999999999",
)


def some_command(chance: random.Random) -> list[bytes]:
    def key() -> bytes:
        return chance.choice(KEYS)

    def field() -> bytes:
        return chance.choice(FIELDS)

    def figure() -> bytes:
        return chance.choice(NUMBERS)

    forms: list[Callable[[], list[bytes]]] = [
        lambda: [b"GET", key()],
        lambda: [b"SET", key(), field()],
        lambda: [b"SET", key(), field(), b"PX", chance.choice((b"100000", b"0", b"-1", b"x", b"12345678"))],
        lambda: [b"SET", key(), field(), chance.choice((b"KEEPTTL", b"NX", b"XX", b"nonsense"))],
        lambda: [b"SET", key(), field(), b"EX", b"100", chance.choice((b"NX", b"KEEPTTL", b"PX"))],
        lambda: [b"SETRANGE", key(), chance.choice((b"0", b"3", b"40", b"-1", b"x")), field()],
        lambda: [b"DEL", *chance.choices(KEYS, k=chance.randint(1, 2))],
        lambda: [b"EXISTS", *chance.choices(KEYS, k=chance.randint(1, 3))],
        lambda: [b"PEXPIRE", key(), chance.choice((b"100000", b"0", b"-5", b"x"))],
        lambda: [b"PTTL", key()],
        lambda: [b"HGET", key(), field()],
        lambda: [b"HSET", key(), *[field() for _ in range(chance.randint(2, 4))]],
        lambda: [b"HDEL", key(), field(), field()],
        lambda: [b"HGETALL", key()],
        lambda: [b"ZADD", key(), figure(), field()],
        lambda: [b"ZADD", key(), b"NX", figure(), field()],
        lambda: [b"ZADD", key(), figure(), field(), figure(), field()],
        lambda: [b"ZREM", key(), field(), field()],
        lambda: [b"ZCARD", key()],
        lambda: [b"ZRANGE", key(), figure(), figure()],
        lambda: [b"ZRANGE", key(), b"0", b"-1", b"WITHSCORES"],
        lambda: [b"ZRANGEBYSCORE", key(), chance.choice((b"-inf", b"(1", b"0", b"y")), figure()],
        lambda: [b"ZRANGEBYSCORE", key(), b"-inf", b"+inf", b"LIMIT", b"0", chance.choice((b"1", b"-1", b"0"))],
        lambda: [b"FLUSHALL"] if chance.random() < 0.02 else [b"DBSIZE"],
        lambda: [b"NOSUCH", key()],
        lambda: [chance.choice((b"GET", b"SET", b"HGET", b"ZCARD", b"PTTL")), key(), key(), key(), key(), key()],
    ]
    return chance.choice(forms)()


def test_random_commands_are_answered_alike(real: Real) -> None:
    simulated, chance = Simulated(), random.Random(1)
    commands = [some_command(chance) for _ in range(6000)]
    unordered = (b"HGETALL",)
    for words, answer in zip(commands, real.ask_all(commands), strict=True):
        mine = simulated.ask(words)
        if words[0] in unordered and isinstance(mine, list) and isinstance(answer, list):
            mine, answer = (dict(zip(one[::2], one[1::2], strict=True)) for one in (mine, answer))
        if words[0] == b"PTTL" and isinstance(mine, int) and min(mine, answer) > 0:
            assert abs(mine - answer) < PATIENCE * 1000, words
        elif isinstance(mine, str) and mine.startswith("!ERR unknown command"):
            assert str(answer).startswith("!ERR unknown command"), words
        else:
            assert mine == answer, words


def test_names_are_found_by_the_same_patterns(real: Real) -> None:
    simulated = Simulated()
    keys = [b"hf:{a}", b"hf:{ab}", b"hf:{a:b}", b"hf:{x}:ends", b"hf:{%2A}", b"other:{a}", b"hf:{a\\b}", b"hf:{a?}"]
    patterns = [b"hf:{*}", b"hf:{a*}", b"hf:{%2A*}", b"hf:{a\\\\b*}", b"*", b"hf:{a\\?}", b"nothing"]
    for one in (real, simulated):
        for key in keys:
            one.ask([b"SET", key, b"1"])
    for pattern in patterns:
        (_, found), (_, mine) = (
            one.ask([b"SCAN", b"0", b"MATCH", pattern, b"COUNT", b"500"]) for one in (real, simulated)
        )
        assert sorted(mine) == sorted(found), pattern


VALUES = ["0", "1", "-1", "127", "128", "-32", "-33", "255", "256", "65535", "65536", "4294967296", "1700000000000001"]
VALUES += ["-129", "-70000", "-5000000000", "0.5", "1.1", "-2.25", "1e300", "true", "false", "nil", "''", "'abc'"]
VALUES += [f"string.rep('x', {size})" for size in (31, 32, 255, 256, 70000)] + ["{}", "{1, 'a', {true, 2.5}}"]


def test_values_are_packed_alike(real: Real) -> None:
    simulated, chance = Simulated(), random.Random(2)
    for _ in range(300):
        some = ", ".join(chance.choices(VALUES, k=chance.randint(1, 5)))
        for form in ("return cmsgpack.pack({})", "return {{cmsgpack.unpack(cmsgpack.pack({}))}}"):
            words = [b"EVAL", form.format(some).encode(), b"0"]
            assert simulated.ask(words) == real.ask(words), words
    for text in (
        b"return {cmsgpack.unpack_one('\\1\\2\\3', 1)}",
        b"return {cmsgpack.unpack_one('\\1\\2\\3', 2)}",
        b"return struct.pack('>ddB', '1700000000000001', 2.5, 300)",
        b"return {struct.unpack('>d', struct.pack('>dd', 3, 4), 9)}",
        b"return {1, false, 'x', nil, 5}",
        b"return 3.99",
        b"return {ok = 'FINE'}",
        b"return redis.call('SET', 'k', 1.5)",
        b"return redis.call('SET', 'k', 9007199254740991)",
        b"return redis.sha1hex('abc')",
        b"return {true, {1, {2}}}",
    ):
        words = [b"EVAL", text, b"0"]
        assert simulated.ask(words) == real.ask(words), words
        assert simulated.ask([b"GET", b"k"]) == real.ask([b"GET", b"k"])
    for text in (
        b"return cmsgpack.unpack('\\217')",
        b"return redis.call('HGET', 'k', 'f')",
        b"return redis.call('NOSUCH')",
        b"return struct.unpack('>d', 'abc')",
        b"return {err = 'OOM none'}",
        b"error('x')",
        b"return (",
    ):
        words = [b"EVAL", text, b"0"]
        assert Same()(simulated.ask(words), real.ask(words)), words
    assert simulated.ask([b"EVALSHA", b"0" * 40, b"0"]) == real.ask([b"EVALSHA", b"0" * 40, b"0"])


# ---- our scripts


def keys_of(name: bytes, count: int, parts: Sequence[bytes] = PARTS) -> list[bytes]:
    return [b"%d" % count, *(b"hf:{" + name + b"}" + part for part in parts[:count])]


class Both:
    """Asked the same; answers compared. A token is named by the side that it is told to."""

    def __init__(self, real: Real) -> None:
        self.simulated = Simulated()
        self.sides: tuple[Real | Simulated, ...] = real, self.simulated
        self.tokens: list[tuple[int, int]] = [(1, 1)]
        self._same = Same()

    def run(self, script: scripts.Script, keys: list[bytes], arguments: Callable[[int], list[bytes]]) -> Any:
        answers = []
        for at, side in enumerate(self.sides):
            words = [b"EVALSHA", script.sha, *keys, *arguments(at)]
            answer = side.ask(words)
            if isinstance(answer, str) and answer.startswith("!NOSCRIPT"):
                assert side.ask([b"SCRIPT", b"LOAD", script.text]) == script.sha
                answer = side.ask(words)
            answers.append(answer)
        assert self._same(*answers), (script.name, keys, answers)
        if all(isinstance(answer, int) and answer > 10**15 for answer in answers):
            self.tokens.append((answers[0], answers[1]))
        return answers[0]


def test_our_scripts_are_answered_alike(server: Redis, real: Real) -> None:
    with contextlib.closing(Real(server)) as hearing:
        hearing.ask([b"SUBSCRIBE", b"heard"])
        told = random_scripts(Both(real), random.Random(3))
        assert len(told) > 50
        assert [hearing.next()[2] for _ in told] == told


def random_scripts(both: Both, chance: random.Random) -> list[bytes]:
    """What whoever listens has heard."""
    holders = [b"%032d" % number for number in range(5)]
    seen: set[str] = set()
    for _ in range(2000):
        name = chance.choice((b"one", b"few", b"rw"))
        holder, ttl = chance.choice(holders), chance.choice((LONG, LONG, LONG, LONG, OVER))
        capacity = {b"one": 1, b"few": 3, b"rw": 100}[name] + (chance.random() < 0.02)
        units = chance.choice((1, capacity)) if name == b"rw" else chance.randint(1, min(capacity, 2))
        terms = message_pack(units, capacity, chance.random() < 0.8, b"who", b"note")
        queue = (
            [chance.choice((b"heard", b"deaf")), b"%x" % chance.randint(1, 9), b"0"] if chance.random() < 0.5 else []
        )
        token = chance.choice(both.tokens[-6:])
        kept = b"%d" % (ttl // 1000 + 3_600_001)
        keys = keys_of(name, 4)
        whole = bytes((len(holder),)) + holder
        calls: list[tuple[scripts.Script, list[bytes], Callable[[int], list[bytes]]]] = [
            (scripts.CLAIM, keys, partial(_same, [holder, b"%d" % ttl, kept, RETENTION, terms, *queue])),
            (scripts.RELEASE, keys, partial(_same, [holder, RETENTION])),
            (scripts.RENEW, keys_of(name, 1), partial(_renewal, token, whole, [b"%d" % ttl, kept, RETENTION])),
            (scripts.RENEW_MANY, keys, partial(_with_token, token, [holder], [b"%d" % ttl, RETENTION])),
            (scripts.WATCH, keys, partial(_with_token, token, [], [b"%d" % LONG, RETENTION])),
            (scripts.EVICT, keys_of(name, 5), partial(_with_token, token, [], [b"me", RETENTION, b"9999999"])),
            (scripts.KINDS, [b"3", b"hf:{one}", b"hf:{few}", b"hf:{rw}"], partial(_same, [])),
        ]
        answer = both.run(*chance.choices(calls, weights=(6, 4, 1, 1, 1, 1, 1))[0])
        seen.add(str(answer[0]) if isinstance(answer, list) else "granted" if answer and type(answer) is int else "")
        if chance.random() < 0.03:
            victim = b"hf:{" + name + b"}" + chance.choice(PARTS[:4])
            words = chance.choice(([b"DEL", victim], [b"SCRIPT", b"FLUSH"]))
            for side in both.sides:
                side.ask(words)
        both.run(scripts.INSPECT, keys_of(name, 5), lambda _: [])
    assert seen == {"granted", "0", "1", ""}  # and none of them is rare
    return both.simulated.heard


def _same(words: list[bytes], side: int) -> list[bytes]:
    return words


def _with_token(token: tuple[int, int], before: list[bytes], after: list[bytes], side: int) -> list[bytes]:
    return [*before, b"%d" % token[side], *after]


def _renewal(token: tuple[int, int], holder: bytes, words: list[bytes], side: int) -> list[bytes]:
    return [*words, struct.pack(">d", token[side]) + holder]


def test_the_scripts_of_redlock_are_answered_alike(real: Real) -> None:
    both, chance = Both(real), random.Random(4)
    holders = [b"%032d" % number for number in range(4)]
    token = time.time_ns() // 1000
    parts = (b"", b":waiting", b":evicted")
    tokens = [token]
    for _ in range(1000):
        name = chance.choice((b"one", b"few"))
        holder, ttl = chance.choice(holders), chance.choice((LONG, LONG, OVER))
        capacity, units = (1, 1) if name == b"one" else (3, chance.randint(1, 2))
        terms = message_pack(units, capacity, True, b"who", b"")
        slots = b"" if name == b"one" else b" ".join(sorted(chance.sample((b"0", b"1", b"2"), units)))
        proposed = chance.choice((tokens[-1] + chance.randint(1, 5), chance.choice(tokens[-5:])))
        keys = keys_of(name, 2, parts)
        waits = chance.choice((b"0", b"1", b"2"))
        a_token = b"%d" % proposed
        calls = [
            (redlock_scripts.CLAIM, keys, [holder, a_token, b"%d" % ttl, RETENTION, terms, slots, waits]),
            (redlock_scripts.RELEASE, keys, [holder, RETENTION, waits, chance.choice((b"0", a_token))]),
            (redlock_scripts.RENEW, keys_of(name, 1, parts), [b"", RETENTION, holder, a_token, b"%d" % ttl]),
            (
                redlock_scripts.EVICT,
                keys_of(name, 2, (b"", b":evicted")),
                [a_token, RETENTION, b"%d" % (tokens[-1] + 1), b"me", b"99999"],
            ),
        ]
        script, keys, words = chance.choice(calls)
        tokens.append(max(tokens[-1], proposed))
        both.run(script, keys, partial(_same, words))
        if chance.random() < 0.05:
            for side in both.sides:
                side.ask([b"DEL", b"hf:{" + name + b"}"])
        both.run(redlock_scripts.INSPECT, keys_of(name, 3, parts), lambda _: [b"", RETENTION])
