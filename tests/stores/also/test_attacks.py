"""`also=` under attack: forks, kills, Ctrl-C, lost answers and silent servers, on the side of the old lock.

Whatever happens, old and new code are never inside together while both have their locks, and no lock outlives its ttl by much.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast.claim import Claim
from holdfast.drivers.base import finish
from holdfast.drivers.threads import Threads
from holdfast.stores import also
from holdfast.stores.also import nodes
from holdfast.stores.also.old import Names
from holdfast.testing.conformance.lines import Tracer
from holdfast.testing.proxy.proxy import Proxy

from .rivals import NAME, Format, Rival
from .test_also import DEADLINE, until

pytestmark = pytest.mark.server
_TRIES = int(os.environ.get("HOLDFAST_ROUNDS", "3"))  # chunks of answers to lose, one after the other
ALSO = str(Path(also.__file__).parent)

PROGRAM = """
import os, sys, time, holdfast
from holdfast.stores.also import nodes
nodes._SESSION = 4.0  # seconds until ZooKeeper ends what nobody keeps
locks = holdfast.connect(sys.argv[1], also=sys.argv[2])
lease = locks.lock("42", ttl=3).acquire(timeout=30)
"""
FORKS = (
    PROGRAM
    + """
child = os.fork()
if child == 0:
    assert not lease.held and lease.release() is False
    assert locks.lock("42").try_acquire() is None
    with locks.lock("43", timeout=30) as mine:
        mine.check()
    sys.exit(0)  # with its exit handlers
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
lease.renew()
print("inside", flush=True)
sys.stdin.readline()
lease.release()
print("outside", flush=True)
sys.stdin.readline()
"""
)
KILLED = (
    PROGRAM
    + """
if os.fork() == 0:  # it has inherited every connection, and outlives its parent
    sys.stdin.read()
    os._exit(0)
print("inside", flush=True)
time.sleep(600)
"""
)


@contextlib.contextmanager
def running(program: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", program, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'locks.db'}"


@pytest.fixture
def wire(remote: Format) -> Iterator[tuple[str, Proxy]]:
    """`also=` by way of a proxy, and the proxy."""
    found = re.search(r"127\.0\.0\.1:(\d+)", remote.also)
    assert found
    with contextlib.closing(Proxy(("127.0.0.1", int(found[1])))) as proxy:
        yield remote.also.replace(found[0], f"127.0.0.1:{proxy.port}"), proxy


def after(chunks: int) -> Callable[[bytes], bool]:
    """Not the first so many."""
    count = itertools.count()
    return lambda _: next(count) >= chunks


def test_a_forked_child_owns_nothing_and_takes_nothing_away(remote: Format, remote_rival: Rival, file: str) -> None:
    with running(FORKS, file, remote.also) as process:
        assert says(process) == "inside"
        assert not remote_rival.take()
        tell(process)
        assert says(process) == "outside"
        assert remote_rival.take()
        remote_rival.give_back()
        tell(process)


def test_who_is_killed_keeps_nobody_out_though_a_child_lives_on(remote: Format, remote_rival: Rival, file: str) -> None:
    with running(KILLED, file, remote.also) as process:
        assert says(process) == "inside"
        assert not remote_rival.take()
        os.kill(process.pid, signal.SIGKILL)
        until(remote_rival.take)
        remote_rival.give_back()


class InAlso(Tracer):
    """As if by Ctrl-C, at each line of `also=` that this thread executes."""

    def _call(self, frame: FrameType, event: str, arg: Any) -> Any:
        return super()._call(frame, event, arg) if frame.f_code.co_filename.startswith(ALSO) else None


def test_interrupted_at_any_line_it_leaves_nothing_behind(form: Format, rival: Rival, url: str) -> None:
    with holdfast.connect(url, also=form.also) as locks, holdfast.connect(url) as without:

        def acquire_and_release() -> None:
            locks.lock(NAME, ttl=60).acquire(timeout=DEADLINE).release()

        acquire_and_release()  # connected
        line = 0
        while (tracer := InAlso(line)).run(acquire_and_release) or tracer.where:
            until(rival.take)
            rival.give_back()
            without.lock(NAME).acquire(timeout=DEADLINE).release()
            line += 1
        assert line > 10
        acquire_and_release()  # and it still works


def test_answers_that_are_lost_leave_nothing_behind(remote_rival: Rival, wire: tuple[str, Proxy], url: str) -> None:
    """From the n-th chunk on: what it was the answer to has happened, and nobody was told. Then the connection breaks."""
    through, proxy = wire
    for nth in range(_TRIES):
        with holdfast.connect(url, also=through) as locks, holdfast.connect(url) as without:
            proxy.to_client.drop(when=after(nth))
            with contextlib.suppress(holdfast.HoldfastError):
                locks.lock(NAME, ttl=1).acquire(timeout=0.5).release()
            proxy.cut(reset=True)
            proxy.flow()
            until(remote_rival.take)
            remote_rival.give_back()
            without.lock(NAME).acquire(timeout=DEADLINE).release()


def test_a_cut_while_it_ends_is_no_ghost(remote_rival: Rival, wire: tuple[str, Proxy], url: str) -> None:
    """The session outlives the cut: what could not be let go in time is let go afterwards."""
    through, proxy = wire
    with holdfast.connect(url, also=through) as locks:
        lease = locks.lock(NAME, ttl=1, renew=False).acquire(timeout=DEADLINE)
        proxy.refuse()
        proxy.cut()
        until(lambda: not lease.held)
        proxy.accept()
        until(remote_rival.take)
        remote_rival.give_back()


@pytest.mark.parametrize("remote", ["kazoo"], indirect=True)
def test_what_could_not_be_let_go_during_a_cut_is_let_go_after_it(
    remote_rival: Rival, wire: tuple[str, Proxy], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, remove = threading.Event(), nodes.Nodes._remove

    def removing(self: nodes.Nodes, node: nodes.Node) -> None:
        try:
            remove(self, node)
        except Exception:
            failed.set()
            raise

    monkeypatch.setattr(nodes.Nodes, "_remove", removing)
    through, proxy = wire
    with holdfast.connect(url, also=through) as locks:
        lease = locks.lock(NAME, ttl=1, renew=False).acquire(timeout=DEADLINE)
        monkeypatch.setattr(nodes, "_SECONDS", 0.1)
        proxy.refuse()
        proxy.cut()
        assert failed.wait(DEADLINE)
        assert not lease.held
        monkeypatch.setattr(nodes, "_SECONDS", 3.0)
        proxy.accept()
        until(remote_rival.take)
        remote_rival.give_back()


@pytest.mark.parametrize("form", ["kazoo"], indirect=True)
def test_a_node_that_was_made_unknown_to_us_is_let_go(
    form: Format, rival: Rival, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its creation was not answered, and nobody gave it back: it is not left to stand while this process lives."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import ConnectionLoss

    create = KazooClient.create_async

    def unanswered(*args: Any, **kwargs: Any) -> Any:
        made = create(*args, **kwargs)
        if not kwargs.get("ephemeral"):
            return made
        made.get(timeout=DEADLINE)
        raise ConnectionLoss

    monkeypatch.setattr(KazooClient, "create_async", unanswered)
    old = nodes.open_format("kazoo", form.also.partition("+")[2].partition("?")[0], Names("/jobs/{name}"), Threads())
    with pytest.raises(holdfast.Unavailable, match="ConnectionLoss"):
        finish(old.take(Claim(NAME, "a holder", "host/1/thread", 1.0), DEADLINE))
    until(rival.take)
    rival.give_back()
    finish(old.close(1.0))


def test_a_silent_server_keeps_neither_close_nor_others_waiting(
    remote_rival: Rival, wire: tuple[str, Proxy], url: str
) -> None:
    through, proxy = wire
    locks = holdfast.connect(url, also=through)
    locks.lock(NAME, ttl=2).acquire(timeout=DEADLINE)
    proxy.to_client.hold()
    proxy.to_server.hold()
    started = time.monotonic()
    locks.close(timeout=1)
    assert time.monotonic() - started < 15
    proxy.flow()
    until(remote_rival.take)
    remote_rival.give_back()


def test_threads_go_home(form: Format, url: str) -> None:
    before = {thread for thread in threading.enumerate() if "holdfast-also" in thread.name}
    with holdfast.connect(url, also=form.also) as locks, locks.lock(NAME):
        pass
    until(lambda: not {one for one in threading.enumerate() if "holdfast-also" in one.name} - before)


def test_kazoo_has_what_is_used_of_it() -> None:
    """Its session's length, as the server granted it, is a private word of kazoo's: when that changes, this fails first."""
    from kazoo.client import KazooClient

    assert KazooClient(timeout=7.5)._session_timeout == 7500
    assert {"ensure_path_async", "create_async", "exists_async", "delete_async", "get_children_async"} <= set(
        dir(KazooClient)
    )


@pytest.mark.parametrize("form", ["kazoo"], indirect=True)
def test_kazoo_learns_how_long_a_session_the_server_grants(
    form: Format, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_SESSION", 100_000.0)  # no server grants that
    with holdfast.connect(url, also=form.also) as locks:
        lease = locks.lock(NAME, ttl=100_000).acquire(timeout=DEADLINE)
        assert 0 < lease.remaining() < 100_000
        lease.release()
