"""Clients in processes of their own, each writing down what it asked and was told: so that one of them can be killed.

    with Crowd(folder) as crowd:
        crowd.send(url, "w1", "threads", seconds=10)
        crowd.kill("w1")
        history = crowd.history(within=30)

Each takes one of a few locks in turn, and adds a line to storage that checks its token, until its time is over.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from .. import aio, fenced, sync
from ..errors import HoldfastError, StaleToken
from .history import ACQUIRE, CRASHED, DONE, FAILED, GRANTED, OPEN, STALE, WRITE, History, Operation, Recording, Written

NAMES = ("north", "south")
PATIENCE = 10.0  # how long a client waits for its turn: far longer than it should ever have to
INSIDE = 0.005
OUTSIDE = 0.03


class Journal(History):
    """A history that is on file the moment it happens."""

    def __init__(self, process: str, file: IO[str]) -> None:
        super().__init__()
        self._process = process
        self._file = file

    def alias(self, holder: str) -> str:
        return f"{self._process}.{super().alias(holder)}"

    def begin(self, operation: Operation) -> Operation:
        return super().begin(Written.begun(operation, len(self.operations), self.write))

    def write(self, operation: Written) -> None:
        fields = {field: getattr(operation, field) for field in Operation.__slots__}
        if operation.returned == OPEN:
            del fields["returned"]
        self._file.write(json.dumps({"number": operation.number, **fields}) + "\n")
        self._file.flush()


def read(file: Path) -> list[Operation]:
    """What a client wrote down. Its last line may be half a line, if it was killed."""
    found: dict[int, Operation] = {}
    for line in file.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            fields = json.loads(line)
            fields["value"] = tuple((update, token) for update, token in fields["value"])
            number = fields.pop("number")
            found[number] = Operation(**fields)
    return [found[number] for number in sorted(found)]


# ---- at home


class Crowd:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._storage = folder / "storage"
        with sqlite3.connect(self._storage, isolation_level=None) as db:
            db.execute("CREATE TABLE line (name TEXT, entry TEXT, token INTEGER)")
            fenced.create_table(db)
        db.close()
        self._clients: dict[str, subprocess.Popen[bytes]] = {}
        self._killed: dict[str, float] = {}

    def send(self, url: str, name: str, flavour: str, *, seconds: float, ttl: float) -> None:
        """Start a client, who works for so many seconds once it has begun."""
        told = [url, str(self._folder), name, flavour, str(seconds), str(ttl)]
        with (self._folder / f"{name}.err").open("wb") as errors:
            command = [sys.executable, "-W", "ignore", "-m", __name__, *told]
            self._clients[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors)

    def wait_for_all(self, within: float = 60.0) -> None:
        """Until everybody has asked for something."""
        end = time.monotonic() + within
        for name, client in self._clients.items():
            file = self._folder / f"{name}.history"
            while not (file.exists() and file.stat().st_size):
                assert client.poll() is None, self._errors(name)
                assert time.monotonic() < end, f"{name} did not begin within {within:g} s"
                time.sleep(0.01)

    def kill(self, name: str) -> None:
        self._clients[name].kill()
        self._clients[name].wait()
        self._killed[name] = time.monotonic()

    def history(self, within: float) -> History:
        """What all of them wrote down, when all have ended."""
        history = History()
        end = time.monotonic() + within
        for name, client in self._clients.items():
            try:
                code = client.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} did not end: {self._errors(name)}") from None
            assert code == 0 or name in self._killed, f"{name} failed: {self._errors(name)}"
            history.operations += read(self._folder / f"{name}.history")
        for name, at in self._killed.items():
            history.note(at, name, CRASHED)
        history.operations.sort(key=lambda one: one.invoked)
        db = sqlite3.connect(self._storage)
        for name in NAMES:
            found = db.execute("SELECT entry, token FROM line WHERE name = ? ORDER BY rowid", (name,)).fetchall()
            history.final[name] = tuple((entry, token) for entry, token in found)
        db.close()
        return history

    def _errors(self, name: str) -> str:
        return (self._folder / f"{name}.err").read_text(errors="replace")[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for client in self._clients.values():
            client.kill()
            client.wait()
            if client.stdin is not None:
                client.stdin.close()


# ---- in the client's own process


async def _settled(step: Any) -> Any:
    return await step if inspect.isawaitable(step) else step


class _Client:
    def __init__(self, folder: Path, process: str, ttl: float, journal: Journal) -> None:
        self._process = process
        self._ttl = ttl
        self._journal = journal
        self._random = random.Random(process)
        self._storage = sqlite3.connect(folder / "storage", isolation_level=None, timeout=PATIENCE)
        self._storage.execute("PRAGMA synchronous = OFF")

    async def work(self, locks: Any, seconds: float) -> None:
        engine = locks._engine
        recording = Recording(engine.store, self._journal, self._process, time.monotonic)
        engine.store = engine.renewer._store = engine.leaving._store = recording
        end = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < end:
            turn += 1
            with suppress(HoldfastError):
                await self._turn(locks, turn)
            await engine.driver.sleep(self._random.uniform(0, OUTSIDE))
        await _settled(locks.close())

    async def _turn(self, locks: Any, turn: int) -> None:
        name = self._random.choice(NAMES)
        taking = self._journal.begin(Operation(self._process, ACQUIRE, name, time.monotonic(), ttl=self._ttl))
        try:
            lease = await _settled(locks.lock(name, ttl=self._ttl).acquire(timeout=PATIENCE))
        except HoldfastError as error:
            taking.detail = f"{error!r:.100}"
            taking.end(time.monotonic(), FAILED)
            raise
        taking.end(time.monotonic(), GRANTED, lease.token)
        try:
            self._write(name, f"{self._process}.{turn}", lease.token)
            await locks._engine.driver.sleep(self._random.uniform(0, INSIDE))
        finally:
            await _settled(lease.release())

    def _write(self, name: str, entry: str, token: int) -> None:
        writing = Operation(self._process, WRITE, name, time.monotonic(), token=token, value=((entry, token),))
        writing = self._journal.begin(writing)
        try:
            with fenced.transaction(self._storage, (name, token)) as tx:
                tx.execute("INSERT INTO line VALUES (?, ?, ?)", (name, entry, token))
        except StaleToken:
            writing.end(time.monotonic(), STALE)
            raise
        writing.end(time.monotonic(), DONE)


def main(url: str, folder: str, process: str, flavour: str, seconds: str, ttl: str) -> None:
    from ..drivers.base import finish

    with open(os.path.join(folder, f"{process}.history"), "a") as file:
        client = _Client(Path(folder), process, float(ttl), Journal(process, file))
        if flavour == "threads":
            finish(client.work(sync.connect(url, label=process), float(seconds)))
            return

        async def connected() -> None:
            await client.work(aio.connect(url, label=process), float(seconds))

        loop = import_module(flavour).new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(connected())
        loop.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
