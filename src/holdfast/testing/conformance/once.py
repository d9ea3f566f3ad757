"""One of many schedulers runs the job."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any

import pytest

from ...claim import Grant, Place
from ...errors import NotAcquired
from .world import World, claim


def guarded(world: World, lock: Any, job: Any) -> Any:
    """`job` under a decorator, as this world writes it."""
    if not world.asynchronous:
        return lock(job)

    async def awaited(*args: Any) -> Any:
        return job(*args)

    return lock(awaited)


class Once:
    def test_one_runs_the_job_and_the_others_skip(self, world: World) -> None:
        crew = world.actors("a", "b", "c", "d")
        ran: list[str] = []
        pending = [
            one.start(
                lambda locks, one=one: guarded(world, locks.once("job", at_least=60, at_most=120), ran.append)(one.name)
            )
            for one in crew
        ]
        for each in pending:
            assert each.result() is None
        assert len(ran) == 1

    def test_the_name_stays_taken_for_at_least_so_long(self, world: World) -> None:
        a, b = world.actors("a", "b")
        keep = world.ttl_kept
        before = time.monotonic()
        assert a.do(lambda locks: guarded(world, locks.once("job", at_least=keep), lambda: "ran")()) == "ran"
        assert b.do(lambda locks: guarded(world, locks.once("job", at_least=keep), lambda: "ran")()) is None
        assert len(world.inspect("job").holders) == 1
        world.until(lambda: not world.names(), within=keep + world.slack + 5)
        assert time.monotonic() - before >= 0.9 * keep
        assert b.do(lambda locks: guarded(world, locks.once("job"), lambda: "ran")()) == "ran"
        assert world.names() == []

    def test_what_its_owner_and_close_give_up_at_once_stays_taken(self, world: World) -> None:
        """Each asks for it again, for what is left. One took what the other had just asked for as somebody else's, put it out,
        and let it in anew; or anybody who waited."""
        b = world.actor("b")
        owner = world.looker
        other = owner.beside("close")
        times = [4 * world.ttl_kept + left for left in (0.0, 0.25, 0.5)]
        for number, ttl in enumerate(times):  # so that neither has to wait for what the connection needs first
            first = claim(f"first {number}", ttl)
            owner.store(lambda store, first=first: store.claim(first))
            owner.store(lambda store, first=first: store.release(first))
        for number in range(8):
            mine, theirs = claim(f"x{number}", times[2]), claim(f"x{number}", times[2], owner="host/1/b")
            grant = owner.store(lambda store, mine=mine: store.claim(mine))
            assert isinstance(b.store(lambda store, theirs=theirs: store.claim(theirs)), Place)
            shorter = [mine._replace(ttl=ttl, queue=False) for ttl in times[:2]]
            pending = [
                one.start(lambda locks, less=less: locks._engine.store.claim(less))
                for one, less in zip((owner, other), shorter, strict=True)
            ]
            answers = [each.result() for each in pending]
            assert [answer for answer in answers if not isinstance(answer, Grant)] == []
            assert {answer.token for answer in answers} == {grant.token}
            assert isinstance(b.store(lambda store, theirs=theirs: store.claim(theirs)), Place)
            for one, each in ((b, theirs), (owner, mine)):
                one.store(lambda store, each=each: store.release(each))
        world.until_nothing_is_left()

    def test_the_lease_is_over_after_at_most_so_long(self, world: World) -> None:
        a, b = world.actors("a", "b")
        most = world.ttl_short
        lease = a.do(lambda locks: locks.once("job", at_most=most).acquire())
        assert a.do(lambda _: lease.lost.wait(most + world.slack + 5)) is True
        taken = b.do(lambda locks: locks.lock("job").acquire(timeout=most + world.slack + 5))
        assert taken.token > lease.token

    def test_it_may_raise_instead_of_skipping(self, world: World) -> None:
        a, b = world.actors("a", "b")
        lease = a.do(lambda locks: locks.once("job").acquire())
        with pytest.raises(NotAcquired, match="'job' at once: held by"):
            b.do(lambda locks: guarded(world, locks.once("job", otherwise="raise"), lambda: "ran")())
        a.do(lambda _: lease.release())

    def test_a_job_that_fails_fails(self, world: World) -> None:
        a = world.actor("a")

        def job() -> None:
            raise KeyError("the job's own")

        with pytest.raises(KeyError, match="the job's own"):
            a.do(lambda locks: guarded(world, locks.once("job"), job)())
        assert world.names() == []

    def test_an_interrupted_job_keeps_the_name_taken_too(self, world: World) -> None:
        if not world.asynchronous:
            return
        a = world.actor("a")

        async def cancelled(locks: Any) -> None:
            started = asyncio.Event()  # that the store has it is not enough: its answer may still be on the way

            async def job() -> None:
                started.set()
                await asyncio.sleep(600)

            task = asyncio.get_running_loop().create_task(locks.once("job", at_least=60)(job)())
            await started.wait()
            task.cancel()
            await asyncio.wait([task])

        a.do(cancelled)
        assert world.names() == ["job"]

    def test_a_decorated_function_is_given_the_lease_if_it_asks_for_it(self, world: World) -> None:
        a = world.actor("a")

        def tell(what: str, lease: Any = None) -> tuple[str, int]:
            return what, lease.token

        async def tell_later(what: str, lease: Any = None) -> tuple[str, int]:
            return what, lease.token

        job = tell_later if world.asynchronous else tell
        decorated = a.do(lambda locks: locks.lock("x")(job))
        assert decorated.__name__ == job.__name__
        assert inspect.iscoroutinefunction(decorated) is world.asynchronous
        what, token = a.do(lambda _: decorated("this"))
        assert what == "this"
        assert token > 0
