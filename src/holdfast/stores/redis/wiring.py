"""What the store asks of its connections: the same for threads, for asyncio, for a cluster and in the simulator."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from ...drivers.base import Bell, Driver
from ...errors import HoldfastError, Unavailable
from .replies import Reply
from .url import Address

if TYPE_CHECKING:
    from ssl import SSLContext


class Told(Protocol):
    """Who is told an answer: a future, or whatever else can bear to be told in the middle of others."""

    def done(self) -> bool: ...
    def set_result(self, result: Reply, /) -> None: ...
    def set_exception(self, exception: HoldfastError, /) -> None: ...


class Answers:
    """Told the answers to some requests on one connection, which come in their order: an error, if that is all there is."""

    __slots__ = ("_bell", "_count", "replies")

    def __init__(self, count: int, bell: Bell) -> None:
        self.replies: list[Reply] = []
        self._count = count
        self._bell = bell

    def done(self) -> bool:
        return False  # if nobody waits any more, it is still taken off, and given to nobody

    def set_result(self, reply: Reply) -> None:
        self.replies.append(reply)
        if len(self.replies) == self._count:
            self._bell.ring()

    set_exception = set_result

    async def are_there(self, driver: Driver, deadline: float) -> bool:
        while len(self.replies) < self._count and (left := deadline - driver.now()) > 0:
            await self._bell.wait(left)
        return len(self.replies) == self._count


class Listener(Protocol):
    """Told what a connection says that it was not asked."""

    def heard(self, message: Reply) -> None: ...
    def lost(self, pipe: Any) -> None: ...


Doubted = Callable[[Any], None]


class Pipe(Protocol):
    """A connection that many share: requests follow each other unanswered, replies belong to them in order."""

    def is_good(self) -> bool:
        """Open, and to be used from here."""
        ...

    def is_alive(self) -> bool:
        """Open, and somebody reads it."""
        ...

    def ask(self, request: bytes) -> Awaitable[Reply]: ...
    def put(self, request: bytes, reply: Told) -> None:
        """Ask, and let it be told the answer as soon as it is read; or what kept it from being answered."""
        ...

    def tell(self, request: bytes) -> None:
        """Without an answer of its own."""
        ...

    def expect_long(self, count: int) -> None:
        """The next so many answers may be long."""
        ...

    def owed(self) -> Iterable[Told]:
        """Who was not answered yet."""
        ...

    def in_its_loop(self, action: Callable[[], None]) -> None:
        """From any thread."""
        ...

    def fail(self, error: Unavailable) -> None:
        """It is no good: all who wait for an answer are told so, and it is not used again."""
        ...

    def disown(self) -> None: ...


class DoubtedPipe(Pipe, Protocol):
    """One that may be found to be alone with its silence: see ../kit/doubts.py."""

    timeout: float  # seconds that an answer may take
    doubted: ref[Doubted] | None  # called now and then, while it has been silent for a moment and owes an answer

    @property
    def heard(self) -> int:
        """Grows with everything that comes."""
        ...

    def give_up(self, error: Unavailable) -> None:
        """`fail`; and nothing of what it was asked arrives any more."""
        ...

    def close(self) -> None: ...


class OpenPipe(Protocol):
    """Connected, by a deadline of the driver's clock; OSError: it was not."""

    def __call__(
        self, address: Address, tls: SSLContext | None, timeout: float, listener: Listener | None, deadline: float
    ) -> Awaitable[DoubtedPipe]: ...


class Ear(Protocol):
    """Hears bells. Opened by the first waiter, kept from then on."""

    @property
    def channel(self) -> bytes: ...
    @property
    def is_open(self) -> bool: ...
    async def open(self, within: float) -> None: ...
    def expect(self, what: bytes) -> Any: ...
    def forget(self, bell: Any) -> None: ...
    async def follow(self, bell: Any, within: float) -> None: ...
    def unfollow(self, bell: Any) -> None: ...
    async def hear(self, bell: Any, timeout: float) -> None: ...
    def wake_waiters(self) -> None: ...


class Wire(Protocol):
    """The connections of one store. Raises Unavailable when one fails; a server's error is a reply like any other.

    A conversation takes `within` seconds at most, and never longer than the URL's timeout. If its connection breaks, it is
    repeated once, on a new one, unless it must be asked `once`; but not by `ask` and `ask_slowly`, which leave that to us: see
    RedisStore._ask and RedisStore.claim.
    """

    @property
    def where(self) -> str: ...
    @property
    def ear(self) -> Ear: ...
    @property
    def reached(self) -> bool:
        """False: it has never in its life been let in."""
        ...

    def ask(self, request: bytes, within: float) -> Awaitable[Reply]: ...
    async def ask_all(self, requests: Sequence[bytes], within: float, *, once: bool = False) -> list[Reply]:
        """In order, on one connection. Replies may be long."""
        ...

    async def ask_slowly(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """The same of what the server may think about for long: nobody else waits for it."""
        ...

    async def ask_apart(self, requests: Sequence[bytes], within: float) -> list[Reply]:
        """On connections that user work cannot keep busy. Never raises: for a request that got no answer, why not."""
        ...

    async def parts(self, within: float) -> Sequence[Wire]:
        """Itself; of a cluster, the wires of its nodes."""
        ...

    def reset(self) -> None: ...
    def forked(self) -> None: ...
    async def close(self) -> None: ...
