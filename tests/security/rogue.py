"""Something on loopback that answers in the place of a server, and what becomes of whoever asks it for a lock."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import holdfast
import holdfast.aio

Answer = Callable[[socket.socket], None]


@contextlib.contextmanager
def rogue(answer: Answer, *, speaks_first: bool = False) -> Iterator[str]:
    """It gives this answer to whatever it is told; or at once, as some servers greet. Its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def converse(line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            if speaks_first:
                answer(line)
            while line.recv(65536):
                answer(line)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=converse, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def acquire(url: str) -> BaseException:
    locks = holdfast.connect(url)
    try:
        locks.lock("x").acquire(timeout=0)
    except Exception as error:
        return error
    finally:
        locks.close(timeout=0)
    raise AssertionError("it was granted")


def acquire_a(url: str) -> BaseException:
    async def main() -> BaseException:
        locks = holdfast.aio.connect(url)
        try:
            await locks.lock("x").acquire(timeout=0)
        except Exception as error:
            return error
        finally:
            await locks.close(timeout=0)
        raise AssertionError("it was granted")

    return asyncio.run(main())


WORLDS: dict[str, Callable[[str], BaseException]] = {"threads": acquire, "asyncio": acquire_a}
