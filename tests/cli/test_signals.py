from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib

import pytest

import holdfast

from .conftest import Commands, alive, python, until

FORWARDED = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGTERM", "SIGWINCH", "SIGCONT", "SIGURG"]

LISTENER = """
import os, signal
for name in NAMES:
    signal.signal(getattr(signal, name), lambda signum, _: os.write(1, f'{signal.Signals(signum).name}\\n'.encode()))
signal.signal(signal.SIGRTMIN, lambda *_: os._exit(9))
print("ready", flush=True)
while True: signal.pause()
"""


def test_every_signal_is_passed_on_to_the_command(run: Commands) -> None:
    job = run.start("run", "x", "--", *python(LISTENER.replace("NAMES", repr(FORWARDED))))
    assert job.line() == "ready"
    for name in FORWARDED:
        job.send(getattr(signal, name))
        assert job.line() == name
    job.send(signal.SIGRTMIN)
    assert job.end() == 9


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"])
def test_a_signal_ends_the_command_and_its_children_and_frees_the_lock(
    run: Commands, locks: holdfast.Locks, name: str
) -> None:
    # sh lets background children ignore INT; `exec python` does not
    sleeper = " ".join(
        python("'import signal; signal.signal(2, signal.SIG_DFL); print(0, flush=True); signal.pause()'")
    )
    job = run.start("run", "x", "--", "sh", "-c", f"echo $$; {sleeper} & echo $!; wait")
    words = [int(job.line()), int(job.line()), int(job.line())]
    number = getattr(signal, name)
    job.send(number)
    assert job.end() == 128 + number
    assert not any(alive(pid) for pid in words if pid)
    assert locks.names() == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1"])
def test_a_signal_while_waiting_leaves_the_line_at_once(run: Commands, locks: holdfast.Locks, name: str) -> None:
    number = getattr(signal, name)
    with locks.lock("x"):
        job = run.start("run", "x", "--", "echo", "never")
        until(lambda: locks.inspect("x").waiters)
        job.send(number)
        assert job.end() == 128 + number
        assert locks.inspect("x").waiters == ()
        assert (job.errors(), job.process.stdout.read() if job.process.stdout else None) == ("", b"")
    assert locks.names() == []


def test_a_signal_that_comes_at_any_moment_leaves_nothing(run: Commands, locks: holdfast.Locks) -> None:
    """While it starts, while it asks, while it enters, while it leaves."""
    ends = set()
    for step in range(12):
        job = run.start("run", "x", "--", "sh", "-c", "exit 0")
        try:
            os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            job.process.wait(0.02 * step)
        except Exception:
            job.send(signal.SIGTERM)
        ends.add(job.end())
        until(lambda: locks.names() == [])
    assert ends <= {0, 143, -15}  # -15: before Python was up and had a handler


def test_signals_that_mean_nothing_to_a_waiter_do_not_end_the_waiting(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("x"):
        job = run.start("run", "x", "--", "echo", "in")
        until(lambda: locks.inspect("x").waiters)
        for signum in (signal.SIGWINCH, signal.SIGCONT, signal.SIGURG):
            job.send(signum)
        job.send(signal.SIGTSTP)
        until(lambda: _state(job.pid) == "T")
        job.send(signal.SIGCONT)
    assert job.line() == "in"
    assert job.end() == 0


def test_what_was_ignored_stays_ignored(run: Commands) -> None:
    job = run.start(
        "run",
        "x",
        "--",
        "sh",
        "-c",
        "echo ready; read line; exit 5",
        command=("sh", "-c", 'trap "" HUP; exec "$@"', "-"),
    )
    assert job.line() == "ready"
    job.send(signal.SIGHUP)
    job.type("\n")
    assert job.end() == 5


def test_a_command_that_handles_its_signal_decides_itself(run: Commands) -> None:
    job = run.start("run", "x", "--", "sh", "-c", "trap 'exit 17' TERM; echo ready; while :; do sleep 0.02; done")
    assert job.line() == "ready"
    job.send(signal.SIGTERM)
    assert job.end() == 17


def test_stop_and_continue_reach_the_command(run: Commands, locks: holdfast.Locks) -> None:
    """Without a terminal, a command that somebody stopped keeps its lock: we go on renewing."""
    job = run.hold("x", "--ttl", "0.6")
    with open(f"/proc/{job.pid}/task/{job.pid}/children", encoding="ascii") as file:
        (child,) = [pid for pid in map(int, file.read().split()) if os.getsid(pid) == os.getsid(0)]
    os.kill(child, signal.SIGSTOP)
    until(lambda: locks.inspect("x").holders[0].age > 1.0)
    assert _state(child) == "T"
    job.send(signal.SIGCONT)
    until(lambda: _state(child) != "T")
    job.type("\n")
    assert job.end() == 0


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0]


# Interrupted as this module is looked for: as Ctrl-C may come while Python still imports.
INTERRUPTED = """
import os, signal, sys
class Ctrl:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            print("ctrl-c", flush=True)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Ctrl())
module = sys.argv.pop(1)
from COMMAND import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "module", ["holdfast", "holdfast.claim", "holdfast.cli", "holdfast.cli.options", "holdfast.sync"]
)
def test_ctrl_c_while_python_still_imports_leaves_no_traceback(run: Commands, module: str) -> None:
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "pyproject.toml"), "rb") as file:
        package, _, function = tomllib.load(file)["project"]["scripts"]["holdfast"].partition(":")
    assert function == "main"
    for command in (["ls"], ["demo"], ["run", "x", "--", "true"]):
        words = [sys.executable, "-c", INTERRUPTED.replace("COMMAND", package), module, *command]
        done = subprocess.run(words, env=run.environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "ctrl-c\n", "")
