"""The life of a server: prepared in a folder of its own, started, probed, paused, killed, restarted, removed."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Protocol

from holdfast.testing.closing import Closes
from holdfast.testing.ports import ReservedPort
from holdfast.testing.servers import process
from holdfast.testing.servers.machines import next_machine
from holdfast.testing.servers.needs import cache_folder, missing, needs

START_SECONDS = 60.0
STOP_SECONDS = 15.0
MEND_SECONDS = 20.0  # after which a server that was paused, on a busy machine too, is no longer slow but broken
PROBE_SECONDS = 2.0
_LOG_TAIL = 3000


class ServerError(RuntimeError):
    """A server did not do as told. The message ends with the last lines of its log.

    ServerError
    ├── NotInstalled     it is not on this machine
    └── AddressInUse     somebody else has its port: build another, on other ports
    """


class NotInstalled(ServerError):
    pass


class AddressInUse(ServerError):
    pass


class Server(Closes, ABC):
    """A real server on loopback ports of its own. A kind says how to prepare, start and probe it."""

    scheme: ClassVar[str]
    port_count: ClassVar[int] = 1
    account: ClassVar[str | None] = None  # whom it runs as when the tests run as root
    quit_signal: ClassVar[signal.Signals] = signal.SIGTERM  # asks for an orderly end
    prepared_once: ClassVar[bool] = False  # to prepare it takes seconds: done once for this program, and then copied

    def __init__(self, kind: str, extra: tuple[str, ...] = (), environ: Mapping[str, str] | None = None) -> None:
        absent = missing((kind,))
        if absent:
            what = " and ".join(map(str, absent[kind]))
            raise NotInstalled(f"{kind} needs {what}. Run: python -m holdfast.testing.servers install {kind}")
        self.kind = kind
        self.program = str(needs(kind)[0].find())
        self.extra = extra
        self.machine = next_machine()
        self.environ = {**self.machine.environ, **(environ or {})}
        self.user = self.account if os.geteuid() == 0 else None
        self.folder = process.nest().new_folder(kind)
        self.data = self.folder / "data"
        self._log = self.folder / "log"
        self._ports = [ReservedPort() for _ in range(self.port_count)]
        self.peers: Sequence[Server] = ()  # the members of its cluster, itself among them
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        _alive.add(self)

    @abstractmethod
    def command(self) -> list[str]:
        """The command line that starts it in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """True when it serves requests. Any OSError, too, means not yet."""

    def prepare(self) -> None:
        """Fill the empty data folder with what the first start needs. Many need nothing."""
        return

    def writes(self) -> bool:
        """True when it has just taken a write, and its cluster with it: of some, to answer says less than that."""
        return self.answers()

    def leads(self) -> bool:
        """True when it is the leader of its cluster."""
        raise ServerError(f"{self.kind} has no one leader: its nodes are equals, or know nothing of each other")

    @property
    def ports(self) -> list[int]:
        return [port.number for port in self._ports]

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def host(self) -> str:
        return self.machine.host

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    @property
    def log(self) -> str:
        """All it has printed, over all restarts."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = START_SECONDS) -> None:
        """Start and wait until it answers."""
        self.launch()
        self.await_answer(timeout)

    def launch(self) -> None:
        """Start without waiting: the members of a cluster answer only when all have been launched."""
        if self.running:
            raise ServerError(f"{self} runs already: restart() it")
        if not self.data.exists():
            self.data.mkdir(mode=0o700)
            self.machine.furnish(self.data)
            if self.user:
                shutil.chown(self.data, self.user)
            try:
                self._prepare()
            except BaseException:
                self._discard()  # half prepared is worse than empty: the next launch begins anew
                raise
        self._process = process.spawn(
            self.machine.command(self.command()), self.data, self._log, self.environ, self.user
        )

    def await_answer(self, timeout: float = START_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while True:
            answered = self._answers()
            if not self.running:  # then it was not this server that answered, if anyone did
                kind = AddressInUse if "in use" in self.log.lower()[-_LOG_TAIL:] else ServerError
                raise kind(f"{self} ended instead of starting.{self._last_words()}")
            if answered:
                return
            if time.monotonic() > deadline:
                raise ServerError(f"{self} did not answer within {timeout} s.{self._last_words()}")
            time.sleep(0.01)

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections and its port, and is silent."""
        process.pause(self._running().pid)

    def resume(self) -> None:
        """SIGCONT."""
        process.resume(self._running().pid)

    def kill(self) -> None:
        """kill -9, with all its processes. The data stays for restart()."""
        process.kill(self._running())

    def restart(self, *, empty: bool = False, timeout: float = START_SECONDS) -> None:
        """Start again on the same port, after an orderly end if it still runs; `empty`: as if its disk were new."""
        self._quit()
        if empty:
            self._discard()
        self.start(timeout)

    def revive(self) -> None:
        """It runs, whatever was done to it: launched if it has ended, resumed if it was paused. Without waiting."""
        if self.running:
            self.resume()
        else:
            self.launch()

    def mend(self, patience: float = MEND_SECONDS) -> None:
        """Before it is used again by others: it runs and takes writes. Restarted if it does not come to itself, and said so."""
        mend(self, [self], self.writes, patience)

    def stop(self) -> None:
        """End it and leave nothing: no process, no folder, no port. Whatever state it is in; more than once, too."""
        if os.getpid() != self._owner:
            return  # a forked child's copy: the server belongs to the parent
        if self.running:
            self.kill()
        self._discard()
        shutil.rmtree(self.folder, ignore_errors=True)
        for port in self._ports:
            port.close()
        _alive.discard(self)

    def close(self) -> None:
        self.stop()

    def __str__(self) -> str:
        return f"{self.kind} at {self.host}:{self.port}"

    def _prepare(self) -> None:
        if (
            not vars(type(self)).get("prepared_once") or self.environ
        ):  # a class derived from it may prepare something else
            self.prepare()
            return
        program = os.stat(self.program)
        made = cache_folder() / "prepared" / f"{self.kind}-{program.st_ino}-{program.st_size}-{program.st_mtime_ns}"
        if made.exists():
            _copy(made, self.data)
            return
        self.prepare()
        made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent, prefix="making-") as name:
            copy = Path(name) / "data"
            copy.mkdir(mode=0o700)
            _copy(self.data, copy)
            with suppress(OSError):  # somebody else was quicker
                copy.rename(made)

    def run_tool(self, command: list[str]) -> None:
        """Run a program that prepares the data folder, as the server's own user."""
        tool = process.spawn(command, self.data, self._log, self.environ, self.user)
        try:
            code = tool.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill(tool)
            raise ServerError(f"{command[0]} did not end within {START_SECONDS} s.{self._last_words()}") from None
        if code != 0:
            raise ServerError(f"{command[0]} failed with {code}.{self._last_words()}")

    def write(self, path: Path, text: str) -> None:
        """Write a file that the server's own user can read."""
        path.write_text(text)
        if self.user:
            shutil.chown(path, self.user)

    def _answers(self) -> bool:
        try:
            return self.answers()
        except OSError:
            return False

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise ServerError(f"{self} does not run: restart() it.{self._last_words()}")
        return self._process

    def _quit(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(self.quit_signal)
        process.resume(self._process.pid)  # a paused one would never hear of it
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill(self._process)

    def _discard(self) -> None:
        """Remove the data."""
        self.machine.clear(self.data)
        shutil.rmtree(self.data, ignore_errors=True)

    def _last_words(self) -> str:
        return f" The end of its log:\n{self.log[-_LOG_TAIL:]}"


def _copy(source: Path, target: Path) -> None:
    """What is in that folder, with its owners and modes."""
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)


def poll(condition: Callable[[], bool], timeout: float, what: str) -> None:
    """Look until the condition holds; that a server cannot be asked just now means not yet."""
    deadline = time.monotonic() + timeout
    last: OSError | None = None
    while True:
        try:
            if condition():
                return
        except OSError as error:
            last = error
        if time.monotonic() > deadline:
            raise ServerError(f"waited {timeout:.1f} s for {what}; the last error was {last!r}")
        time.sleep(0.02)


def mend(what: Startable, servers: Sequence[Server], whole: Callable[[], bool], patience: float) -> None:
    for server in servers:
        server.revive()
    try:
        poll(whole, patience, f"{what} to take writes")
    except ServerError as error:
        warnings.warn(f"a server was restarted: {error}", stacklevel=3)
        for server in servers:
            if server.running:
                server.kill()
        what.start()
        poll(whole, START_SECONDS, f"{what} to take writes, restarted")


class Startable(Protocol):
    def start(self) -> None: ...


_alive: set[Server] = set()


@atexit.register
def _stop_all() -> None:
    """At an orderly exit of the interpreter; the watcher sees to the rest."""
    for server in list(_alive):
        server.stop()
