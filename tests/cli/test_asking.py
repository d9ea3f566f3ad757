from __future__ import annotations

import json
import shlex
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast

from .conftest import HOLDFAST, Commands, until

NASTY = "evil\x1b]0;owned\x07\x1b[31m\u202e\r\n"


def data(run: Commands, *words: str) -> Any:
    done = run(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_nothing_in_use_is_said_kindly_and_not_on_standard_output(run: Commands) -> None:
    done = run("ls")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "No locks are in use.\n")
    assert "begins with 'a'" in run("ls", "a").stderr
    assert data(run, "ls") == []


def test_ls(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("a-mutex"), locks.semaphore("b-slots", 4).acquire(units=3), locks.rwlock("c-book").read():
        waiting = run.start("run", "a-mutex", "--", "true")
        until(lambda: locks.inspect("a-mutex").waiters)
        head, *rows = run("ls").stdout.splitlines()
        assert head.split() == ["NAME", "HOLDERS", "UNITS", "WAITING", "OLDEST", "LEFT", "OWNER"]
        assert [row.split()[:4] for row in rows] == [
            ["a-mutex", "1", "1/1", "1"],
            ["b-slots", "1", "3/4", "0"],
            ["c-book", "1", "reading", "0"],
        ]
        assert all(row.endswith("the test") for row in rows)
        assert len({row.index(" s  ") for row in rows}) == 1  # aligned
        assert [one["name"] for one in data(run, "ls", "b-")] == ["b-slots"]
        kinds = {one["name"]: (one["kind"], one["used"], one["capacity"]) for one in data(run, "ls")}
        assert kinds == {
            "a-mutex": ("mutex", 1, 1),
            "b-slots": ("semaphore", 3, 4),
            "c-book": ("readers and writers", 1, None),
        }
    assert waiting.end() == 0


def test_show(run: Commands, locks: holdfast.Locks) -> None:
    lease = locks.lock("x", ttl=60).acquire()
    first = run.start("run", "x", "--label", "first", "--", "true")
    until(lambda: len(locks.inspect("x").waiters) == 1)
    second = run.start("run", "x", "--label", "second", "--", "true")
    until(lambda: len(locks.inspect("x").waiters) == 2)
    text = run("show", "x").stdout
    assert "x is a mutex" in text
    assert f"token {lease.token}  {lease.owner}" in text
    assert text.index("1. ") < text.index("first") < text.index("2. ") < text.index("second")
    found = data(run, "show", "x")
    assert [one["token"] for one in found["holders"]] == [lease.token]
    assert [one["owner"].rpartition("/")[2] for one in found["waiters"]] == ["first", "second"]
    assert locks.force_release("x", token=lease.token)
    assert (first.end(), second.end()) == (0, 0)
    text = run("show", "x").stdout
    assert "x is free" in text
    assert f"with token {lease.token}" in text
    assert data(run, "show", "x")["eviction"]["evicted_token"] == lease.token


def test_the_holder_nonce_is_never_shown(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x") as lease:
        nonce = lease._grant.claim.holder
        for words in (("ls",), ("show", "x"), ("why", "x")):
            assert nonce not in run(*words).stdout
            assert nonce not in run(*words, "--json").stdout


def test_why_tells_a_story(run: Commands, locks: holdfast.Locks) -> None:
    assert "is free" in run("why", "x").stdout
    with locks.lock("x") as lease:
        assert "Nobody waits for it." in run("why", "x").stdout
        waiter = run.start("run", "x", "--label", "ann", "--", "true")
        until(lambda: locks.inspect("x").waiters)
        text = run("why", "x").stdout
        assert f"{lease.owner} has held x for" in text
        assert "First in line is" in text
        assert "/ann, waiting for" in text
        assert f"holdfast release x --token {lease.token}" in text
        assert data(run, "why", "x")["waits_for"][0]["holder"] == lease.owner
    assert waiter.end() == 0


def test_what_is_kept_is_shown_as_kept(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x", ttl=60, keep=60) as lease:
        owner = lease.owner
    assert f"{owner} (kept)" in run("ls").stdout
    assert "“kept for 60 s after use”" in run("show", "x").stdout
    assert "It is kept for 60 s after use (keep=), so perhaps nobody is inside" in run("why", "x").stdout


def test_why_names_who_waits_for_whom_and_a_deadlock(run: Commands, url: str) -> None:
    both = threading.Barrier(3)

    def take(first: str, second: str) -> None:
        with suppress(holdfast.LeaseLost), holdfast.connect(url) as locks, locks.lock(first):
            both.wait()
            locks.lock(second).acquire(timeout=60).release()

    threads = [
        threading.Thread(target=take, args=names, name=name)
        for name, names in (("ann", ("x", "y")), ("bob", ("y", "x")))
    ]
    for thread in threads:
        thread.start()
    both.wait()
    with holdfast.connect(url) as locks:
        until(lambda: locks.inspect("x").waiters and locks.inspect("y").waiters)
        text = run("why", "x").stdout
        assert "This is a deadlock" in text
        assert "ann itself waits for y, which" in text
        assert len(data(run, "why", "x")["deadlocks"]) == 1
        assert run("release", "x", "--token", str(locks.inspect("x").holders[0].token)).returncode == 0
        for thread in threads:
            thread.join(20)
        assert locks.names() == []


def test_release_puts_out_that_grant_and_says_so(run: Commands, locks: holdfast.Locks) -> None:
    lease = locks.lock("x", ttl=60).acquire()
    done = run("release", "x", "--token", str(lease.token))
    assert done.returncode == 0
    assert f"This puts out {lease.owner}" in done.stdout
    assert not lease.release()
    eviction = locks.inspect("x").eviction
    assert eviction is not None
    assert f"Token {eviction.token} outranks it" in done.stdout
    assert eviction.by.endswith("/holdfast release")
    with locks.lock("x") as next_one:
        assert next_one.token > eviction.token > lease.token


@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_release_of_a_token_that_nobody_holds_exits_1(
    run: Commands, locks: holdfast.Locks, json_flag: list[str]
) -> None:
    with locks.lock("x") as lease:
        done = run("release", "x", "--token", str(lease.token - 1), "--yes", *json_flag)
        assert done.returncode == 1
        if json_flag:
            assert json.loads(done.stdout)["released"] is False
        else:
            assert f"{lease.owner} with token {lease.token}" in done.stderr
        assert lease.held
        assert len(locks.inspect("x").holders) == 1


def test_release_in_json(run: Commands, locks: holdfast.Locks) -> None:
    lease = locks.lock("x", ttl=60).acquire()
    done = json.loads(run("release", "x", "--token", str(lease.token), "--json").stdout)
    assert (done["released"], done["owner"], done["token"]) == (True, lease.owner, lease.token)
    assert done["new_token"] > lease.token


def test_control_characters_do_not_reach_the_terminal(run: Commands, locks: holdfast.Locks) -> None:
    me = threading.current_thread()
    before, me.name = me.name, NASTY  # an owner is host/pid/thread, and a thread may be called anything
    try:
        with locks.lock(NASTY) as lease:
            done = [run(*words) for words in (("ls",), ("show", NASTY), ("why", NASTY), ("run", "-n", NASTY, "true"))]
            done.append(run("release", NASTY, "--token", str(lease.token + 1)))
            done.append(run("release", NASTY, "--token", str(lease.token)))
    except holdfast.LeaseLost:
        pass
    finally:
        me.name = before
    for one in done:
        text = one.stdout + one.stderr
        assert "evil\\x1b" in text
        assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert "$'\\x65\\x76" in done[2].stdout  # the command to copy names it without sending it


def test_wide_letters_are_aligned(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("日本"), locks.lock("abcd"):
        rows = run("ls").stdout.splitlines()
        assert rows[1].startswith("abcd  ")
        assert rows[2].startswith("日本  ")


def test_a_reader_that_goes_away_is_no_error(run: Commands, locks: holdfast.Locks) -> None:
    import os

    run.environment.pop(
        "PYTHONUNBUFFERED", None
    )  # then Python writes as it ends, and has a code of its own for failing
    with locks.lock("x"):
        job = run.start("ls")
        assert job.process.stdout is not None
        os.close(os.dup(job.process.stdout.fileno()))
        job.process.stdout.close()
        job.process.stdout = None
        assert job.end() in (0, 141)
        assert job.errors() == ""


@pytest.mark.parametrize(
    ("redirected", "code"),
    [("ls >/dev/full", 125), ("ls --nope 2>/dev/full", 125), ("ls --nope 2>&-", 125), ("ls >&-", 0), ("ls 2>&-", 0)],
)
def test_streams_that_cannot_be_written_to_change_no_exit_code_but_that_of_what_was_to_be_printed(
    run: Commands, locks: holdfast.Locks, redirected: str, code: int
) -> None:
    with locks.lock("x"):
        done = subprocess.run(
            ["sh", "-c", f"{HOLDFAST} {redirected}"], env=run.environment, capture_output=True, text=True, timeout=40
        )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "nope" not in done.stdout  # what is said of a mistake does not go where the result is expected


def test_only_what_has_been_held_for_long_is_listed_if_that_is_asked_for(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x"):
        assert "x" in run("ls", "--older-than", "0").stdout
        done = run("ls", "--older-than", "1h")
    assert (done.returncode, done.stdout) == (0, "")
    assert "for 1 h or longer" in done.stderr
    assert run("ls", "--older-than", "1h", "--json").stdout == "[]\n"


def test_a_command_to_copy_has_no_stars_where_the_password_was(run: Commands, tmp_path: Path) -> None:
    from holdfast.claim import Holding, Snapshot
    from holdfast.cli.story import release_command

    holding = Holding("host/1/main", 7, 1, 1.0, 2.0, "")
    told = release_command(Snapshot("x", 1, (holding,)), holding, "redis://:secret@cache/0")
    assert told == 'holdfast release x --url "$HOLDFAST_URL" --token 7'


def test_a_command_to_copy_names_the_file_that_the_url_came_from(run: Commands, tmp_path: Path) -> None:
    file = tmp_path / "the url"
    file.write_text(f"{run.url}\n")
    job = run.hold("x")
    told = run("why", "x", "--url-file", str(file)).stdout
    (command,) = [one.strip() for one in told.splitlines() if "holdfast release" in one]
    assert f"--url-file '{file}'" in command
    done = run(*shlex.split(command)[1:], "--yes", HOLDFAST_URL="sqlite:///elsewhere/x.db")
    assert (done.returncode, "Released." in done.stdout) == (0, True)
    job.type("\n")
