from __future__ import annotations

import os
import time

import pytest

import holdfast

from .conftest import Commands, alive, python, until


def test_standard_input_is_passed_on(run: Commands) -> None:
    assert run("run", "x", "--", "cat", stdin="one\ntwo\n").stdout == "one\ntwo\n"


def test_there_is_no_shell(run: Commands) -> None:
    words = ["a b", "$HOME", ";", "*", "--ttl", "-n", ""]
    done = run("run", "x", "--", "printf", "%s\\n", *words)
    assert done.stdout.splitlines() == words


def test_the_two_dashes_may_be_left_out(run: Commands) -> None:
    assert run("run", "-n", "x", "echo", "--ttl", "-h").stdout == "--ttl -h\n"
    assert run("run", "--ttl=5", "-w5m", "--", "-name", "echo", "in").stdout == "in\n"


def test_the_command_finds_the_lock_in_its_environment(run: Commands, locks: holdfast.Locks) -> None:
    with locks.lock("a b") as lease:
        before = lease.token
    started = time.time()
    done = run("run", "a b", "--ttl", "20", "--label", "me", "--", "env")
    found = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    assert found["HOLDFAST_NAME"] == "a b"
    assert int(found["HOLDFAST_TOKEN"]) > before
    assert started + 15 < float(found["HOLDFAST_EXPIRES_AT"]) < time.time() + 20
    assert found["HOLDFAST_OWNER"].endswith("/me")


def test_the_command_is_in_a_process_group_of_its_own_with_default_signals(run: Commands) -> None:
    source = "import os, signal; print(os.getpgrp() == os.getpid(), signal.getsignal(signal.SIGCHLD), os.getpgrp())"
    own, disposition, group = run("run", "x", "--", *python(source)).stdout.split()
    assert (own, disposition) == ("True", "0")
    assert int(group) != os.getpgrp()
    status = run("run", "x", "--", "grep", "-E", "Sig(Ign|Blk)", "/proc/self/status").stdout
    # what this process ignores is inherited by design; PIPE and XFSZ, which only Python ignores, are not
    assert all(int(line.split()[1], 16) & (1 << 12 | 1 << 24) == 0 for line in status.splitlines())


def test_no_descriptor_of_ours_reaches_the_command(run: Commands) -> None:
    assert run("run", "x", "--", "ls", "/proc/self/fd").stdout.split() == ["0", "1", "2", "3"]  # 3: the folder it reads


def test_the_lock_is_held_while_the_command_runs_and_free_afterwards(run: Commands, locks: holdfast.Locks) -> None:
    job = run.hold("x", "--label", "me")
    snapshot = locks.inspect("x")
    assert [one.owner.rpartition("/")[2] for one in snapshot.holders] == ["me"]
    job.type("\n")
    assert job.end() == 0
    assert locks.names() == []


def test_the_lock_is_renewed(run: Commands, locks: holdfast.Locks) -> None:
    job = run.hold("x", "--ttl", "0.3")
    token = locks.inspect("x").holders[0].token
    until(lambda: locks.inspect("x").holders[0].age > 1.0)
    assert locks.inspect("x").holders[0].token == token
    job.type("\n")
    assert job.end() == 0


def test_slots(run: Commands, locks: holdfast.Locks) -> None:
    jobs = [run.hold("x", "--slots", "2") for _ in range(2)]
    assert run("run", "x", "-n", "--slots", "2", "--", "true").returncode == 75
    assert run("run", "x", "-n", "--", "true").returncode == 125  # a mutex is another kind of lock
    jobs[0].type("\n")
    assert jobs[0].end() == 0
    assert run("run", "x", "-n", "--slots", "2", "--", "true").returncode == 0


def test_readers_and_writers(run: Commands) -> None:
    reader = run.hold("x", "--shared")
    assert run("run", "x", "-n", "--shared", "--", "true").returncode == 0
    assert run("run", "x", "-n", "--exclusive", "--", "true").returncode == 75
    mutex = run("run", "x", "-n", "--", "true")
    assert mutex.returncode == 125
    assert "--exclusive" in mutex.stderr
    reader.type("\n")
    assert reader.end() == 0
    run.hold("x", "--exclusive")
    assert run("run", "x", "-n", "--shared", "--", "true").returncode == 75


def test_a_short_job_keeps_its_lock_for_at_least_so_long(run: Commands, locks: holdfast.Locks) -> None:
    assert run("run", "x", "-n", "--at-least", "60", "--", "true").returncode == 0
    assert run("run", "x", "-n", "--at-least", "60", "--", "true").returncode == 75
    assert 50 < locks.inspect("x").holders[0].left <= 60
    assert run("run", "y", "--at-least", "0.3", "--", "true").returncode == 0
    until(lambda: locks.names() == ["x"])


def test_a_killed_job_keeps_its_lock_for_at_least_so_long(run: Commands, locks: holdfast.Locks) -> None:
    job = run.hold("x", "--ttl", "1", "--at-least", "60")
    job.process.kill()
    job.end()
    assert locks.inspect("x").holders[0].left > 50


def test_what_the_command_left_in_its_group_is_ended(run: Commands, locks: holdfast.Locks) -> None:
    done = run("run", "x", "--", "sh", "-c", "sleep 100 >/dev/null 2>&1 & echo $!; exit 3")
    assert done.returncode == 3
    assert not alive(int(done.stdout))
    stubborn = "trap '' TERM; (trap '' TERM; exec sleep 100) >/dev/null 2>&1 & echo $!"
    done = run("run", "x", "--ttl", "1.2", "--", "sh", "-c", stubborn)
    assert done.returncode == 0
    until(lambda: not alive(int(done.stdout)))
    assert locks.names() == []


def test_a_daemon_in_a_session_of_its_own_lives_on(run: Commands) -> None:
    done = run("run", "x", "--", "setsid", "-f", "sh", "-c", "echo $$; exec sleep 5 >/dev/null 2>&1")
    pid = int(done.stdout)
    assert alive(pid)
    os.kill(pid, 9)


@pytest.mark.parametrize("many", [8])
def test_many_at_once_take_turns(run: Commands, locks: holdfast.Locks, many: int, tmp_path: object) -> None:
    path = f"{tmp_path}/count"
    with open(path, "w", encoding="utf-8") as file:
        file.write("0")
    add = f"n=$(cat {path}); echo $((n + 1)) > {path}.new; mv {path}.new {path}"
    jobs = [run.start("run", "x", "--", "sh", "-c", add) for _ in range(many)]
    assert [job.end() for job in jobs] == [0] * many
    with open(path, encoding="utf-8") as file:
        assert int(file.read()) == many
    assert locks.names() == []
