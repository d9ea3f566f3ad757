"""What is printed fits: help in 80 columns, tables in whatever the terminal has."""

from __future__ import annotations

import io
import json
import re

import pytest

import holdfast
from holdfast.claim import Holding, Snapshot, Waiting
from holdfast.cli import COMMANDS, asking, doctor, table
from holdfast.cli.manual import PAGES, page
from holdfast.cli.options import Usage, parse
from holdfast.cli.terminal import Paint, cut, width_of
from holdfast.doctor import Finding

from .conftest import Commands, until

PLAIN = Paint(io.StringIO())
OWNER = "a-rather-long-host.internal/4711/MainThread/billing"


def snapshots(many: int = 3) -> list[Snapshot]:
    holder = Holding(OWNER, 1_753_900_000_000_000, 1, 2.0, 28.0, "")
    waiter = Waiting(OWNER, 1, 5.0, 25.0)
    return [Snapshot(f"invoice:{number:>030}", 1, (holder,), (waiter,) * number) for number in range(many)]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns(command: str) -> None:
    assert [one for one in page(command).splitlines() if width_of(one) > 80] == []


def test_every_command_has_a_page_and_stands_in_the_overview() -> None:
    assert set(PAGES) == {"", *COMMANDS}
    assert [one for one in COMMANDS if one not in PAGES[""]] == []


@pytest.mark.parametrize("width", [50, 60, 80, 100, 200])
def test_ls_fits_and_keeps_what_matters_most(width: int) -> None:
    lines = table.of_locks(snapshots(), PLAIN, width).splitlines()
    assert max(map(width_of, lines)) <= width
    assert [word for word in ("NAME", "WAITING", "LEFT", "OWNER") if word not in lines[0]] == []
    assert len({width_of(one.rstrip()) for one in lines[1:]}) == 1
    assert ("…" in lines[1]) == (width < 131)


def test_ls_is_whole_where_nothing_has_to_fit() -> None:
    assert OWNER in table.of_locks(snapshots(), PLAIN)


def test_wide_letters_are_counted_as_they_are_shown() -> None:
    one = snapshots(1)[0]._replace(name="日本語" * 20)
    assert max(map(width_of, table.of_locks([one], PLAIN, 50).splitlines())) <= 50
    assert cut("日本日本", 6) == "日本…"


@pytest.mark.parametrize("width", [50, 80])
def test_the_doctor_fits(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    with holdfast.connect("memory://") as locks:
        traits = locks.traits
    found = [
        Finding(
            check="persistence",
            level="warning",
            text="every second is written to disk " * 5,
            advice="say appendfsync always " * 5,
        )
    ]
    doctor._show(found[0], PLAIN, width)
    doctor._sum_up(found, traits, PLAIN, width)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(width_of, lines)) <= width
    assert max(map(width_of, lines)) > width - 12
    assert ("every second" in lines[0]) == (width == 80)


def test_show_takes_further_lines_instead_of_wrapping() -> None:
    wide = table.of_one(snapshots(3)[2], PLAIN).splitlines()
    narrow = table.of_one(snapshots(3)[2], PLAIN, 60).splitlines()
    assert len(wide) < len(narrow)
    assert max(map(width_of, narrow)) <= 60


def test_ls_watch_goes_on_until_it_is_told(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x"):
        job = run.start("ls", "--watch", "--json", "--interval", "0.05")
        assert [one["name"] for one in json.loads(job.line())] == ["x"]
        assert [one["name"] for one in json.loads(job.line())] == ["x"]
    until(lambda: json.loads(job.line()) == [], "it to be free")
    job.process.terminate()
    job.process.wait(20)
    done = run("ls", "--watch", "--for", "0")
    assert (done.returncode, done.stdout) == (0, "No locks are in use.\n")


def test_ls_watch_says_once_that_the_store_is_away_and_how_old_the_table_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    troubles = [None, *[holdfast.Unavailable("no answer")] * 5, None, KeyboardInterrupt()]

    def listed(*_: object) -> list[Snapshot]:
        trouble = troubles.pop(0)
        if trouble is not None:
            raise trouble
        return []

    monkeypatch.setattr(asking, "_listed", listed)
    with holdfast.connect("memory://") as locks, pytest.raises(KeyboardInterrupt):
        asking._watched(parse(["ls", "--watch", "--interval", "0.05"]), locks)
    said = capsys.readouterr()
    assert re.fullmatch(
        r"holdfast: no answer; what is shown is of \d\d:\d\d:\d\d; it is asked again and again\n", said.err
    )
    assert said.out.count("No locks are in use.") == 2


def test_ls_watch_of_a_store_that_was_away_at_the_end_is_an_error(run: Commands) -> None:
    done = run("ls", "--watch", "--for", "0.2", "--interval", "0.05", "--url", "redis://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.count("it is asked again and again") == 1


def test_an_interval_goes_with_watch() -> None:
    with pytest.raises(Usage, match="goes with --watch"):
        parse(["ls", "--interval", "3"])


def test_several_urls_are_several_stores() -> None:
    options = parse(["top", "--url", "redis://a", "--url", "redis://b", "--also", "redis://c"])
    assert (options.get("url"), options.get("also")) == ("redis://a", ["redis://b", "redis://c"])
