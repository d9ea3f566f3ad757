"""Where a server runs: at which address, by which clock, on which disk.

Usually on this machine, as it is. As root on Linux, servers can be given machines of their own, with nothing of it visible from
outside: a network namespace each, joined by one of ours that routes between them (so that two of them can be parted, while
clients still reach both), and a small disk in memory each (so that it can be filled).

    with PrivateMachines(network=True, megabytes=256) as machines, rented(machines.new):
        with servers.cluster("etcd", 3) as cluster:
            machines.part(cluster.members[0].machine, cluster.members[1].machine)
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.testing.closing import Closes
from holdfast.testing.ports import LOOPBACK

_NEW_NETWORK, _NEW_MOUNTS = 0x40000000, 0x00020000
_SECONDS = 30.0
_BALLAST = "ballast"


class Machine:
    """This machine."""

    host = LOOPBACK

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = dict(environ or {})

    def command(self, words: Sequence[str]) -> list[str]:
        """What starts a program there."""
        return list(words)

    def furnish(self, folder: Path) -> None:
        """The disk of a server that is about to be prepared: an empty folder."""

    def clear(self, folder: Path) -> None:
        """Before that folder is removed."""


class PrivateMachine(Machine):
    """`keeper` is a process in its network namespace, which ends when we do; without one it shares ours."""

    def __init__(self, host: str, keeper: subprocess.Popen[bytes] | None, megabytes: int) -> None:
        super().__init__()
        self.host = host
        self.keeper = keeper
        self._megabytes = megabytes
        self._disks: list[Path] = []

    def command(self, words: Sequence[str]) -> list[str]:
        return [*words] if self.keeper is None else ["nsenter", f"--net=/proc/{self.keeper.pid}/ns/net", "--", *words]

    def furnish(self, folder: Path) -> None:
        _run("mount", "-t", "tmpfs", "-o", f"size={self._megabytes}m,mode=0700", "holdfast", str(folder))
        self._disks.append(folder)

    def clear(self, folder: Path) -> None:
        if folder in self._disks:
            _run("umount", "--lazy", str(folder))
            self._disks.remove(folder)

    def fill_disk(self) -> None:
        """Until nothing more fits: what writes now is told that the disk is full."""
        for folder in self._disks:
            file = os.open(folder / _BALLAST, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                size, step = 0, self._megabytes << 20
                while step >= 4096:
                    try:
                        os.posix_fallocate(file, size, step)
                        size += step
                    except OSError:
                        step //= 2
            finally:
                os.close(file)

    def free_disk(self) -> None:
        for folder in self._disks:
            (folder / _BALLAST).unlink(missing_ok=True)


_HERE: Callable[[], Machine] = Machine
_landlord = _HERE


def next_machine() -> Machine:
    """For a server that is about to be built."""
    return _landlord()


@contextmanager
def rented(new: Callable[[], Machine]) -> Iterator[None]:
    """Servers that are built in here run on these machines."""
    global _landlord
    _landlord = new
    try:
        yield
    finally:
        _landlord = _HERE


class PrivateMachines(Closes):
    """OSError if this user may not have any. The thread that makes it, and all that it starts, are in the private network until
    `close`; in the private view of disks they stay, which only differs by ours."""

    def __init__(self, network: bool, megabytes: int) -> None:
        self._megabytes = megabytes
        self._network = network
        self._before = -1
        self._machines: list[PrivateMachine] = []
        self._rules: list[tuple[str, ...]] = []
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(_NEW_MOUNTS) != 0:
            raise OSError(ctypes.get_errno(), "no private disks")
        _run("mount", "--make-rslave", "/")
        if network:
            self._before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            if libc.unshare(_NEW_NETWORK) != 0:
                os.close(self._before)
                raise OSError(ctypes.get_errno(), "no private network")
            try:
                _run("ip", "link", "set", "lo", "up")
                Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
            except OSError:
                self.close()
                raise

    def new(self) -> PrivateMachine:
        number = len(self._machines)
        if not self._network:
            return PrivateMachine(LOOPBACK, None, self._megabytes)
        keeper = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        machine = PrivateMachine(f"10.77.{number}.2", keeper, self._megabytes)
        self._machines.append(machine)
        self._connect(number, machine)
        return machine

    def _connect(self, number: int, machine: PrivateMachine) -> None:
        """A cable to it, and the way from it to all others through ours."""
        assert machine.keeper is not None
        _wait_for_own_network(machine.keeper.pid)
        gateway, inside = f"10.77.{number}.1", machine.command(["ip"])
        _run(
            "ip", "link", "add", f"to{number}", "type", "veth", "peer", "name", "eth0", "netns", str(machine.keeper.pid)
        )
        _run("ip", "address", "add", f"{gateway}/24", "dev", f"to{number}")
        _run("ip", "link", "set", f"to{number}", "up")
        _run(*inside, "link", "set", "lo", "up")
        _run(*inside, "address", "add", f"{machine.host}/24", "dev", "eth0")
        _run(*inside, "link", "set", "eth0", "up")
        _run(*inside, "route", "add", "default", "via", gateway)

    def part(self, one: Machine, other: Machine) -> None:
        """Nothing goes from one to the other any more, nor back."""
        for source, target in ((one, other), (other, one)):
            rule = ("from", source.host, "to", target.host, "blackhole")
            _run("ip", "rule", "add", *rule)
            self._rules.append(rule)

    def join(self) -> None:
        """All reach each other again."""
        while self._rules:
            _run("ip", "rule", "delete", *self._rules.pop())

    def close(self) -> None:
        for machine in self._machines:
            if machine.keeper is not None and machine.keeper.stdin is not None:
                machine.keeper.stdin.close()
                machine.keeper.wait(_SECONDS)
        self._machines.clear()
        if self._before >= 0:
            ctypes.CDLL(None).setns(self._before, 0)
            os.close(self._before)
            self._before = -1


def _wait_for_own_network(pid: int) -> None:
    """unshare(1) is another program until it has done its work."""
    until = time.monotonic() + _SECONDS
    ours = os.stat("/proc/thread-self/ns/net").st_ino
    while True:
        with suppress(FileNotFoundError):
            if os.stat(f"/proc/{pid}/ns/net").st_ino != ours:
                return
        if time.monotonic() > until:
            raise OSError(f"process {pid} has no network of its own after {_SECONDS:g} s")
        time.sleep(0.002)


def _run(*words: str) -> None:
    """OSError says what failed."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise OSError(str(error)) from None
    if done.returncode != 0:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
