"""A process that does all that can be measured, over and over, until its standard input closes. Prints its port first."""

from __future__ import annotations

import sys
import threading
import time

from prometheus_client import start_http_server

import holdfast
from holdfast import fenced


def use(locks: holdfast.Locks, stop: threading.Event) -> None:
    while not stop.is_set():
        with locks.lock("invoice:42", ttl=0.6):
            stop.wait(0.3)


def lose(locks: holdfast.Locks) -> None:
    lease = locks.lock("report", ttl=0.05, renew=False).acquire()
    time.sleep(0.06)
    lease.release()


def be_refused(storage: fenced.Memory[int]) -> None:
    storage.write(("invoice:42", 7), 1)
    try:
        storage.write(("invoice:42", 6), 2)
    except holdfast.StaleToken:
        return
    raise AssertionError("a stale token passed")


def main() -> None:
    server, _ = start_http_server(0, "127.0.0.1")
    print(server.server_port, flush=True)
    stop = threading.Event()
    storage: fenced.Memory[int] = fenced.Memory()
    with holdfast.connect("memory://", observe=["prometheus"]) as locks:
        users = [threading.Thread(target=use, args=(locks, stop)) for _ in range(2)]
        for user in users:
            user.start()

        def trouble() -> None:
            while not stop.wait(0.3):
                lose(locks)
                be_refused(storage)

        troubled = threading.Thread(target=trouble)
        troubled.start()
        sys.stdin.read()
        stop.set()
        for thread in (*users, troubled):
            thread.join(10)


if __name__ == "__main__":
    main()
