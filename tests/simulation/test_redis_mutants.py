"""The simulation of Redis can fail: each of these mistakes is found, by the plans that any seed draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple
from unittest import mock

import pytest

from holdfast.drivers.simulated import Simulated
from holdfast.errors import Unavailable
from holdfast.stores.redis import scripts
from holdfast.stores.redis.replies import Reply
from holdfast.stores.redis.scripts import Script
from holdfast.stores.redis.shared_wire import SharedWire
from holdfast.stores.redis.stream_pipe import StreamPipe
from holdfast.stores.redis.wiring import DoubtedPipe
from holdfast.testing.simulation import Fence
from holdfast.testing.simulation.machines import on_machines
from holdfast.testing.simulation.servers.redis.lua import lua
from holdfast.testing.simulation.swarm import REDIS, plan_of
from holdfast.testing.simulation.workload import run

from .test_mutants import deadline_from_the_reply, no_recheck_after_waiting, nonce_used_twice

Patch = Callable[[], AbstractContextManager[object]]


class Mutant(NamedTuple):
    wrong: str
    seed: int  # the first, or one of the first, that finds it: looked at first, since that is quick
    found_by: tuple[str, ...]  # any of these checkers
    patch: Patch = nullcontext
    fence: Fence = Fence.READS_AND_WRITES


def spoilt(*changes: tuple[Script, str, str]) -> Patch:
    """The server runs another text under the same SHA-1."""

    @contextmanager
    def patch() -> Iterator[None]:
        known = dict(lua()._compiled)
        try:
            for script in {script for script, _, _ in changes}:
                text = script.text.decode()
                for _, old, new in (change for change in changes if change[0] is script):
                    assert text.count(old) >= 1, f"the script has changed: {old!r}"
                    text = text.replace(old, new)
                lua()._compiled.pop(script.sha, None)
                lua().compile(script.sha, text.encode())
            yield
        finally:
            lua()._compiled.clear()
            lua()._compiled.update(known)

    return patch


def in_the_book(old: str, new: str) -> Patch:
    return spoilt(*((script, old, new) for script in scripts.ALL if old in script.text.decode()))


def wall_clock_at_the_client() -> AbstractContextManager[object]:
    def now(self: Simulated) -> float:
        return original(self) if self.process.name in ("server", "redis", "chaos") else self.wall_us() / 1e6

    original = Simulated.now
    return mock.patch.object(Simulated, "now", now)


@contextmanager
def answers_of_others() -> Iterator[None]:
    """redis-py's, CVE-2023-28859: a connection that owes an answer is used again."""
    fail, answers = StreamPipe.fail, SharedWire._answers

    def forgets(self: StreamPipe, error: Unavailable) -> None:
        if "did not answer" not in str(error):
            fail(self, error)
        while self._owed:  # whose answers are still to come
            self._owed.popleft()[0].set_exception(error)

    async def late(
        self: SharedWire, pipe: DoubtedPipe, requests: Sequence[bytes], deadline: float, within: float
    ) -> list[Reply]:
        try:
            return await answers(self, pipe, requests, deadline, within)
        except Unavailable as error:
            pipe.fail(error)
            raise

    with mock.patch.object(SharedWire, "_answers", late), mock.patch.object(StreamPipe, "fail", forgets):
        yield


RENEWED = "if sub(state, 8, 15) == sub(grant, 1, 8) and sub(state, 40, 31 + #grant) == sub(grant, 9)"
OVERTAKEN = "if token > now + ARGV[2] then px = math.ceil((token - now + ARGV[4]) / 1000) end"
SAME = "if string.sub(state, 41, from - 1) == ARGV[1] then"
KEPT_INSIDE = "    book:put(holder, me, ttl)\n    book:ring()\n    book:save()\n    return me.token"

MUTANTS = [
    Mutant(
        "who gives up when his turn comes rings nobody",
        239,
        ("handoff",),
        spoilt(
            (
                scripts.RELEASE,
                "book:ring()\nbook:save()\nif",
                "if not me or me.token > 0 then book:ring() end\nbook:save()\nif",
            )
        ),
    ),
    Mutant(
        "a downgrade rings nobody",
        111,
        ("handoff",),
        spoilt((scripts.CLAIM, KEPT_INSIDE, KEPT_INSIDE.replace("    book:ring()\n", ""))),
    ),
    Mutant(
        "a mark that expires before the clock has passed it", 135, ("tokens",), spoilt((scripts.CLAIM, OVERTAKEN, ""))
    ),
    Mutant(
        "a lost answer, asked for again, is taken for a fresh entry",
        4,
        ("honesty", "linearizability", "tokens", "storage"),
        spoilt(
            (
                scripts.CLAIM,
                SAME,
                SAME + "\n            if true then token = math.max(token + 1, now)\n            state = "
                "string.sub(state, 1, 7) .. struct.pack('>d', token) .. string.sub(state, 16) end",
            )
        ),
    ),
    Mutant(
        "plain delete on release",
        9,
        ("linearizability",),
        spoilt(
            (scripts.RELEASE, "if string.sub(state, 41, 40 + string.byte(state, 40)) ~= ARGV[1] then return 0 end", "")
        ),
    ),
    Mutant(
        "a renewal that does not look whose it is",
        14,
        ("linearizability",),
        spoilt((scripts.RENEW, RENEWED, "if true")),
    ),
    Mutant(
        "tokens by the clock alone",
        17,
        ("tokens",),
        spoilt((scripts.CLAIM, "token = mark + step(ARGV[1])", "token = now")),
    ),
    Mutant(
        "bell not rung", 2, ("handoff",), in_the_book("function Book:ring()", "function Book:ring()\n    do return end")
    ),
    Mutant(
        "capacity ignored",
        2,
        ("linearizability",),
        spoilt((scripts.CLAIM, "if book.used + units <= capacity and", "if book.used <= capacity and")),
    ),
    Mutant(
        "a lease ends early at the server",
        2,
        ("linearizability",),
        spoilt(
            (
                scripts.CLAIM,
                "token, now, ARGV[2], now + ARGV[2], #ARGV[1]",
                "token, now, ARGV[2], now + ARGV[2] / 3, #ARGV[1]",
            )
        ),
    ),
    Mutant("deadline from the reply", 19, ("honesty",), deadline_from_the_reply),
    Mutant("wall clock at the client", 37, ("honesty",), wall_clock_at_the_client),
    Mutant(
        "the answer to another question",
        5,
        ("honesty", "linearizability", "tokens", "failure", "storage"),
        answers_of_others,
    ),
    Mutant("a nonce used twice", 3, ("tokens", "linearizability", "failure"), nonce_used_twice),
    Mutant("no re-check after waiting", 3, ("honesty",), no_recheck_after_waiting),
    Mutant("fence on writes only", 10, ("storage",), fence=Fence.WRITES),
    Mutant("no fence", 10, ("storage",), fence=Fence.NONE),
    Mutant("!= instead of < at the storage", 2, ("storage",), fence=Fence.NOT_EQUAL),
]

BUDGET = 20_000


def finds(mutant: Mutant, seed: int) -> bool:
    report = run(seed, plan_of(REDIS, seed)._replace(fence=mutant.fence), on_machines)
    return any(finding.checker in mutant.found_by for finding in report.findings)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.wrong)
def test_what_is_wrong_is_found_out(mutant: Mutant) -> None:
    assert finds(mutant._replace(fence=Fence.READS_AND_WRITES), mutant.seed) is False
    with mutant.patch():
        assert finds(mutant, mutant.seed) or any(finds(mutant, seed) for seed in range(BUDGET))
