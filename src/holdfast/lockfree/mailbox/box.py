"""One key's mailbox and its supervision: what both surfaces share. Nothing here waits or locks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from ...claim import valid_name, valid_timeout
from ...drivers.base import boot_time
from ...errors import GaveUp, MailboxFull, Misuse

# Who waits for whom: the actors whose messages led, by asking, to the one being handled here.
chain: ContextVar[tuple[tuple[int, str], ...]] = ContextVar("holdfast_mailbox_chain", default=())

FAIR = 64  # messages of one key in a row, before the others have a turn

OnFailure = Callable[[str, Any, BaseException], object]


class Record:
    """What a `receive` with a journal returns: the events to append, and then to apply; and the answer to the asker."""

    __slots__ = ("events", "reply")

    def __init__(self, *events: Any, reply: Any = None) -> None:
        self.events = events
        self.reply = reply


class Envelope(NamedTuple):
    message: Any
    reply: Any = None  # a future, if somebody waits; its `begun` tells whether an actor was given the message
    asked_by: tuple[tuple[int, str], ...] = ()


def told(message: Any) -> Envelope:
    """An envelope without an asker, made in half the time."""
    return tuple.__new__(Envelope, (message, None, ()))


class Rules(NamedTuple):
    """How mailboxes behave; checked once."""

    capacity: int
    restarts: int
    within: float
    most_keys: int

    def checked(self) -> Rules:
        for name, value, least in (
            ("capacity", self.capacity, 1),
            ("restarts", self.restarts, 0),
            ("most_keys", self.most_keys, 1),
        ):
            if type(value) is not int or value < least:
                raise Misuse(f"{name} must be an int of at least {least}, not {value!r:.80}")
        if not valid_timeout(self.within):
            raise Misuse(f"within must be a number of seconds above 0, not {self.within!r:.80}")
        return self


class Box:
    """The mailbox of one key."""

    __slots__ = ("actor", "failures", "given_up", "key", "queue", "room", "running", "version")

    def __init__(self, key: str) -> None:
        self.key = key
        self.queue: deque[Envelope] = deque()
        self.actor: Any = None
        self.version = 0  # of its stream, if there is a journal
        self.running = False  # somebody is at it, or will be
        self.failures: deque[float] = deque()
        self.given_up: BaseException | None = None
        self.room: Any = None  # what senders wait for while it is full

    def failed(self, error: BaseException, rules: Rules) -> bool:
        """Forget the actor: the next message gets a new one. False: it failed too often, and no more will be made."""
        self.actor = None
        now = boot_time()
        self.failures.append(now)
        while self.failures[0] <= now - rules.within:
            self.failures.popleft()
        if len(self.failures) > rules.restarts:
            self.given_up = error
        return self.given_up is None

    def refused(self, rules: Rules) -> GaveUp:
        error = self.given_up
        return GaveUp(
            f"the actor {self.key!r} failed {rules.restarts + 1} times within {rules.within:g} s, the last time with "
            f"{type(error).__name__}: {str(error)[:200]}. It takes no messages until revive({self.key!r}); "
            f"{len(self.queue)} wait for that"
        )

    def withdraw(self, envelope: Envelope) -> bool:
        """Take it out again. False: it is not here any more."""
        for number, one in enumerate(self.queue):
            if one is envelope:  # not ==, which is the messages' own
                del self.queue[number]
                return True
        return False

    def askers(self) -> list[Envelope]:
        """Those who wait for an answer that will not come: taken out. What was only told stays, for a revival."""
        asking = [one for one in self.queue if one.reply is not None]
        rest = [one for one in self.queue if one.reply is None]
        self.queue.clear()
        self.queue.extend(rest)
        return asking


class Boxes:
    """All mailboxes of one kind of actor, by key."""

    def __init__(self, rules: Rules, evict: bool) -> None:
        self.rules = rules.checked()
        self._evict = evict  # an actor whose state is in a journal may be forgotten while it has nothing to do
        self._boxes: dict[str, Box] = {}
        self.closed = False

    def __iter__(self) -> Any:
        return iter(list(self._boxes.values()))

    def __repr__(self) -> str:
        boxes = list(self)
        return f"<Mailboxes of {len(boxes)} keys, {sum(len(box.queue) for box in boxes)} messages wait>"

    def get(self, key: str) -> Box:
        """The box for a message; refuses for whom there is none."""
        box = self._boxes.get(key)
        if box is not None and box.given_up is None and not self.closed:
            return box
        return self._open(key)

    def find(self, key: str) -> Box | None:
        return self._boxes.get(valid_name(key, "key"))

    def _open(self, key: str) -> Box:
        valid_name(key, "key")
        if self.closed:
            raise Misuse("these mailboxes are closed")
        box = self._boxes.get(key)
        if box is None:
            if len(self._boxes) >= self.rules.most_keys:
                self._make_room()
            box = self._boxes[key] = Box(key)
        if box.given_up is not None:
            raise box.refused(self.rules)
        return box

    def _make_room(self) -> None:
        if self._evict:
            for box in self._boxes.values():
                if not box.running and not box.queue and box.given_up is None and not box.failures:
                    del self._boxes[box.key]
                    return
        raise MailboxFull(
            f"there are {len(self._boxes)} actors, and most_keys allows no more: forget(key) those that are done"
        )

    def forget(self, key: str) -> bool:
        """Drop the actor of a key, if it has nothing to do."""
        box = self.find(key)
        if box is None or box.running or (box.queue and box.given_up is None):
            return False
        del self._boxes[key]
        return True


def full(box: Box, capacity: int, timeout: float | None) -> MailboxFull:
    waited = f" for {timeout:g} s" if timeout else ""
    return MailboxFull(
        f"the mailbox of {box.key!r} was full{waited}: {capacity} messages wait. The message was not taken: send less, give "
        "the sender more time, or make capacity larger"
    )


def check_chain(me: object, key: str) -> tuple[tuple[int, str], ...]:
    """Refuse to ask whoever waits for the asker: it could not answer before the asker has."""
    asking = chain.get()
    if (id(me), key) in asking:
        path = " asks ".join(repr(name) for _, name in (*asking, (0, key)))
        raise Misuse(f"{path}: it would wait for itself for ever. Use tell, or do the work without asking")
    return asking


def unfinished(key: str, timeout: float | None, begun: bool) -> TimeoutError:
    if begun:
        return TimeoutError(f"{key!r} did not answer within {timeout} s; it is at the message still, and may finish it")
    return TimeoutError(
        f"{key!r} did not come to the message within {timeout} s: it was withdrawn, and will not be handled"
    )
