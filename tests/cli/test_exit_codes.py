from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.testing import servers
from holdfast.testing.proxy import Proxy

from .conftest import Commands


@pytest.mark.parametrize("code", [0, 1, 75, 255])
def test_the_exit_code_is_the_commands_own(run: Commands, locks: holdfast.Locks, code: int) -> None:
    assert run("run", "x", "--", "sh", "-c", f"exit {code}").returncode == code
    assert locks.names() == []


@pytest.mark.parametrize(("name", "code"), [("KILL", 137), ("TERM", 143), ("INT", 130), ("SEGV", 139)])
def test_a_command_that_a_signal_ended_gives_128_and_its_number(run: Commands, name: str, code: int) -> None:
    assert run("run", "x", "--", "sh", "-c", f"kill -{name} $$").returncode == code


def test_not_waiting_for_a_taken_lock_exits_75_and_says_who_has_it(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x") as lease:
        done = run("run", "-n", "x", "--", "true")
        assert done.returncode == 75
        assert lease.owner in done.stderr
        assert str(lease.token) in done.stderr
        assert done.stdout == ""


@pytest.mark.parametrize("code", [0, 1, 200])
def test_another_exit_code_for_a_taken_lock(run: Commands, locks: holdfast.Locks, code: int) -> None:
    with locks.lock("x"):
        assert run("run", "-n", "-E", str(code), "x", "--", "true").returncode == code


def test_quietly_not_acquired(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x"):
        done = run("run", "-nq", "x", "--", "true")
        assert (done.returncode, done.stderr) == (75, "")


def test_waiting_so_long_and_no_longer(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x"):
        started = time.monotonic()
        assert run("run", "-w", "0.3", "x", "--", "true").returncode == 75
        assert time.monotonic() - started >= 0.3
        assert locks.inspect("x").waiters == ()


@pytest.mark.parametrize("kind", ["redis", "etcd", "postgresql", "mysql", "zookeeper"])
def test_a_silent_server_does_not_keep_who_would_not_wait(run: Commands, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are accepted, and nothing comes back
        database = "/holdfast" if kind == "mysql" else ""
        run.environment["HOLDFAST_URL"] = f"{kind}://127.0.0.1:{silent.getsockname()[1]}{database}"
        started = time.monotonic()
        done = run("run", "-n", "x", "--", "echo", "inside")
        assert (done.returncode, done.stdout) == (125, "")
        assert time.monotonic() - started < 5, "a second to find out, another to take it back, and the start of Python"


@pytest.mark.server
def test_nor_does_one_that_falls_silent_when_it_has_let_us_in(run: Commands) -> None:
    """Then something may have arrived, and has to be taken back."""
    with servers.start("redis") as redis, Proxy(("127.0.0.1", redis.port)) as proxy:
        proxy.to_server.hold(when=lambda asked: b"EVAL" in bytes(asked))
        run.environment["HOLDFAST_URL"] = f"redis://127.0.0.1:{proxy.port}"
        started = time.monotonic()
        done = run("run", "-n", "x", "--", "echo", "inside")
        assert (done.returncode, done.stdout) == (125, "")
        assert proxy.to_server.caught.chunks, "nothing was asked"
        assert time.monotonic() - started < 5, "a second to find out, another to take it back, and the start of Python"


def test_waiting_until_it_is_free(run: Commands, locks: holdfast.Locks) -> None:
    holder = run.hold("x")
    waiter = run.start("run", "x", "-w", "1m", "--", "echo", "in")
    holder.type("\n")
    assert waiter.line() == "in"
    assert (holder.end(), waiter.end()) == (0, 0)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "x"], "which command?"),
        (["run"], "which lock?"),
        (["run", "x", "--"], "which command?"),
        (["run", "--ttle", "3", "x", "--", "true"], "did you mean --ttl?"),
        (["run", "--timeout", "3", "x", "--", "true"], "there is no option --timeout; here that is --wait"),
        (["run", "--nonblock", "x", "--", "true"], "here that is --no-wait"),
        (["ls", "--timeout", "3"], "there is no option --timeout (there are:"),
        (["run", "--ttl", "soon", "x", "--", "true"], "--ttl wants a number of seconds"),
        (["run", "--ttl", "0.001", "x", "--", "true"], "at least 0.05 s"),
        (["run", "--ttl"], "--ttl needs a value"),
        (["run", "-n=1", "x", "--", "true"], "there is no option"),
        (["run", "--shared=1", "x", "--", "true"], "takes no value"),
        (["run", "-n", "-w", "3", "x", "--", "true"], "say one of them"),
        (["run", "--shared", "--slots", "2", "x", "--", "true"], "three kinds of lock"),
        (["run", "--slots", "0", "x", "--", "true"], "--slots wants"),
        (["run", "-E", "256", "x", "--", "true"], "0 to 255"),
        (["run", "--label", "a\x1b[31mb", "x", "--", "true"], "printable"),
        (["run", "a\udc80", "--", "true"], "valid Unicode"),
        (["run", "--url", "nosuch://x", "x", "--", "true"], "'nosuch'"),
        (["run", "--url", "memory://", "x", "--", "true"], "no other sees them"),
        (["run", "--url", "sqlite:///no/such/folder/locks.db", "x", "--", "true"], "/no/such/folder"),
        (["rum", "x"], "did you mean run?"),
        (["ls", "--quux"], "there is no option --quux (there are:"),  # and nothing like it
        (["run", "--", "echo", "hi"], "Its NAME is missing, as in: holdfast run NAME -- echo hi"),
        (["run", "--json", "x", "--", "true"], "nothing to print as JSON"),
        (["completion", "tcsh"], "for which shell? There are: bash, zsh, fish"),
        (["help", "rnu"], "did you mean run?"),
        (["run", "", "--", "sh", "true"], "name must not be empty"),
        (["run", "", "sh", "true"], "name must not be empty"),
        (["show"], "which lock?"),
        (["show", ""], "name must not be empty"),
        (["release", "x"], "--token"),
        (["release", "x", "--token", "0"], "--token wants"),
        (["ls", "a", "b"], "too many words"),
    ],
)
def test_an_error_of_ours_exits_125_and_says_what_to_do(run: Commands, words: list[str], hint: str) -> None:
    done = run(*words)
    assert done.returncode == 125
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_a_password_in_a_url_is_not_shown(run: Commands) -> None:
    for url in ("Nosuch://user:hunter2@host/x", "nosuch://user:hunter2@host/x?password=hunter2"):
        done = run("ls", "--url", url)
        assert done.returncode == 125
        assert "hunter2" not in done.stderr + done.stdout


def test_a_command_that_does_not_exist_exits_127_and_leaves_nothing_locked(
    run: Commands, locks: holdfast.Locks
) -> None:
    for command in ("no-such-command", "/no/such/command", "./nothing", ""):
        assert run("run", "x", "--at-least", "60", "--", command).returncode == 127, command
    assert locks.names() == []


def test_a_script_whose_interpreter_is_missing_exits_127(run: Commands, locks: holdfast.Locks, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert run("run", "x", "--at-least", "60", "--", str(script)).returncode == 127
    assert locks.names() == []


def test_a_command_that_cannot_be_executed_exits_126_and_leaves_nothing_locked(
    run: Commands, locks: holdfast.Locks, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.write_text("true\n")
    no_shebang = tmp_path / "no-shebang"
    no_shebang.write_text("true\n")
    no_shebang.chmod(0o755)
    for path in (plain, tmp_path, no_shebang):
        done = run("run", "x", "--at-least", "60", "--", str(path))
        assert done.returncode == 126, path
        assert "Traceback" not in done.stderr
    assert locks.names() == []


def test_a_typo_in_the_command_is_not_kept_waiting(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x"):
        assert run("run", "x", "--", "no-such-command").returncode == 127


def test_help_and_version(run: Commands) -> None:
    assert run("--version").stdout == f"holdfast {holdfast.__version__}\n"
    assert run("--version", "--json").stdout == f'{{"holdfast": "{holdfast.__version__}"}}\n'
    for words in ([], ["run"], ["ls"], ["show"], ["why"], ["release"], ["demo"]):
        done = run(*words, "--help")
        assert done.returncode == 0
        assert done.stdout.startswith("holdfast")
        assert max(map(len, done.stdout.splitlines())) <= 80
    for code in ("75", "76", "125", "126", "127", "128+n"):
        assert code in run("run", "--help").stdout
    nothing = run()
    assert nothing.returncode == 125
    assert "run NAME -- cmd" in nothing.stdout


def test_the_module_is_the_command(run: Commands) -> None:
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "x", "--", "sh", "-c", "exit 7"], env=run.environment, timeout=30
    )
    assert done.returncode == 7


def test_without_a_url_the_file_is_in_the_state_folder(run: Commands, tmp_path: Path) -> None:
    del run.environment["HOLDFAST_URL"]
    run.environment["XDG_STATE_HOME"] = str(tmp_path / "state")
    assert run("run", "x", "--", "true").returncode == 0
    assert os.path.exists(tmp_path / "state" / "holdfast" / "locks.db")


def test_a_state_folder_that_cannot_be_made_is_an_error_of_ours(run: Commands, tmp_path: Path) -> None:
    del run.environment["HOLDFAST_URL"]
    (tmp_path / "file").write_text("")
    run.environment["XDG_STATE_HOME"] = str(tmp_path / "file")
    done = run("run", "x", "--", "true")
    assert done.returncode == 125
    assert "Traceback" not in done.stderr


def test_closed_standard_output_is_no_trouble(run: Commands) -> None:
    job = run.start("run", "x", "--", "sh", "-c", "exit 6", command=("sh", "-c", 'exec "$@" >&- <&-', "-"))
    assert job.end() == 6


def test_an_observer_that_cannot_be_had_keeps_no_command_from_running_and_no_question_from_being_answered(
    run: Commands,
) -> None:
    done = run("run", "x", "--", "echo", "ran", HOLDFAST_OBSERVE="nonsense")
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert "nobody observes by the name 'nonsense'" in done.stderr
    for words in (["ls"], ["show", "x"], ["why", "x"], ["doctor"], ["watch", "--for", "0"]):
        assert run(*words, HOLDFAST_OBSERVE="nonsense").returncode < 125
