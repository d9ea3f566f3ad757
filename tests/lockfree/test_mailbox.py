"""Mailboxes in one process: the same promises in threads and in asyncio."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import Conflict, GaveUp, MailboxFull, Misuse
from holdfast.lockfree import journal, mailbox

from .conftest import Blocking

Make = Callable[..., Any]


@pytest.fixture(params=["threads", "asyncio"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Any] = []
    with asyncio.Runner() as runner:

        def build(actor: Callable[[str], Any], **options: Any) -> Any:
            if request.param == "threads":
                boxes: Any = mailbox.Mailboxes(actor, **options)
            else:
                boxes = Blocking(runner, mailbox.aio.Mailboxes(actor, **options))
            made.append(boxes)
            return boxes

        yield build
        for boxes in made:
            boxes.close(timeout=5)


class Counter:
    """Counts what it is given. "fail" makes it fail, "stop" makes it wait for `go`."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.total = 0

    def receive(self, message: Any) -> Any:
        if message == "fail":
            raise RuntimeError(f"{self.key} could not")
        if callable(message):
            return message()
        self.total += message
        return self.total


def test_each_key_has_an_actor_of_its_own_that_answers(make: Make) -> None:
    counters = make(Counter)
    assert [counters.ask("a", 1), counters.ask("a", 2), counters.ask("b", 5)] == [1, 3, 5]
    counters.tell("a", 10)
    assert counters.ask("a", 0) == 13  # in the order in which they were sent


def test_a_failure_is_told_to_the_asker_and_the_actor_begins_anew(make: Make) -> None:
    failures: list[tuple[str, Any, str]] = []
    counters = make(Counter, on_failure=lambda key, message, error: failures.append((key, message, str(error))))
    counters.ask("a", 7)
    with pytest.raises(RuntimeError, match="a could not"):
        counters.ask("a", "fail")
    assert counters.ask("a", 1) == 1
    assert failures == [("a", "fail", "a could not")]


def test_after_too_many_failures_the_key_is_given_up_and_nothing_told_is_lost(make: Make) -> None:
    counters = make(Counter, restarts=2, on_failure=lambda *_: None)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            counters.ask("a", "fail")
    with pytest.raises(GaveUp, match=r"failed 3 times within 60 s, .*RuntimeError: a could not"):
        counters.ask("a", 1)
    with pytest.raises(GaveUp):
        counters.tell("a", 1)
    assert counters.ask("b", 1) == 1  # others do not suffer
    assert counters.revive("a") is True
    assert counters.revive("a") is False
    assert counters.ask("a", 4) == 4


def test_failures_long_ago_do_not_count(make: Make) -> None:
    counters = make(Counter, restarts=1, within=0.05, on_failure=lambda *_: None)
    for _ in range(4):
        with pytest.raises(RuntimeError):
            counters.ask("a", "fail")
        time.sleep(0.06)
    assert counters.ask("a", 1) == 1


def test_a_callback_that_fails_breaks_nothing(make: Make) -> None:
    def on_failure(*_: object) -> None:
        raise ZeroDivisionError

    counters = make(Counter, on_failure=on_failure)
    with pytest.raises(RuntimeError):
        counters.ask("a", "fail")
    assert counters.ask("a", 1) == 1


def test_what_is_forgotten_begins_anew(make: Make) -> None:
    counters = make(Counter)
    counters.ask("a", 5)
    assert counters.waiting("a") == 0
    give_up = time.monotonic() + 10
    while not counters.forget("a"):  # its thread may still be putting its things away
        assert time.monotonic() < give_up
    assert counters.forget("a") is False
    assert counters.ask("a", 1) == 1


def test_after_close_nothing_is_taken(make: Make) -> None:
    counters = make(Counter)
    counters.tell("a", 1)
    assert counters.close() == 0
    with pytest.raises(Misuse, match="closed"):
        counters.tell("a", 1)


@pytest.mark.parametrize(
    "options",
    [
        {"capacity": 0},
        {"capacity": 1.5},
        {"restarts": -1},
        {"within": 0},
        {"within": -1},
        {"most_keys": 0},
        {"journal": object(), "snapshot_every": 0},
    ],
)
def test_options_that_make_no_sense_are_refused(make: Make, options: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        make(Counter, **options)


def test_other_misuse_is_refused(make: Make) -> None:
    with pytest.raises(Misuse, match="callable"):
        make("Counter")
    counters = make(Counter)
    for key in ("", 5, "x" * 600):
        with pytest.raises(Misuse, match="key"):
            counters.tell(key, 1)
    with pytest.raises(Misuse):
        counters.ask("a", 1, timeout=-1)


def test_too_many_keys_are_refused_rather_than_kept_for_ever(make: Make) -> None:
    counters = make(Counter, most_keys=2)
    counters.ask("a", 1)
    counters.ask("b", 1)
    with pytest.raises(MailboxFull, match="most_keys"):
        counters.ask("c", 1)
    assert counters.ask("a", 1) == 2


def test_recording_without_a_journal_is_said(make: Make) -> None:
    class Wrong(Counter):
        def receive(self, message: Any) -> Any:
            return mailbox.Record("event")

    with pytest.raises(Misuse, match="there is no journal"):
        make(Wrong, on_failure=lambda *_: None).ask("a", 1)


# ---- with a journal


class Account:
    """Decides in `receive`, changes in `apply`."""

    made = 0

    def __init__(self, key: str) -> None:
        type(self).made += 1
        self.balance = 0

    def receive(self, cents: int) -> Any:
        if self.balance + cents < 0:
            return "refused"
        return mailbox.Record(cents, reply=self.balance + cents)

    def apply(self, cents: int) -> None:
        self.balance += cents

    def snapshot(self) -> int:
        return self.balance

    def restore(self, balance: int) -> None:
        self.balance = balance


@pytest.fixture
def events(request: pytest.FixtureRequest, make: Make, tmp_path: Path) -> Iterator[Any]:
    """A journal for the surface that `make` makes mailboxes of; and beside it, what is written by others."""
    path = tmp_path / "journal.db"
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    journal.Journal(connection).create_table()
    if "asyncio" in request.node.name:
        import aiosqlite

        runner = make(Counter)._runner
        other = runner.run(_opened(aiosqlite.connect(path, isolation_level=None)))
        yield journal.aio.Journal(other), journal.Journal(connection)
        runner.run(other.close())
    else:
        mine = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        yield journal.Journal(mine), journal.Journal(connection)
        mine.close()
    connection.close()


async def _opened(connecting: Any) -> Any:
    return await connecting


def test_the_state_is_in_the_journal_and_outlives_the_actor(make: Make, events: Any) -> None:
    accounts = make(Account, journal=events[0], prefix="account:")
    assert [accounts.ask("alice", 10), accounts.ask("alice", -30), accounts.ask("alice", 5)] == [10, "refused", 15]
    assert [one.data for one in events[1].read("account:alice")] == [10, 5]
    again = make(Account, journal=events[0], prefix="account:")
    assert again.ask("alice", 1) == 16


def test_an_actor_that_was_overtaken_catches_up_and_decides_again(make: Make, events: Any) -> None:
    accounts = make(Account, journal=events[0])
    accounts.ask("alice", 10)
    events[1].append("alice", -8, expected=1)  # by another owner, who has not seen ours
    assert accounts.ask("alice", -5) == "refused"
    assert accounts.ask("alice", -2) == 0
    assert events[1].replay("alice", lambda total, one: total + one, 0) == (0, 3)


def test_the_naive_actor_overdraws_where_the_journal_would_have_told(make: Make, events: Any) -> None:
    """The same story without the expected version: what was decided on old state is written all the same."""
    events[1].append("alice", 10, expected=0)
    balance, _ = events[1].replay("alice", lambda total, one: total + one, 0)
    events[1].append("alice", -8, expected=1)
    if balance - 5 >= 0:
        events[1].append("alice", -5, expected=None)
    assert events[1].replay("alice", lambda total, one: total + one, 0).state == -3
    with pytest.raises(Conflict):
        events[1].append("alice", -5, expected=1)


def test_a_failure_leaves_the_journal_and_the_next_actor_reads_it(make: Make, events: Any) -> None:
    class Fragile(Account):
        def receive(self, cents: int) -> Any:
            if cents == 13:
                raise RuntimeError("unlucky")
            return super().receive(cents)

    accounts = make(Fragile, journal=events[0], on_failure=lambda *_: None)
    accounts.ask("alice", 10)
    with pytest.raises(RuntimeError):
        accounts.ask("alice", 13)
    assert accounts.ask("alice", 1) == 11


def test_a_bad_event_is_refused_and_nothing_is_lost(make: Make, events: Any) -> None:
    class Odd(Account):
        def receive(self, message: Any) -> Any:
            return mailbox.Record(object()) if message == "odd" else super().receive(message)

    accounts = make(Odd, journal=events[0], on_failure=lambda *_: None)
    accounts.ask("alice", 10)
    with pytest.raises(Misuse, match="cannot be written down"):
        accounts.ask("alice", "odd")
    assert accounts.ask("alice", 1) == 11


def test_snapshots_are_taken_and_used(make: Make, events: Any) -> None:
    accounts = make(Account, journal=events[0], snapshot_every=10)
    for _ in range(25):
        accounts.ask("alice", 1)
    applied: list[int] = []

    def note(total: int, one: int) -> int:
        applied.append(one)
        return total

    events[1].replay("alice", note, 0)
    assert len(applied) == 5
    assert make(Account, journal=events[0]).ask("alice", 1) == 26


def test_idle_actors_with_a_journal_make_room_for_others(make: Make, events: Any) -> None:
    accounts = make(Account, journal=events[0], most_keys=3)
    give_up = time.monotonic() + 20
    for number in itertools.count():
        try:
            accounts.ask(f"key{number % 10}", 1)
        except MailboxFull:  # all three threads are still putting their things away
            assert time.monotonic() < give_up
            continue
        if number >= 30:
            break
    assert events[1].version("key3") >= 3


# ---- in threads


def send(boxes: mailbox.Mailboxes, keys: str, messages: list[Any]) -> None:
    for number, message in enumerate(messages):
        boxes.tell(keys[number % len(keys)], message)


def hold(began: threading.Event, go: threading.Event) -> None:
    began.set()
    go.wait(20)


def test_threads_one_message_at_a_time_for_a_key_and_many_keys_at_once() -> None:
    inside: dict[str, int] = {}
    worst: dict[str, int] = {}
    together = threading.Barrier(3, timeout=20)

    class Watched:
        def __init__(self, key: str) -> None:
            self.key = key

        def receive(self, meet: bool) -> None:
            inside[self.key] = inside.get(self.key, 0) + 1
            worst[self.key] = max(worst.get(self.key, 0), inside[self.key])
            if meet:
                together.wait()  # passes only if three keys are handled at once
            inside[self.key] -= 1

    with mailbox.Mailboxes(Watched, threads=3) as boxes:
        for key in "abc":
            boxes.tell(key, True)
        senders = [threading.Thread(target=send, args=(boxes, "abc", [False] * 300)) for _ in range(4)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(30)
        assert boxes.close() == 0
    assert worst == {"a": 1, "b": 1, "c": 1}


def test_threads_the_order_of_each_sender_is_kept() -> None:
    seen: list[tuple[int, int]] = []

    class Log:
        def __init__(self, key: str) -> None: ...

        def receive(self, message: tuple[int, int]) -> None:
            seen.append(message)

    with mailbox.Mailboxes(Log, capacity=5) as boxes:  # so small that senders often wait for room
        senders = [threading.Thread(target=send, args=(boxes, "x", [(me, n) for n in range(200)])) for me in range(4)]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(30)
    assert len(seen) == 800
    for me in range(4):
        assert [n for who, n in seen if who == me] == list(range(200))


@pytest.fixture
def held() -> Iterator[tuple[threading.Event, threading.Event]]:
    """(it has begun, let it go on)"""
    began, go = threading.Event(), threading.Event()
    yield began, go
    go.set()


def test_threads_a_full_mailbox_refuses_in_time(held: tuple[threading.Event, threading.Event]) -> None:
    began, go = held
    with mailbox.Mailboxes(Counter, capacity=2) as boxes:
        boxes.tell("a", partial(hold, began, go))
        assert began.wait(20)
        boxes.tell("a", 1)
        boxes.tell("a", 2)
        with pytest.raises(MailboxFull, match="2 messages wait"):
            boxes.tell("a", 4, timeout=0)
        with pytest.raises(MailboxFull, match=r"full for 0.05 s"):
            boxes.tell("a", 4, timeout=0.05)
        boxes.tell("b", 1)
        go.set()
        assert boxes.ask("a", 0) == 3


def test_threads_an_ask_that_runs_out_of_time_says_whether_it_was_begun(
    held: tuple[threading.Event, threading.Event],
) -> None:
    began, go = held
    with mailbox.Mailboxes(Counter) as boxes:
        with pytest.raises(TimeoutError, match="may finish it"):
            boxes.ask("a", partial(hold, began, go), timeout=0.1)
        assert began.is_set()
        with pytest.raises(TimeoutError, match="will not be handled"):
            boxes.ask("a", 100, timeout=0.05)
        go.set()
        assert boxes.ask("a", 1) == 1


def test_threads_actors_that_ask_each_other_do_not_run_out_of_threads() -> None:
    class Chain:
        def __init__(self, key: str) -> None:
            self.number = int(key)

        def receive(self, _: None) -> int:
            return 1 + (boxes.ask(str(self.number + 1), None) if self.number < 20 else 0)

    with mailbox.Mailboxes(Chain, threads=2) as boxes:
        assert boxes.ask("0", None, timeout=20) == 21


def test_threads_an_actor_that_asks_itself_is_told_at_once() -> None:
    class Vain:
        def __init__(self, key: str) -> None:
            self.key = key

        def receive(self, path: list[str]) -> Any:
            return boxes.ask(path[0], path[1:]) if path else "reached"

    with mailbox.Mailboxes(Vain, on_failure=lambda *_: None) as boxes:
        with pytest.raises(Misuse, match="'a' asks 'a': it would wait for itself for ever"):
            boxes.ask("a", ["a"])
        with pytest.raises(Misuse, match="'a' asks 'b' asks 'c' asks 'a'"):
            boxes.ask("a", ["b", "c", "a"])
        assert boxes.ask("a", ["b", "c"]) == "reached"


def test_threads_an_actor_may_tell_itself_but_not_wait_for_its_own_room() -> None:
    class Busy:
        def __init__(self, key: str) -> None: ...

        def receive(self, count: int) -> None:
            for _ in range(count):
                boxes.tell("a", 0)

    with mailbox.Mailboxes(Busy, capacity=3, on_failure=lambda *_: None) as boxes:
        boxes.ask("a", 3)
        with pytest.raises(MailboxFull):
            boxes.ask("a", 4, timeout=20)


def test_threads_a_receive_that_is_a_coroutine_belongs_to_asyncio() -> None:
    class Wrong:
        def __init__(self, key: str) -> None: ...

        async def receive(self, _: None) -> None:
            await asyncio.sleep(0)

    with mailbox.Mailboxes(Wrong, on_failure=lambda *_: None) as boxes, pytest.raises(RuntimeError):
        boxes.ask("a", None)


def test_threads_what_was_told_to_a_failing_actor_waits_for_its_revival(
    held: tuple[threading.Event, threading.Event],
) -> None:
    began, go = held
    with mailbox.Mailboxes(Counter, restarts=0, on_failure=lambda *_: None) as boxes:
        boxes.tell("a", partial(hold, began, go))
        assert began.wait(20)
        boxes.tell("a", "fail")
        boxes.tell("a", 5)
        asked = threading.Thread(target=lambda: errors.append(_error(lambda: boxes.ask("a", 1))))
        errors: list[Any] = []
        asked.start()
        while boxes.waiting("a") < 3:
            time.sleep(0.001)
        go.set()
        asked.join(20)
        assert isinstance(errors[0], GaveUp)
        assert boxes.waiting("a") == 1
        boxes.revive("a")
        assert boxes.ask("a", 1) == 6


def _error(work: Callable[[], Any]) -> BaseException | None:
    try:
        work()
    except BaseException as error:
        return error
    return None


# ---- in asyncio


def test_asyncio_one_message_at_a_time_though_it_waits_in_between() -> None:
    inside = 0
    worst = 0

    class Slow:
        def __init__(self, key: str) -> None:
            self.key = key

        async def receive(self, number: int) -> int:
            nonlocal inside, worst
            inside += self.key == "a"
            worst = max(worst, inside)
            await asyncio.sleep(0.001)
            inside -= self.key == "a"
            return number

    async def main() -> list[int]:
        async with mailbox.aio.Mailboxes(Slow) as boxes:
            return list(await asyncio.gather(*(boxes.ask("a", number) for number in range(20))))

    assert asyncio.run(main()) == list(range(20))
    assert worst == 1


def test_asyncio_full_timeouts_cancellation_and_recursion() -> None:
    async def main() -> None:
        go = asyncio.Event()

        class Actor:
            def __init__(self, key: str) -> None:
                self.key = key
                self.total = 0

            async def receive(self, message: Any) -> Any:
                if message == "wait":
                    await go.wait()
                elif message == "recurse":
                    await boxes.ask(self.key, "wait")
                else:
                    self.total += message
                return self.total

        async with mailbox.aio.Mailboxes(Actor, capacity=2, on_failure=lambda *_: None) as boxes:
            with pytest.raises(Misuse, match="it would wait for itself"):
                await boxes.ask("v", "recurse")
            with pytest.raises(TimeoutError, match="may finish it"):
                await boxes.ask("a", "wait", timeout=0.02)
            with pytest.raises(TimeoutError, match="will not be handled"):
                await boxes.ask("a", 100, timeout=0.02)
            leaving = asyncio.ensure_future(boxes.ask("a", 1000))
            await asyncio.sleep(0)
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
            await boxes.tell("a", 1)
            with pytest.raises(MailboxFull):
                await boxes.tell("a", 2, timeout=0)
            with pytest.raises(MailboxFull, match=r"full for 0.02 s"):
                await boxes.tell("a", 2, timeout=0.02)
            waiting = asyncio.ensure_future(boxes.tell("a", 2))
            await asyncio.sleep(0)
            go.set()
            await waiting
            assert await boxes.ask("a", 0) == 3

    asyncio.run(main())


def test_both_surfaces_have_the_same_names_and_parameters() -> None:
    import inspect

    theirs, ours = mailbox.aio.Mailboxes, mailbox.Mailboxes
    names = {name for name in dir(ours) if not name.startswith("_")}
    assert names == {name for name in dir(theirs) if not name.startswith("_")}
    for name in names:
        assert inspect.signature(getattr(ours, name)).parameters == inspect.signature(getattr(theirs, name)).parameters
        assert getattr(ours, name).__doc__ == getattr(theirs, name).__doc__
