from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import holdfast

from .conftest import HOLDFAST, Commands, python, until
from .screen import Screen

Open = Callable[..., Screen]


@pytest.fixture
def screen(run: Commands) -> Iterator[Open]:
    opened: list[Screen] = []

    def start(*command: str, **environment: str) -> Screen:
        clean = {name: value for name, value in run.environment.items() if name not in ("NO_COLOR", "TERM")}
        opened.append(Screen(command, {"TERM": "xterm", **clean, **environment}))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def shell(screen: Open) -> Screen:
    one = screen("bash", "--norc", "--noprofile", "-i", PS1="", HOLDFAST=HOLDFAST)
    one.type("set +o emacs; PS1='PROMPT> '\n")
    one.expect("PROMPT> $")
    return one


IN_FRONT = "import os; print('in front' if os.tcgetpgrp(2) == os.getpgrp() else 'behind')"


def test_the_command_is_in_the_foreground_and_the_shell_afterwards(shell: Screen) -> None:
    command = " ".join(python(f'"{IN_FRONT}; print(chr(62), input())"'))
    shell.type(f"$HOLDFAST run x -- {command}; echo code $?\n")
    shell.expect("in front")
    shell.type("hello\n")
    shell.expect("> hello")
    shell.expect("code 0")
    shell.expect("PROMPT> ")
    shell.type("read line; echo got $line\n")
    shell.type("again\n")
    shell.expect("got again")


def test_ctrl_c_ends_the_command_with_130_and_stops_a_loop(shell: Screen, locks: holdfast.Locks) -> None:
    shell.type("$HOLDFAST run x -- sh -c 'echo inside; exec sleep 100'; echo code $?\n")
    shell.expect("inside")
    shell.type("\x03")
    shell.expect("code 130|PROMPT> ")
    assert locks.names() == []
    shell.type("for i in 1 2 3; do $HOLDFAST run x -- sh -c 'echo turn; exec sleep 100'; done; echo code $?\n")
    shell.expect("turn")
    shell.type("\x03")
    shell.expect("PROMPT> ")
    assert shell.text.count("turn\r\n") == 1
    assert locks.names() == []


def test_ctrl_c_in_line_leaves_no_ghost(shell: Screen, locks: holdfast.Locks) -> None:
    with locks.lock("x"):
        shell.type("$HOLDFAST run x -- true; echo code $?\n")
        until(lambda: locks.inspect("x").waiters)
        shell.type("\x03")
        shell.expect("code 130")
        assert locks.inspect("x").waiters == ()


def test_ctrl_z_stops_and_fg_continues(shell: Screen, locks: holdfast.Locks) -> None:
    command = " ".join(python('"print(chr(105) + chr(110), flush=True); print(chr(62), input())"'))
    shell.type(f"$HOLDFAST run x --ttl 60 -- {command}; echo code $?\n")
    shell.expect("in\r\n")
    shell.type("\x1a")
    shell.expect("stopped; 'x' is not renewed meanwhile")
    shell.expect("Stopped")
    shell.expect("PROMPT> ")
    assert len(locks.inspect("x").holders) == 1
    shell.type("fg\n")
    shell.expect("run x")
    shell.type("back\n")
    shell.expect("> back")
    shell.expect("PROMPT> ")
    until(lambda: locks.names() == [])


def test_a_command_that_sleeps_longer_than_its_lock_is_not_woken_again(shell: Screen, locks: holdfast.Locks) -> None:
    shell.type("$HOLDFAST run x --ttl 1 -- sh -c 'echo inside; exec sleep 100'\n")
    shell.expect("inside")
    shell.type("\x1a")
    shell.expect("Stopped")
    with locks.lock("x").acquire(timeout=15):
        shell.type("fg; echo code $?\n")
        shell.expect("lost the lock 'x'")
        shell.expect("code 76")


def test_a_pipe_keeps_the_terminal_until_the_command_asks_for_it(shell: Screen) -> None:
    command = " ".join(python(f'"{IN_FRONT}; print(chr(62), input(), flush=True); {IN_FRONT}"'))
    shell.type(f"$HOLDFAST run x -- {command} | cat; echo code $?\n")
    shell.type("hello\n")
    shell.expect("behind")
    shell.expect("> hello")
    shell.expect("in front")
    shell.expect("code 0")


def test_a_job_in_the_background_does_not_take_the_terminal(shell: Screen, locks: holdfast.Locks) -> None:
    shell.type("$HOLDFAST run x -- sh -c 'echo inside; exec sleep 100' &\n")
    shell.expect("inside")
    shell.type("echo still $((40 + 2))\n")
    shell.expect("still 42")
    shell.type("kill %1; wait %1; echo code $?\n")
    shell.expect("code 143")


# ---- looking


def test_colours_and_bars_on_a_terminal_only(screen: Open, run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x"):
        for words in (("ls",), ("show", "x")):
            on_terminal = screen(HOLDFAST, *words)
            assert on_terminal.end() == 0
            assert "\x1b[" in on_terminal.text
            assert ("█" in on_terminal.text) == (words[0] == "show")
            for setting in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
                plain = screen(HOLDFAST, *words, **setting)
                assert plain.end() == 0
                assert "\x1b" not in plain.text
            assert "\x1b" not in run(*words).stdout


def test_a_story_is_wrapped_at_words_and_its_command_is_not(screen: Open, locks: holdfast.Locks) -> None:
    name = "a-name-" + "x" * 60
    with locks.lock(name) as lease:
        shown = screen(HOLDFAST, "why", name)
        assert shown.end() == 0
        lines = shown.text.splitlines()
        assert f"  holdfast release {name} --token {lease.token}" in lines
        assert all(len(line) <= 100 for line in lines[:-1])
        assert " ".join(lines).count(f"held {name} for") == 1


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1), ("\x04", 1)])
def test_release_asks_first(screen: Open, locks: holdfast.Locks, answer: str, code: int) -> None:
    lease = locks.lock("x", ttl=60).acquire()
    asked = screen(HOLDFAST, "release", "x", "--token", str(lease.token))
    asked.expect(f"This puts out {lease.owner}")
    asked.expect("Go on?")
    asked.type(answer if answer == "\x04" else f"{answer}\n")
    assert asked.end() == code
    assert len(locks.inspect("x").holders) == code


def test_release_does_not_ask_when_told_not_to(screen: Open, locks: holdfast.Locks) -> None:
    lease = locks.lock("x", ttl=60).acquire()
    assert screen(HOLDFAST, "release", "x", "--yes", "--token", str(lease.token)).end() == 0
    assert locks.names() == []


def test_the_demo_draws_in_place(screen: Open) -> None:
    shown = screen(HOLDFAST, "demo")
    shown.expect("PAUSED")
    shown.expect("held by bob|held by cat|held by dan")
    shown.expect(r"\x1b\[\d+A")
    shown.expect("expected")
    assert shown.end() == 0
    assert shown.text.count("\x1b[?25l") == shown.text.count("\x1b[?25h") == 1
    shown.text.index("no stale token changes fenced state")


def test_ctrl_c_ends_the_demo_and_all_its_processes(screen: Open, tmp_path: object) -> None:
    shown = screen(HOLDFAST, "demo", TMPDIR=str(tmp_path))
    shown.expect("Act 2")
    shown.type("\x03")
    assert shown.end() == 130
    assert shown.text.endswith("\x1b[?25h")
    import os

    assert [one for one in os.listdir(str(tmp_path)) if one.startswith("holdfast-demo")] == []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                assert f"TMPDIR={tmp_path}".encode() not in file.read(), pid
        except OSError:
            continue
