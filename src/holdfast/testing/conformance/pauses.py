"""Holders that sleep past their ttl: stopped by a signal, or starved by a call that lets nothing else run."""

from __future__ import annotations

import ctypes
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ... import fenced
from ...errors import LeaseLost
from .world import PATIENCE, World

# Stops itself at the worst moment: the check has passed, the write has not begun.
_UNLUCKY = """
import os, sqlite3, sys, holdfast
from holdfast import fenced
from holdfast.testing.stopping import stop_myself
url, path, ttl = sys.argv[1:]
db = sqlite3.connect(path, isolation_level=None)
lease = holdfast.connect(url).lock("x", ttl=float(ttl)).acquire(timeout=20)
lease.check()
print(lease.token, flush=True)
stop_myself()
try:
    with fenced.transaction(db, lease) as tx:
        tx.execute("UPDATE account SET balance = 0")
    print("wrote")
except holdfast.StaleToken:
    print("refused")
try:
    lease.check()
    print("believes")
except holdfast.LeaseLost:
    print("knows")
sys.stdout.flush()
os._exit(0)
"""


class Pauses:
    def test_a_holder_stopped_between_check_and_write_is_refused_by_the_storage_and_knows_on_waking(
        self, world: World, tmp_path: Path
    ) -> None:
        """The successor has only read when the first one writes: its token was recorded all the same."""
        if world.traits.scope == "process":
            return  # it would have to be this one
        path = str(tmp_path / "bank")
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("CREATE TABLE account (balance INTEGER)")
        db.execute("INSERT INTO account VALUES (100)")
        fenced.create_table(db)
        a = world.actor("a")
        command = [sys.executable, "-c", _UNLUCKY, world.url, path, str(world.ttl_short)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as unlucky:
            try:
                assert unlucky.stdout is not None
                token = int(unlucky.stdout.readline())
                world.until(lambda: _is_stopped(unlucky.pid))
                lease = a.do(lambda locks: locks.lock("x").acquire(timeout=PATIENCE - 5))
                assert lease.token > token
                with fenced.transaction(db, ("x", lease.token)) as tx:
                    assert tx.execute("SELECT balance FROM account").fetchone() == (100,)
                os.kill(unlucky.pid, signal.SIGCONT)
                assert unlucky.stdout.read().split() == ["refused", "knows"]
            finally:
                unlucky.kill()
        assert db.execute("SELECT balance FROM account").fetchone() == (100,)
        db.close()
        assert lease.held
        assert a.do(lambda _: lease.release()) is True

    def test_a_holder_that_could_not_renew_for_its_whole_ttl_does_not_believe_in_its_lease(self, world: World) -> None:
        """The renewer is starved by a call that keeps the interpreter to itself: the local deadline ends the lease."""
        a = world.actor("a")
        lease = a.do(lambda locks: locks.lock("x", ttl=world.ttl_short).acquire())
        asleep = 1.5 * lease.remaining() + 0.05  # enough also if it was renewed just now
        started = time.monotonic()
        ctypes.PyDLL(None).usleep(int(asleep * 1_000_000))  # a PyDLL, unlike a CDLL, holds on to the interpreter's lock
        assert time.monotonic() - started > asleep
        assert not lease.held  # whatever the renewer has found out since
        with pytest.raises(LeaseLost):
            lease.check()
        b = world.actor("b")
        successor = b.do(lambda locks: locks.lock("x").acquire(timeout=PATIENCE - 5))
        assert successor.token > lease.token
        assert a.do(lambda _: lease.release()) is False
        assert successor.held
        b.do(lambda _: successor.release())


def _is_stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
