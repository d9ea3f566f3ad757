"""`holdfast top`, driven by Textual's pilot over real stores; and its rows, which are pure."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast

pytest.importorskip("textual", reason="top needs textual: pip install 'holdfast[top]'")

from textual.pilot import Pilot
from textual.widgets import Input

from holdfast.cli.terminal import cut
from holdfast.cli.top import rows
from holdfast.cli.top.app import Top
from holdfast.cli.top.listing import Listing
from holdfast.cli.top.one import Evict, One
from holdfast.dashboard.board import Board
from holdfast.dashboard.history import History
from holdfast.dashboard.looking import Looking, named

PATIENCE = 30.0
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
STRANGE = "evil\x1b[31m\x07[bold red]name[/]\n日本"


class Seat:
    """Somebody who sits before it."""

    def __init__(self, app: Top, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot

    def listing(self) -> Listing:
        return self.app.screen_stack[0].query_one(Listing)

    def names(self) -> list[str]:
        return [one["name"] for one in self.listing().rows]

    def screen(self) -> str:
        """All that is on the screen, as text; spaces and ends of lines are one space."""
        return " ".join(" ".join(self.lines()).split())

    def lines(self) -> list[str]:
        return ["".join(part.text for part in strip) for strip in self.app.screen._compositor.render_strips()]

    async def until(self, condition: Callable[[], object], what: str) -> None:
        give_up = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < give_up, f"not within {PATIENCE:g} s: {what}\n{self.screen()}"
            await self.pilot.pause(0.02)

    async def shows(self, text: str) -> None:
        await self.until(lambda: text in self.screen(), f"{text!r} on the screen")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def type(self, text: str) -> None:
        for letter in text:
            await self.pilot.press(letter)


@asynccontextmanager
async def sitting(*urls: str, size: tuple[int, int] = (100, 30), interval: float = 0.05) -> AsyncIterator[Seat]:
    board, history = Board(), History()
    looking = {
        store: Looking(store, url, board, history, interval, label="holdfast top") for store, url in named([*urls])
    }
    app = Top(board, history, looking)
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Seat(app, pilot)
    finally:
        for one in looking.values():
            await asyncio.to_thread(one.close)


def draw(seat: Seat) -> None:
    """With HOLDFAST_PICTURES=1, what it looks like goes into the documentation; without the fonts of somebody else's server."""
    if os.environ.get("HOLDFAST_PICTURES"):
        picture = re.sub(r"@font-face \{.*?\}", "", seat.app.export_screenshot(), flags=re.DOTALL)
        where = re.compile(r'textLength="[0-9.]+"([^>]*>sqlite[^<]*)sqlite:[^<]*?locks\.db')
        (PICTURES / "top.svg").write_text(where.sub(r"\1sqlite:///var/lib/locks.db", picture))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path}/locks.db"


@pytest.fixture
def locks(url: str) -> Iterator[holdfast.Locks]:
    with holdfast.connect(url, label="billing") as connected:
        yield connected


def played(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 100))


def test_locks_come_and_go_and_are_sorted_and_filtered(url: str, locks: holdfast.Locks) -> None:
    async def scene() -> None:
        async with sitting(url) as seat:
            await seat.shows("0 locks in use")
            one, two = (locks.lock(name).acquire() for name in ("invoice:1", "report"))
            await seat.until(lambda: seat.names() == ["invoice:1", "report"], "both")
            await seat.shows(str(one.token))
            await seat.press("s")  # by name; then from z to a
            await seat.press("r")
            assert seat.names() == ["report", "invoice:1"]
            await seat.press("slash")
            await seat.type("INVO")
            await seat.until(lambda: seat.names() == ["invoice:1"], "what matches")
            await seat.shows("1 of 2 locks in use")
            await seat.press("enter", "escape")
            await seat.until(lambda: len(seat.names()) == 2, "the filter to be gone")
            two.release()
            await seat.until(lambda: seat.names() == ["invoice:1"], "one to be gone")
            one.release()
            await seat.shows("0 locks in use")

    played(scene)


def test_what_is_chosen_stays_chosen_when_rows_come_before_it(url: str, locks: holdfast.Locks) -> None:
    async def scene() -> None:
        async with sitting(url) as seat:
            leases = [locks.lock(name).acquire() for name in ("m", "n")]
            await seat.until(lambda: seat.names() == ["m", "n"], "both")
            await seat.press("down")
            assert seat.listing().chosen == ("sqlite", "n")
            leases.append(locks.lock("a").acquire())
            await seat.until(lambda: seat.names() == ["a", "m", "n"], "the third")
            assert seat.listing().chosen == ("sqlite", "n")
            for lease in leases:
                lease.release()

    played(scene)


def test_an_eviction_wants_the_name_typed_and_puts_out_the_one_that_was_looked_at(
    url: str, locks: holdfast.Locks
) -> None:
    async def scene() -> None:
        async with sitting(url) as seat:
            lease = locks.lock("mine").acquire()
            await seat.until(lambda: seat.names() == ["mine"], "the lock")
            await seat.press("enter")
            await seat.until(lambda: isinstance(seat.app.screen, One), "one lock")
            await seat.press("e")
            await seat.until(lambda: isinstance(seat.app.screen, Evict), "the question")
            assert f"with token {lease.token}" in seat.screen()
            await seat.type("min")
            await seat.press("enter")
            assert locks.inspect("mine").holders
            assert isinstance(seat.app.screen, Evict)
            await seat.type("e")
            await seat.press("enter")
            await seat.shows("outranks it")
            out = locks.inspect("mine").eviction
            assert out is not None
            assert out.evicted_token == lease.token
            assert out.by.endswith("/holdfast top")
            await seat.shows("evicted")  # in what happened

    played(scene)


@pytest.mark.parametrize(("name", "size"), [("mine", (50, 12)), ("long" * 50, (80, 16))])
def test_where_to_type_is_in_sight_however_small_the_terminal(
    url: str, locks: holdfast.Locks, name: str, size: tuple[int, int]
) -> None:
    async def scene() -> None:
        async with sitting(url, size=size) as seat:
            with locks.lock(name):
                await seat.until(lambda: seat.names() == [name], "the lock")
                await seat.press("enter")
                await seat.until(lambda: isinstance(seat.app.screen, One), "one lock")
                await seat.press("e")
                await seat.until(lambda: isinstance(seat.app.screen, Evict), "the question")
                await seat.type("xyz")
                await seat.shows("xyz")

    played(scene)


def test_whoever_came_after_the_one_that_was_looked_at_stays(url: str, locks: holdfast.Locks) -> None:
    async def scene() -> None:
        async with sitting(url) as seat:
            lease = locks.lock("mine").acquire()
            await seat.until(lambda: seat.names() == ["mine"], "the lock")
            await seat.press("enter", "e")
            await seat.until(lambda: isinstance(seat.app.screen, Evict), "the question")
            lease.release()
            other = locks.lock("mine").acquire()
            await seat.type("mine")
            await seat.press("enter")
            await seat.shows("any more")
            assert [one.token for one in locks.inspect("mine").holders] == [other.token]
            other.release()

    played(scene)


def test_escape_leaves_a_holder_alone(url: str, locks: holdfast.Locks) -> None:
    async def scene() -> None:
        async with sitting(url) as seat:
            with locks.lock("mine"):
                await seat.until(lambda: seat.names() == ["mine"], "the lock")
                await seat.press("enter", "e")
                await seat.until(lambda: isinstance(seat.app.screen, Evict), "the question")
                await seat.press("escape")
                await seat.until(lambda: isinstance(seat.app.screen, One), "one lock")
                await seat.press("escape")
                await seat.until(lambda: not isinstance(seat.app.screen, One), "the list")
                assert locks.inspect("mine").holders

    played(scene)


def test_of_several_holders_the_chosen_one_is_put_out(url: str, locks: holdfast.Locks) -> None:
    async def scene() -> None:
        async with sitting(url) as seat:
            first, second = (locks.semaphore("gpu", 3).acquire() for _ in range(2))
            await seat.until(lambda: seat.names() == ["gpu"] and len(seat.listing().rows[0]["holders"]) == 2, "both")
            await seat.press("enter", "down", "e")
            await seat.until(lambda: isinstance(seat.app.screen, Evict), "the question")
            await seat.type("gpu")
            await seat.press("enter")
            await seat.shows("outranks it")
            assert [one.token for one in locks.inspect("gpu").holders] == [first.token]
            first.release()
            with pytest.raises(holdfast.LeaseLost):
                second.renew()

    played(scene)


def test_control_characters_and_markup_in_a_name_are_letters(url: str, locks: holdfast.Locks) -> None:
    async def scene() -> None:
        async with sitting(url) as seat:
            lease = locks.lock(STRANGE).acquire()
            await seat.shows(r"evil\x1b[31m")
            await seat.press("enter")
            await seat.shows(r"evil\x1b[31m\x07[bold red]name[/]\n")
            await seat.press("e")
            await seat.until(lambda: isinstance(seat.app.screen, Evict), "the question")
            assert not {"\x1b", "\x07"} & set(seat.screen())
            seat.app.screen.query_one(Input).value = r"evil\x1b[31m\x07[bold red]name[/]\n日本"
            await seat.press("enter")
            await seat.shows("outranks it")
            assert not locks.inspect(STRANGE).holders
            assert not lease.release()

    played(scene)


def test_a_deadlock_comes_first_and_is_told_in_words(url: str, locks: holdfast.Locks) -> None:
    end, both = threading.Event(), threading.Barrier(2)

    def take(first: str, second: str) -> None:
        with holdfast.connect(url, label=f"transfer {first}") as mine, mine.lock(first):
            both.wait(PATIENCE)
            try:
                mine.lock(second).acquire(cancel=end).release()
            except holdfast.HoldfastError:
                return

    pair = [threading.Thread(target=take, args=two) for two in (("alice", "bob"), ("bob", "alice"))]
    for thread in pair:
        thread.start()

    async def scene() -> None:
        async with sitting(url, size=(100, 12)) as seat:
            with locks.lock("a quiet one"), locks.semaphore("gpu", 4).acquire(units=2):
                await seat.until(lambda: seat.names() == ["alice", "bob", "a quiet one", "gpu"], "the deadlock first")
                await seat.shows("2 need attention")
                draw(seat)
                await seat.pilot.resize_terminal(100, 30)
                await seat.press("enter")
                await seat.shows("None of them can go on")
                assert "In line (1)" in seat.screen()

    try:
        played(scene)
    finally:
        end.set()
        for thread in pair:
            thread.join(PATIENCE)


def test_a_store_that_goes_away_is_told_on_the_page_of_one_lock_too(
    url: str, locks: holdfast.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: Looking) -> None:
        raise holdfast.Unavailable("nobody is there")

    async def scene() -> None:
        with locks.lock("x"):
            async with sitting(url) as seat:
                await seat.until(lambda: seat.names() == ["x"], "the lock")
                await seat.press("enter")
                await seat.shows("Inside")
                with monkeypatch.context() as patch:
                    patch.setattr(Looking, "_look", away)
                    await seat.shows("What follows may be old: nobody is there")
                    await seat.shows("a ttl of 30 s, not looked at since")  # for it may have been renewed
                    await seat.press("escape")
                    await seat.until(lambda: " ? " in seat.screen() and "█" not in seat.screen(), "no time left")
                await seat.until(lambda: "█" in seat.screen(), "its coming back")
                with monkeypatch.context() as patch:
                    patch.setattr("holdfast.dashboard.looking.BEHIND", -10.0)  # as after a look that takes minutes
                    await seat.shows("takes long to answer: what is shown of it may be old")
                    await seat.press("enter")
                    await seat.shows("What follows may be old: the store takes long to answer")
                await seat.until(lambda: "may be old" not in seat.screen(), "its coming back")

    played(scene)


def test_a_store_that_does_not_answer_is_told_and_ridden_out_and_its_password_stays_secret(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    url = f"sqlite://{folder}/locks.db"

    async def scene() -> None:
        async with sitting(url, "redis://somebody:sesame@127.0.0.1:1/0") as seat:
            await seat.shows("does not answer")
            assert "sesame" not in seat.screen()
            folder.mkdir(exist_ok=True)
            with holdfast.connect(url) as late, late.lock("x"):
                await seat.until(lambda: seat.names() == ["x"], "what the other store holds")
                assert "STORE" in seat.screen()

    played(scene)


@pytest.mark.parametrize("width", [50, 80])
def test_it_fits(width: int, url: str, locks: holdfast.Locks) -> None:
    async def scene() -> None:
        async with sitting(url, size=(width, 16)) as seat:
            leases = [locks.lock(f"a rather long name of a lock, number {number}").acquire() for number in range(20)]
            await seat.until(lambda: len(seat.names()) == 20, "all")
            [head] = [one for one in seat.lines() if one.startswith("NAME")]
            assert [word for word in ("NAME", "AGE", "TTL", "LINE", "WAIT") if word not in head] == []
            assert ("TOKEN" in head) == (width == 80)
            await seat.press("end")
            assert "…" in seat.screen()
            assert seat.listing().chosen == ("sqlite", "a rather long name of a lock, number 9")
            for lease in leases:
                lease.release()

    played(scene)


def test_five_thousand_names_cost_no_more_drawing_than_twenty() -> None:
    drawn = 0
    many = [_lock(f"n:{number}") for number in range(5000)]

    class Counting(Listing):
        def render_line(self, y: int) -> Any:
            nonlocal drawn
            drawn += 1
            return super().render_line(y)

    async def scene() -> None:
        from textual.app import App, ComposeResult

        class One(App[None]):
            def compose(self) -> ComposeResult:
                yield Counting(several=False)

        async with One().run_test(size=(80, 24)) as pilot:
            nonlocal drawn
            listing = pilot.app.query_one(Counting)
            drawn = 0
            listing.put(many)
            await pilot.pause()
            assert 0 < drawn <= 3 * 24

    played(scene)


# ---- mistakes that the tests above find


def _agrees_to_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    def submitted(self: Evict, _: Input.Submitted) -> None:
        self.dismiss(True)

    monkeypatch.setattr(Evict, "on_input_submitted", submitted)


def _takes_whoever_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def put_out(self: One, _: int) -> None:
        held = self._looking.locks().inspect(self._called).holders
        self._looking.locks().force_release(self._called, token=held[0].token)
        self.app.notify("any more")

    monkeypatch.setattr(One, "_put_out", put_out)


def _prints_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("rows", "one", "app"):
        monkeypatch.setattr(f"holdfast.cli.top.{module}.line", lambda text: text)
    monkeypatch.setattr("holdfast.cli.story.line", lambda text: text)
    monkeypatch.setattr(f"{__name__}.PATIENCE", 2.0)


@pytest.mark.parametrize(
    ("mistake", "test"),
    [
        (_agrees_to_anything, test_an_eviction_wants_the_name_typed_and_puts_out_the_one_that_was_looked_at),
        (_takes_whoever_is_there, test_whoever_came_after_the_one_that_was_looked_at_stays),
        (_prints_as_it_is, test_control_characters_and_markup_in_a_name_are_letters),
    ],
)
def test_a_mistake_is_noticed(
    mistake: Callable[[pytest.MonkeyPatch], None],
    test: Callable[[str, holdfast.Locks], None],
    url: str,
    locks: holdfast.Locks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, holdfast.LeaseLost)):
        test(url, locks)


# ---- rows


def _lock(name: str, **more: Any) -> rows.Lock:
    empty = {"holders": [], "waiters": [], "acquired": [], "attention": [], "store": "redis", "kind": "mutex"}
    return {**empty, "name": name, **more}


def _holder(**more: Any) -> dict[str, Any]:
    return {"owner": "vm/1/x", "token": 7, "note": "", "share": "", "since": 90.0, "ends": 110.0, "ttl": 30.0, **more}


def test_columns_fill_the_width_and_never_more() -> None:
    for width in range(20, 200):
        for several in (False, True):
            room = rows.columns(width, several, 16)
            text = " ".join(rows.cells(_lock("x" * 300, holders=[_holder()]), 100.0, room))
            assert len(text) <= max(width, 14)
            assert len(" ".join(rows.heads(room, "age", True))) == len(text)


def test_what_is_kept_is_shown_as_kept() -> None:
    room = rows.columns(120, False, 16)
    one, two = _holder(), _holder(note="kept for 60 s after use")
    assert "(kept)" not in " ".join(rows.cells(_lock("x", holders=[one]), 100.0, room))
    assert "vm/1/x (kept) +1" in " ".join(rows.cells(_lock("x", holders=[two, one]), 100.0, room))


def test_a_wide_letter_is_cut_where_it_would_stand_half() -> None:
    assert cut("日本日本", 8) == "日本日本"
    assert cut("日本日本", 6) == "日本…"
    assert cut("abc", 0) == ""


def test_the_rate_is_of_the_last_minute() -> None:
    assert rows.rate([], 100.0) == 0
    assert rows.rate([10.0, 50.0, 99.0], 100.0) == 2
    thirty = [100 - 0.5 * number for number in range(30, 0, -1)]
    assert rows.rate(thirty, 100.0) == pytest.approx(120.0)


def test_times_take_four_cells_at_most() -> None:
    told = [rows.short(seconds) for seconds in (0, 9.94, 9.96, 59.9, 60, 3599, 3600, 86399, 86400, 99 * 86400)]
    assert told == ["0.0s", "9.9s", "9s", "59s", "1m", "59m", "1h", "23h", "1d", "99d"]


def test_the_bar_is_of_the_holder_who_is_nearest_its_end() -> None:
    lock = _lock("x", holders=[_holder(ends=130.0), _holder(ends=115.0)])
    assert rows.least(lock, 100.0) == pytest.approx(0.5)
    assert rows.bar(0.5, 8) == "████    "
    assert rows.bar(7.0, 3) == "███"


@pytest.mark.parametrize(
    ("sort", "order"), [("", "bac"), ("name", "abc"), ("age", "cab"), ("line", "bca"), ("wait", "bca")]
)
def test_rows_are_in_order(sort: str, order: str) -> None:
    wait = {"owner": "w", "share": "", "since": 95.0}
    some = [
        _lock("a", holders=[_holder(since=50.0)]),
        _lock("b", waiters=[{**wait, "since": 10.0}, wait], attention=["deadlock"]),
        _lock("c", holders=[_holder(since=20.0)], waiters=[wait]),
    ]
    falls = next((one.falls for one in rows.COLUMNS if one.key == sort), False)
    assert "".join(one["name"] for one in rows.ordered(some, sort, falls, 100.0)) == order


def test_without_a_terminal_it_says_what_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    from holdfast.cli import main

    assert main(["top"]) == 125
    assert "holdfast ls" in capsys.readouterr().err
