"""From a host's name to a connected socket, by a deadline; written once, for threads and for asyncio.

getaddrinfo() knows no deadline, and cannot be interrupted. So it runs in a thread of its own, which whoever asked waits for
until its deadline and no longer: the thread is left to come home by itself (a resolver gives up after some seconds), is
shared by all who ask for the same name meanwhile, and does not keep the process from ending. (asyncio's own way is its
executor, whose threads do: `asyncio.run` would wait for them.) An address in numbers needs none of that.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable
from ssl import SSLEOFError, SSLError, SSLSyscallError, SSLZeroReturnError
from typing import Any, TypeVar

from .base import Address, Bell, boot_time
from .starting import start
from .system import at_fork

S = TypeVar("S")
Found = list[tuple[Any, Any, int, str, Any]]
# Killed, or with too much to do, in the middle of the handshake: no certificate is to blame, and it may be tried again.
_HUNG_UP = (SSLEOFError, SSLZeroReturnError, SSLSyscallError)
_lookups: dict[Address, _Lookup] = {}


class _Lookup:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._bells: list[Bell] = []
        self.found: Found = []
        self.trouble: OSError | None = None
        self.done = False

    def tell(self, bell: Bell) -> None:
        self._bells.append(bell)
        if self.done:
            bell.ring()

    def run(self) -> None:
        try:
            self.found = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError: no name at all, by the rules of IDNA
            self.trouble = error if isinstance(error, OSError) else OSError(f"no name of a host: {error}")
        self.done = True
        if _lookups.get(self._address) is self:
            _lookups.pop(self._address, None)
        for bell in list(self._bells):
            bell.ring()


def _forked() -> None:
    _lookups.clear()  # their threads stayed with the parent


at_fork(after_in_child=_forked)


async def look_up(address: Address, bell: Bell, deadline: float) -> Found:
    with contextlib.suppress(OSError, UnicodeError):
        return socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    lookup = _lookups.get(address)
    if lookup is None:
        lookup = _lookups[address] = _Lookup(address)
        try:
            start(lookup.run, "holdfast-lookup")
        except RuntimeError:  # the interpreter is about to end: no more threads
            lookup.run()
        except BaseException:
            _lookups.pop(address, None)
            raise
    lookup.tell(bell)
    while not lookup.done:
        left = deadline - boot_time()
        if left <= 0:
            raise TimeoutError("its name was not found in time")
        await bell.wait(left)
    if lookup.trouble is not None:
        raise OSError(*lookup.trouble.args)  # one of its own for each who asked
    return lookup.found


async def dial(
    address: Address,
    bell: Bell,
    deadline: float,
    open_one: Callable[[socket.socket, Any, float], Awaitable[S]],
) -> S:
    """What `open_one(socket, where, until)` makes of the first of the host's addresses that answers."""
    trouble: OSError = TimeoutError("no answer in time")
    found = await look_up(address, bell, deadline)
    for at, (family, kind, protocol, _, where) in enumerate(found):
        now = boot_time()
        if now >= deadline:
            break
        plain = socket.socket(family, kind, protocol)
        try:
            plain.setblocking(False)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return await open_one(plain, where, now + (deadline - now) / (len(found) - at))
        except _HUNG_UP:
            plain.close()
            trouble = ConnectionResetError("it hung up in the middle of TLS")
        except SSLError:
            plain.close()
            raise  # it is the right host, and no other address of it would please us more
        except OSError as error:
            plain.close()
            trouble = error
        except BaseException:
            plain.close()
            raise
    raise trouble


def is_local(host: str) -> bool:
    """This machine itself: what is said there travels on no network. A path is that of a socket."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    from ipaddress import ip_address

    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
