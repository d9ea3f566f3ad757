"""Locks as decorators: names made of arguments, leases that are handed in, calls that are skipped."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import holdfast
from holdfast import Lease, Locks, Misuse, NotAcquired, aio, sync, words
from holdfast.decorating import Unnameable
from holdfast.testing.manual import Manual, connect


class Order:
    def __init__(self, number: int) -> None:
        self.number = number


def test_a_name_is_made_of_the_arguments_of_the_call(locks: Locks) -> None:
    seen: list[list[str]] = []

    @locks.lock("invoice:{invoice_id}:{order.number:03d}:{{literally}}")
    def pay(invoice_id: str, order: Order, *, currency: str = "EUR") -> str:
        seen.append(list(locks.names()))
        return currency

    assert pay("7", Order(5)) == "EUR"
    assert pay(order=Order(6), invoice_id="8", currency="CHF") == "CHF"
    assert seen == [["invoice:7:005:{literally}"], ["invoice:8:006:{literally}"]]


def test_a_default_is_an_argument_like_any_other(locks: Locks) -> None:
    assert locks.lock("day:{day}")(lambda day="monday": list(locks.names()))() == ["day:monday"]


def test_a_call_with_wrong_arguments_takes_no_lock(locks: Locks) -> None:
    told: list[Any] = []
    locks.subscribe(told.append)

    @locks.lock("x:{a}")
    def work(a: int) -> None: ...

    with pytest.raises(TypeError, match="missing a required argument: 'a'"):
        work()  # type: ignore[call-arg]  # what is tested
    assert told == []


def test_a_key_makes_the_name(locks: Locks) -> None:
    @locks.lock(key=lambda first, second: f"pair:{min(first, second)}:{max(first, second)}")
    def both(first: str, second: str) -> list[str]:
        return list(locks.names())

    assert both("b", "a") == both("a", second="b") == ["pair:a:b"]
    with pytest.raises(Misuse, match="must be a str, not int"):
        locks.lock(key=lambda: 5)(lambda: None)()  # type: ignore[arg-type,return-value]  # what is tested


def test_without_a_name_it_is_the_functions_own(locks: Locks) -> None:
    @locks.lock()
    def nightly() -> list[str]:
        return list(locks.names())

    assert nightly() == [f"{__name__}.{nightly.__qualname__}"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("invoice:{invoice}", r"has \{invoice\}, but .*work\(\) has no such parameter \(it has: invoice_id\)"),
        ("invoice:{}", r"has \{\}, but"),
        ("invoice:{0}", r"has \{0\}, but"),
        ("invoice:{lease}", r"has \{lease\}, but"),
        ("invoice:{invoice_id:{width}}", r"has \{width\}, but"),
        ("invoice:{invoice_id", "a literal brace is written twice"),
        ("invoice:}", "a literal brace is written twice"),
    ],
)
def test_a_name_that_cannot_be_filled_in_is_refused_when_decorating(locks: Locks, name: str, why: str) -> None:
    def work(lease: Lease, invoice_id: int) -> None: ...

    with pytest.raises(Misuse, match=why):
        locks.lock(name)(work)


def test_a_name_with_braces_is_literal_where_there_are_no_arguments_and_that_is_told(locks: Locks) -> None:
    lock = locks.lock("invoice:{id}")
    with pytest.warns(UserWarning, match="is taken as it is") as told, lock as lease:
        assert lease.name == "invoice:{id}"
    with pytest.warns(UserWarning, match="f-string") as more:
        taken = lock.try_acquire()
    assert taken is not None
    assert [one.filename for one in [*told, *more]] == [__file__] * 2, "it is told of the line that took it"


def test_a_template_is_told_of_in_asyncio_too() -> None:
    async def take(lock: aio.Lock) -> None:
        async with lock:
            pass

    async def main() -> None:
        async with aio.connect("memory://") as locks:
            with pytest.warns(UserWarning, match="taken as it is") as told:
                await take(locks.lock("invoice:{order.id}"))
            assert [one.filename for one in told] == [__file__]

    asyncio.run(main())


@pytest.mark.parametrize("name", ["{", "}", "{}", "{7}", "{user:42}:cart", "{{id}}", "{a b}"])
def test_braces_that_are_no_template_are_taken_without_a_word(locks: Locks, name: str) -> None:
    with locks.lock(name) as lease:
        assert lease.name == name


def test_a_name_made_of_arguments_is_checked_like_any_other(locks: Locks) -> None:
    @locks.lock("{x}")
    def itself(x: str) -> None: ...

    with pytest.raises(Misuse, match="must not be empty"):
        itself("")
    with pytest.raises(Misuse, match="this one has 513"):
        itself("a" * 513)


def test_a_lease_that_comes_first_is_no_parameter_of_the_result(locks: Locks) -> None:
    @locks.lock("x:{number}")
    def first(lease: Lease, number: int) -> tuple[bool, int]:
        return lease.held, number

    @locks.lock("x")
    def by_name(number: int, *, lease: Lease | None = None) -> bool:
        return lease is not None and lease.held

    assert first(5) == (True, 5)
    assert by_name(5)
    assert list(inspect.signature(first).parameters) == ["number"]
    assert list(inspect.signature(by_name).parameters) == ["number"]


def test_a_method_can_be_decorated(locks: Locks) -> None:
    class Shop:
        @locks.lock("shop:{number}")
        def sell(self, number: int) -> list[str]:
            return list(locks.names())

    assert Shop().sell(3) == ["shop:3"]


def test_a_skipped_call_is_told_as_an_event_and_in_the_log(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as here:
        told: list[holdfast.Event] = []
        here.subscribe(told.append, ["skipped"])

        @here.once("report:{day}")
        def report(day: str) -> str:
            again = report(day)
            assert again is None
            return day

        assert report("monday") == "monday"
        (event,) = told
        assert (event.kind, event.name) == ("skipped", "report:monday")
        assert "report() did not run: could not get 'report:monday' at once: held by" in event.detail
    (line,) = [record for record in caplog.records if record.name == "holdfast"]
    assert line.levelno == logging.INFO
    assert "skipped 'report:monday'" in line.message


def test_a_skipped_call_is_told_from_one_that_returned_nothing(driver: Manual, locks: Locks) -> None:
    def busy(error: NotAcquired) -> str:
        return f"{error.name} is taken"

    other = connect(driver)
    with other.lock("x"):
        assert locks.lock("x", timeout=0, otherwise=busy)(lambda: None)() == "x is taken"
        assert locks.once("x", otherwise=busy)(lambda: None)() == "x is taken"
        with pytest.raises(NotAcquired):
            locks.once("x", otherwise="raise")(lambda: None)()
    assert locks.lock("x", timeout=0, otherwise=busy)(lambda: 5)() == 5


def test_what_skips_cannot_be_entered_but_tried(driver: Manual, locks: Locks) -> None:
    skipping = locks.lock("x", otherwise="skip")
    with pytest.raises(Misuse, match="the body of a `with` cannot be skipped"), skipping:
        pass
    lease = skipping.try_acquire()
    assert lease is not None
    assert lease.release()
    with locks.once("x") as lease, pytest.raises(NotAcquired):
        locks.once("x").acquire()


def test_an_error_of_the_body_is_not_taken_for_a_skipped_call(driver: Manual, locks: Locks) -> None:
    """Elsewhere in the body another lock may not be had: that is the body's affair."""
    other = connect(driver)

    @locks.once("x")
    def body() -> None:
        locks.lock("y", timeout=0).acquire()

    with other.lock("y"), pytest.raises(NotAcquired, match="'y'"):
        body()


def test_tasks_have_the_same_decorators() -> None:
    async def main() -> None:
        async with aio.connect("memory://decorated") as locks:

            @locks.lock("invoice:{number}")
            async def pay(lease: aio.Lease, number: int) -> str:
                return f"{lease.name} {number}"

            @locks.once("job:{number}")
            async def job(number: int) -> list[str]:
                assert await job(number) is None
                return list(await locks.names())

            assert await pay(7) == "invoice:7 7"
            assert await job(8) == ["job:8"]
            with pytest.raises(Misuse, match="for decorators"):
                await locks.lock("x", otherwise="skip").acquire()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("attribute", "hint"),
    [
        ("release", r"lease\.release\(\)"),
        ("locked", "inspect"),
        ("owned", r"lease\.held"),
        ("extend", r"lease\.extend"),
    ],
)
def test_what_other_libraries_ask_of_a_lock_is_answered_with_our_word(locks: Locks, attribute: str, hint: str) -> None:
    lock = locks.lock("x")
    assert not hasattr(lock, attribute)
    with pytest.raises(AttributeError, match=f"'Lock' object has no attribute '{attribute}'; .*{hint}"):
        getattr(lock, attribute)
    with pytest.raises(AttributeError, match=r"'Lock' object has no attribute 'nonsense'$"):
        lock.nonsense  # type: ignore[attr-defined]  # noqa: B018  # what is tested


def test_an_argument_that_nobody_knows_is_a_type_error_as_ever(locks: Locks) -> None:
    with pytest.raises(TypeError, match=r"lock\(\) got an unexpected keyword argument 'nonsense'"):
        locks.lock("x", nonsense=5)  # type: ignore[call-overload]  # what is tested
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'tll': did you mean 'ttl'\?"):
        locks.lock("x", tll=5)  # type: ignore[call-overload]  # what is tested


def test_an_argument_of_ours_that_another_call_takes_is_told_where_it_goes(locks: Locks) -> None:
    """And never answered with "did you mean 'ttl'?", which is what was written."""
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: holdfast.connect("memory://", timeout=3), "timeout"),  # type: ignore[arg-type]  # what is tested
        (lambda: locks.lock("x", units=2), "units"),  # type: ignore[call-overload]
        (lambda: locks.lock("x").acquire(units=2), "units"),  # type: ignore[arg-type]
        (lambda: locks.once("x", ttl=2), "ttl"),  # type: ignore[call-overload]
        (lambda: locks.all_of("x", label="me"), "label"),  # type: ignore[arg-type]
    ]
    for call, word in wrong:
        with pytest.raises(Misuse, match=rf"\(\) takes no `{word}=`; that is for {re.escape(words.OURS[word][0])}"):
            call()
    with pytest.raises(Misuse, match=r"all_of\(\) takes no `blocking=`; here that is `timeout=`"):
        locks.all_of("x", blocking=False)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=r"election\(\) takes no `expire=`; here that is `ttl=`"):
        locks.election("x", expire=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"argument 'at_lest'$"):  # which lock() does not take in any spelling
        locks.lock("x", at_lest=5)  # type: ignore[call-overload]


def test_what_is_said_of_our_arguments_is_what_the_calls_take() -> None:
    calls = {
        f"{one}()": getattr(sync.Locks, one) for one in ("lock", "semaphore", "rwlock", "all_of", "election", "once")
    }
    calls |= {"connect()": holdfast.connect, "acquire()": sync.Lock.acquire}
    calls |= {"acquire() of a semaphore": sync.Semaphore.acquire}
    told = {(word, call) for word, some in words.OURS.items() for call in some}
    taken = {
        (parameter, call)
        for call, function in calls.items()
        for parameter in inspect.signature(function).parameters
        if parameter not in {"self", "name", "names", "url", "foreign"}
    }
    assert told == taken - {("timeout", "acquire() of a semaphore"), ("cancel", "acquire() of a semaphore")}


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (lambda _: holdfast.lock("x"), r"locks\.lock\("),
        (lambda locks: locks.acquire("x"), r"locks\.lock\(name\)"),
        (lambda locks: locks.rwlock("x").acquire(), r"rwlock\.read\(\)"),
        (lambda locks: locks.election("x").acquire(), r"election\.lead\(\)"),
    ],
)
def test_what_is_looked_for_in_the_wrong_place_is_told_where_it_is(
    locks: Locks, ask: Callable[[Any], Any], hint: str
) -> None:
    with pytest.raises(AttributeError, match=hint) as found:
        ask(locks)
    assert "Did you mean" not in "".join(traceback.format_exception(found.value))


@pytest.mark.parametrize("there", [holdfast.connect, aio.connect])
def test_what_has_sides_is_not_entered_itself(there: Callable[[str], Any]) -> None:
    opened = there("memory://sides")
    for thing, hint in [
        (opened.rwlock("x"), r"enter `rwlock\.read\(\)`"),
        (opened.election("x"), r"enter `election\.lead"),
    ]:
        assert not hasattr(thing, "__enter__")
        assert not hasattr(thing, "__aenter__")
        with pytest.raises(TypeError, match=hint), thing:
            pass


def test_names_in_a_list_are_told_how_to_be_given(locks: Locks) -> None:
    with pytest.raises(Misuse, match=r"all_of\(\*names\)"):
        locks.all_of(["a", "b"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "arguments"), [("Lock", ("x",)), ("Lock", ("x", 10)), ("Semaphore", ("x", 4))])
@pytest.mark.parametrize("there", [sync, aio])
def test_a_class_that_is_called_says_what_makes_its_objects(there: Any, kind: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(Misuse, match=r"`locks = holdfast\.connect\(\)`, then `locks\."):
        getattr(there, kind)(*arguments)


def test_what_is_asked_of_a_lease_that_was_not_awaited_says_so() -> None:
    async def main() -> None:
        async with aio.connect("memory://not-awaited") as there:
            asked = there.lock("x").acquire()
            with pytest.raises(AttributeError, match=r"'Acquiring' object has no attribute 'token'; `await` it first"):
                asked.token  # type: ignore[attr-defined]  # noqa: B018  # what is tested
            with pytest.raises(AttributeError, match=r"'Acquiring' object has no attribute 'nonsense'$"):
                asked.nonsense  # type: ignore[attr-defined]  # noqa: B018  # what is tested
            assert not hasattr(asked, "check")
            async with asked as lease:
                assert lease.held

    asyncio.run(main())


SOURCE = Path(holdfast.__file__).parents[1]
TYPES = """
from typing import assert_type
from holdfast import Lease, Locks, NotAcquired, aio

def sync(locks: Locks) -> None:
    @locks.lock("x")
    def plain(a: int, *, b: str = "") -> float:
        return 1.0

    assert_type(plain(1, b="x"), float)

    @locks.lock("x:{a}")
    def given(lease: Lease, a: int) -> float:
        return 1.0

    assert_type(given(1), float)

    @locks.lock("x", otherwise="skip")
    def skips(a: int) -> float:
        return 1.0

    assert_type(skips(1), float | None)

    @locks.once("x")
    def once(a: int) -> float:
        return 1.0

    assert_type(once(1), float | None)

    @locks.once("x", otherwise="raise")
    def raises(a: int) -> float:
        return 1.0

    assert_type(raises(1), float)

    def instead(error: NotAcquired) -> bytes:
        return b""

    @locks.semaphore("x", 4, otherwise=instead)
    def other(a: int) -> float:
        return 1.0

    assert_type(other(1), float | bytes)

    @locks.rwlock("x").read()
    def reads(a: int) -> float:
        return 1.0

    assert_type(reads(1), float)

    class Shop:
        @locks.lock("shop:{a}")
        def sell(self, a: int) -> float:
            return 1.0

    assert_type(Shop().sell(1), float)

async def tasks(locks: aio.Locks) -> None:
    @locks.lock("x:{a}")
    async def given(lease: aio.Lease, a: int) -> float:
        return 1.0

    assert_type(await given(1), float)

    @locks.once("x")
    async def once(a: int) -> float:
        return 1.0

    assert_type(await once(1), float | None)
"""
WRONG = {
    "plain('text')": "an argument of another type",
    "given(1, 2)": "a lease is not passed",
    "skips(1) + 1": "None is not to be forgotten",
    'locks.lock("x", blocking=False)': "another library's word",
    'locks.lock("x").release()': "another library's method",
}


def check(command: list[str], tmp_path: Path, code: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "user.py").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", *command, "user.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )


@pytest.mark.parametrize(
    "command", [["mypy", "--strict"], ["basedpyright", "--level", "error"]], ids=lambda c: str(c[0])
)
def test_the_types_of_what_is_decorated_are_kept(command: list[str], tmp_path: Path) -> None:
    pytest.importorskip(command[0])  # only `make unit` has them; other versions of Python see the same types
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.basedpyright]\ntypeCheckingMode = "strict"\nextraPaths = ["{SOURCE}"]\n'
    )
    right = check(command, tmp_path, TYPES)
    assert right.returncode == 0, right.stdout
    lines = "".join(f"    {wrong}\n" for wrong in WRONG)
    code = TYPES.replace("    class Shop:", f"{lines}    class Shop:")
    found = check(command, tmp_path, code)
    at = 1 + code[: code.index("    plain('text')")].count("\n")
    missed = [what for number, what in enumerate(WRONG.values(), at) if f"user.py:{number}:" not in found.stdout]
    assert not missed, found.stdout


def test_what_cannot_be_decorated_is_told_what_to_write(locks: Locks) -> None:
    def work(_: Any) -> None: ...

    kinds: list[Any] = [classmethod, staticmethod, property]
    for kind in kinds:  # the method would be called without its class
        with pytest.raises(Misuse, match=f"write @{kind.__name__} above the lock, and the lock next to `def`"):
            locks.lock("x")(kind(work))
    with pytest.raises(Misuse, match="is a class: decorate its methods"):
        locks.lock("x")(Order)
    decorators: list[Any] = [locks.lock, locks.once]
    for decorator in decorators:
        with pytest.raises(Misuse, match=r"a decorator without one has parentheses, as in @locks\.lock\(\)"):
            decorator(work)


@pytest.mark.parametrize(
    ("template", "given", "says"),
    [
        ("x:{a:{b}}", ("x", "2000000000"), "no name is as long"),
        ("x:{a:{b}}", (5, "02000000000d"), "no name is as long"),
        pytest.param("x:{a:>{b}}", (5, 1000), "no name is as long", id="wide"),
        ("x:{a:{b}}", (1.5, ".999999f"), "no name is as long"),
        ("x:{a:{b}}", (5, "no such format"), "cannot be filled in"),
        ("x:{a:03d}{b}", ("seven", 1), "cannot be filled in"),
        ("x:{a}{b}", (10**5000, 1), "cannot be filled in"),
    ],
)
def test_what_makes_no_name_is_refused_as_that_and_makes_no_long_text(
    locks: Locks, template: str, given: tuple[float | str, int | str], says: str
) -> None:
    """In a service, a stranger may have sent it: that is a 400, and not a gigabyte."""

    @locks.lock(template)
    def run(a: float | str, b: int | str) -> None:
        raise AssertionError("there is no such lock")

    with pytest.raises(Unnameable, match=says):
        run(*given)


def test_a_width_that_is_an_argument_is_filled_in(locks: Locks) -> None:
    @locks.lock("x:{a:{width}d}:{b!r}")
    def run(a: int, b: str, width: str = "03") -> list[str]:
        return list(locks.names())

    assert run(7, "y") == ["x:007:'y'"]
    assert run(7, "y", width="4") == ["x:   7:'y'"]


@pytest.mark.parametrize("how", ["apply_async", "delay", "send_with_options"])
def test_what_is_a_task_already_is_refused(locks: Locks, how: str) -> None:
    """Its workers would run what is below the lock. So do Celery, RQ and Dramatiq mark it."""

    def task() -> None: ...

    setattr(task, how, lambda: None)
    with pytest.raises(Misuse, match="is a task already"):
        locks.lock("x")(task)
    assert locks.lock("x")(Mock(return_value=3, __name__="mock", __qualname__="mock"))() == 3
