"""What a worker does with somebody else's lock: take it, read the register, think, look if it is still held, think, write."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

from ...errors import StaleToken
from ...testing.history import ACQUIRE, CHECK, DONE, FAILED, GRANTED, LEFT, LOST, READ, RELEASE, STALE, WRITE
from ..journal import Journal
from ..plan import HOLD
from ..register import Place, Register
from ..turns import IN_THE_GAP
from .adapters import Adapter, adapter

NAMES = 3
_NOBODY = 1  # the token of those who have none: the register does not look at it


def work(url: str, told: dict[str, Any], stop: threading.Event) -> None:
    journal = Journal(told["process"], Path(told["journal"]))
    register = Register(Place(*told["register"]), told["fenced"])
    library = adapter(told["library"])(url, told["ttl"])
    turns = Turns(library, register, journal, told["prefix"], told["ttl"], told["patience"])
    while not stop.is_set():
        turns.one(int((time.monotonic() - told["start"]) / told["era"]))
    register.close()
    journal.close()


class Turns:
    def __init__(
        self, library: Adapter, register: Register, journal: Journal, prefix: str, ttl: float, patience: float
    ) -> None:
        self._library, self._register, self._journal = library, register, journal
        self._prefix, self._ttl, self._patience = prefix, ttl, patience
        self._random = random.Random(journal.process)
        self._count = 0

    def one(self, era: int) -> None:
        self._count += 1
        name = f"{self._prefix}mutex.{self._random.randrange(NAMES)}.{era}"
        holder = f"{self._journal.process}.{self._count}"
        step = self._journal.step(ACQUIRE, name, ttl=self._ttl, holder=holder, detail="mutex")
        try:
            held = self._library.take(name, self._patience if self._random.random() < 0.5 else 0.3 * self._ttl)
        except Exception as error:  # whatever a library raises when its server is gone
            step.detail = f"mutex: {type(error).__name__}"
            held = None
            time.sleep(0.05)
        if held is None:
            step.end(time.monotonic(), FAILED)
            return
        token = self._library.token(held) or _NOBODY
        step.end(time.monotonic(), GRANTED, token)
        try:
            self._inside(name, holder, held, token)
        except StaleToken:
            pass  # it is in the history
        finally:
            self._release(name, holder, held)

    def _inside(self, name: str, holder: str, held: Any, token: int) -> None:
        tokens = {name: token}
        read = self._journal.step(READ, name, token=token, holder=holder)
        try:
            base = self._register.read(tokens)[name]
        except StaleToken:
            read.end(time.monotonic(), STALE)
            raise
        read.value = ((base, 0),) if base else ()
        read.end(time.monotonic(), DONE)
        self._think()
        if not self._still(name, holder, held, token):
            return
        self._think()
        write = self._journal.step(WRITE, name, token=token, holder=holder, value=((holder, token),))
        try:
            self._register.write(tokens, {name: base}, holder)
        except StaleToken:
            write.end(time.monotonic(), STALE)
            raise
        write.end(time.monotonic(), DONE)

    def _still(self, name: str, holder: str, held: Any, token: int) -> bool:
        """As a careful user would: it looks, and does not write if it is told that the lock is lost."""
        step = self._journal.step(CHECK, name, holder=holder, token=token, detail=IN_THE_GAP)
        try:
            held_still = self._library.look(held) is not False
        except Exception:
            held_still = False
        step.end(time.monotonic(), DONE if held_still else LOST)
        return held_still

    def _release(self, name: str, holder: str, held: Any) -> None:
        step = self._journal.step(RELEASE, name, holder=holder)
        try:
            self._library.give(held)
        except Exception as error:
            step.detail = type(error).__name__
            step.end(time.monotonic(), FAILED)
        else:
            step.end(time.monotonic(), LEFT)

    def _think(self) -> None:
        time.sleep(self._random.uniform(0, HOLD))
