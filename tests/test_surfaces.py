"""Threads and asyncio: the same names, the same parameters; what blocks in one is awaited in the other."""

from __future__ import annotations

import inspect
import pydoc
import re
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import aio, sync
from holdfast.testing.conformance.processes import run

CLASSES = ["Locks", "Lock", "LockOr", "Semaphore", "RWLock", "AllOf", "Lease", "Leases", "Election", "Loss"]
# What takes a conversation with the store, or waits: awaited in asyncio. `acquire` is, too, and can be entered as well.
AWAITED = {
    "Locks": {"inspect", "names", "force_release", "wait_graph", "ping", "close"},
    "Lock": {"try_acquire"},
    "LockOr": {"try_acquire"},
    "Semaphore": {"try_acquire"},
    "RWLock": set(),
    "AllOf": {"try_acquire"},
    "Lease": {"release", "renew", "extend", "downgrade"},
    "Leases": {"release"},
    "Election": {"leader", "resign", "watch", "terms", "run"},
    "Loss": {"wait"},
}


def public(cls: type) -> dict[str, Any]:
    return {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}


def words(function: Callable[..., Any]) -> str:
    """What is said of it, without the example, and however the lines are broken."""
    return " ".join((inspect.getdoc(function) or "").partition(">>>")[0].split())


def parameters(function: Callable[..., Any]) -> list[tuple[str, Any, str]]:
    return [(one.name, one.kind, repr(one.default)) for one in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize("name", CLASSES)
def test_both_surfaces_have_the_same_names(name: str) -> None:
    assert public(getattr(sync, name)).keys() == public(getattr(aio, name)).keys()


@pytest.mark.parametrize("name", CLASSES)
def test_both_surfaces_take_the_same_parameters(name: str) -> None:
    theirs = public(getattr(aio, name))
    for method, function in public(getattr(sync, name)).items():
        if callable(function) and not isinstance(function, type):
            assert parameters(function) == parameters(theirs[method]), method


@pytest.mark.parametrize("name", CLASSES)
def test_both_surfaces_say_the_same_of_themselves(name: str) -> None:
    theirs = public(getattr(aio, name))
    for method, function in public(getattr(sync, name)).items():
        if inspect.isfunction(function) and function is not theirs[method]:
            swapped = re.sub(r"\bthread\b", "task", words(function)).replace("`with", "`async with")
            assert swapped == words(theirs[method]), method


@pytest.mark.parametrize("name", CLASSES)
def test_what_takes_a_conversation_is_awaited_and_nothing_else(name: str) -> None:
    awaited = {
        method
        for method, function in public(getattr(aio, name)).items()
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    }
    assert awaited == AWAITED[name]
    assert not any(inspect.iscoroutinefunction(function) for function in public(getattr(sync, name)).values())


def test_both_connect_alike() -> None:
    assert parameters(sync.connect) == parameters(aio.connect)


def hovered() -> Iterator[tuple[str, Any, list[str]]]:
    """Everything that an editor shows a text for, and the parameters that it has to name."""
    for module in (holdfast, aio):
        for name in module.__all__:
            thing = getattr(module, name)
            where = f"{module.__name__}.{name}"
            if not isinstance(thing, type):
                yield where, thing, [] if inspect.ismodule(thing) else named(thing)
                continue
            # What people make themselves, or take apart: a record's fields, an error's arguments. The rest comes from connect().
            made = issubclass(thing, tuple | Exception) and "__init__" in vars(thing)
            yield where, thing, [*getattr(thing, "_fields", ()), *(named(vars(thing)["__init__"]) if made else ())]
            ours = {
                each: one
                for each, one in public(thing).items()
                if not hasattr(tuple, each) and not hasattr(OSError, each)
            }
            for method, one in ours.items():
                if isinstance(one, property):
                    yield f"{where}.{method}", one, []
                elif inspect.isroutine(one) and not hasattr(Coroutine, method):
                    yield f"{where}.{method}", one, named(one)


def named(function: Callable[..., Any]) -> list[str]:
    return [one for one in inspect.signature(function).parameters if one not in {"self", "foreign", "args", "kwargs"}]


@pytest.mark.parametrize(("thing", "parameters"), [pytest.param(*rest, id=where) for where, *rest in hovered()])
def test_whoever_hovers_is_told_of_every_parameter(thing: Any, parameters: list[str]) -> None:
    said = inspect.getdoc(thing) or ""
    assert said
    assert not [one for one in parameters if f"`{one}`" not in said]


def test_whoever_hovers_sees_an_example() -> None:
    """Of what is called on a connection, and of what that returns; test_doctests.py runs them."""
    without = [
        where
        for where, thing, parameters in hovered()
        if parameters and inspect.isfunction(thing) and thing.__module__ in {"holdfast.sync", "holdfast.aio"}
        if ">>>" not in (thing.__doc__ or "")
    ]
    assert not without


def test_help_reads_like_a_page() -> None:
    page = pydoc.plain(pydoc.render_doc(holdfast))
    start = page[: page.index("PACKAGE CONTENTS")]
    assert all(f"locks.{one}" in start for one in ("lock(", "semaphore(", "rwlock(", "all_of(", "election(", "once("))
    assert max(len(line) for line in start.splitlines()) < 140


def test_asyncio_is_not_imported_by_those_who_use_threads() -> None:
    from holdfast.testing.conformance.processes import run

    script = (
        "import sys, holdfast; holdfast.connect('memory://'); print('asyncio' in sys.modules); holdfast.aio.connect"
    )
    assert run(script) == "False"


def test_everything_that_can_be_had_of_a_connection_is_public() -> None:
    for module in (holdfast, aio):
        assert all(hasattr(module, name) for name in module.__all__)
    assert set(CLASSES) <= set(holdfast.__all__) & set(aio.__all__)
    assert "WaitGraph" in holdfast.__all__
    from holdfast import lockfree

    assert not set(lockfree.__all__) & set(holdfast.__all__)
    assert all(getattr(holdfast, name) is getattr(lockfree, name) for name in lockfree.__all__)  # as before


def test_every_object_says_what_it_is_and_none_tells_a_secret() -> None:
    locks = holdfast.connect("redis://ann:hunter2@localhost:6379/0?timeout=3")
    assert repr(locks) == "<Locks redis://ann:***@localhost:6379/0>"
    locks.close()
    assert repr(locks) == "<Locks redis://ann:***@localhost:6379/0, closed>"
    locks = holdfast.connect("memory://shown")
    election = locks.election("e")
    assert [repr(one) for one in (locks, locks.lock("x"), locks.rwlock("x"), locks.all_of("b", "a"), election)] == [
        "<Locks memory://shown>",
        "<Lock 'x'>",
        "<RWLock 'x'>",
        "<AllOf 'a', 'b'>",
        "<Election 'e'>",
    ]
    with locks.lock("x") as lease, election.lead():
        assert repr(lease).startswith(f"<Lease 'x' token={lease.token} held, ")
        assert repr(lease.lost) == "<Loss of 'x': not lost>"
        assert repr(election) == "<Election 'e', led from here>"
        assert repr(locks.wait_graph()) == "<WaitGraph of 2 locks: 0 wait, 0 deadlocks>"


def test_a_missing_package_is_an_import_error_and_says_what_to_install() -> None:
    script = """
import sys, holdfast
sys.modules["hiredis"] = None
try:
    holdfast.connect("redis://localhost")
except ImportError as error:
    print(type(error).__name__, isinstance(error, holdfast.Misuse), "holdfast[redis]" in str(error))
"""
    assert run(script) == "NotInstalled True True"


def test_under_another_loop_than_asyncios_the_error_says_what_to_do() -> None:
    """As trio would: it steps a coroutine while no loop of asyncio runs."""
    lock = aio.connect("memory://").lock("x")
    with pytest.raises(RuntimeError, match="under trio, use"):
        lock.acquire().__await__().send(None)


def test_what_stands_beside_the_locks_says_what_it_is_too(tmp_path: Path) -> None:
    import sqlite3

    from holdfast import fenced
    from holdfast.lockfree import idempotency, journal, mailbox, partition

    locks = holdfast.connect("memory://beside")
    both = locks.rwlock("r")
    db = sqlite3.connect(":memory:", isolation_level=None)
    group = partition.Group(locks, "stock", partitions=4)
    lease = ("x", 7)
    with group.join("w") as worker, mailbox.Mailboxes(lambda key: key) as boxes:
        worker.ready(timeout=10)
        beside: list[object] = [locks.semaphore("s", 3), both.read(), both.write()]
        beside += [journal.Journal(db), idempotency.Keys(db), group, worker, boxes, fenced.Memory[int]()]
        beside += [fenced.File(tmp_path / "f", lease), fenced.aio.File(tmp_path / "f", lease)]
        told = [repr(one) for one in beside]
    db.close()
    assert told == [
        "<Semaphore 's', 3 units>",
        "<Lock 'r', to read>",
        "<Lock 'r', to write>",
        "<Journal by sqlite3.Connection>",
        "<Keys: a run has 30 s, its result is kept for 86400 s>",
        "<Group 'stock', 4 partitions>",
        "<Worker 'w' of 'stock', has 4 of 4 partitions>",
        "<Mailboxes of 0 keys, 0 messages wait>",
        "<Memory of 0 resources>",
        f"<File {str(tmp_path / 'f')!r} under token 7 of 'x'>",
        f"<File {str(tmp_path / 'f')!r} under token 7 of 'x'>",
    ]
