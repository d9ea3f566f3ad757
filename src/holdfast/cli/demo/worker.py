"""One of the processes. It does what it is told on standard input, a word a line, and answers each with a line.

Told step by step, so that the race happens by arrangement and not by luck, on a loaded machine as on an idle one.
"""

from __future__ import annotations

import logging
import sys

import holdfast

from .bank import DEPOSIT, Account


class Worker:
    def __init__(self, name: str, bank: str, url: str, ttl: str) -> None:
        self._ttl = float(ttl)
        self._bank = bank
        self._locks = holdfast.connect(url, label=name)
        self._account = Account(bank, "act 1")
        self._fenced = False
        self._lease: holdfast.Lease | None = None
        self._balance = 0

    def do(self, word: str, *rest: str) -> str:
        method = getattr(self, f"do_{word}")
        return str(method(*rest))

    def do_open(self, account: str, fenced: str) -> str:
        """A new act."""
        self._account.close()
        self._account = Account(self._bank, account.replace("_", " "))
        self._fenced = fenced == "fenced"
        return "opened"

    def do_acquire(self) -> str:
        self._lease = self._locks.lock(self._account.name, ttl=self._ttl).acquire()
        return f"holds {self._lease.token}"

    def do_check(self) -> str:
        assert self._lease is not None
        self._lease.check()
        return "ok"

    def do_read(self) -> str:
        self._balance = self._account.read(self._token)
        return f"read {self._balance}"

    def do_write(self) -> str:
        """Straight away, as one does after having checked."""
        try:
            self._account.write(self._balance + DEPOSIT, self._token)
        except holdfast.StaleToken as error:
            return f"refused {error.seen}"
        return f"wrote {self._balance + DEPOSIT}"

    def do_release(self) -> str:
        assert self._lease is not None
        lease, self._lease = self._lease, None
        return "released" if lease.release() else "lost"

    @property
    def _token(self) -> int | None:
        return self._lease.token if self._fenced and self._lease else None


def main() -> None:
    logging.getLogger("holdfast").addHandler(logging.NullHandler())  # the losses are the play: the director tells them
    worker = Worker(*sys.argv[1:])
    print("ready", flush=True)
    for line in sys.stdin:
        print(worker.do(*line.split()), flush=True)


if __name__ == "__main__":
    main()
