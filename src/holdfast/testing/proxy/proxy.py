"""The proxy itself: one thread, one selector, and commands that run on that thread.

Rule 1: only the loop's thread touches sockets, links and modes; everyone else posts an action and waits for it.
Rule 2: a turn of the loop holds the lock, so that a reader of counters sees whole turns only.
Rule 3: nothing blocks but select(), and nothing waits without a deadline.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from holdfast.testing.closing import Closes
from holdfast.testing.ports import LOOPBACK, ReservedPort, shared_socket
from holdfast.testing.proxy.direction import DEADLINE, Condition, Direction
from holdfast.testing.proxy.link import Link


class ProxyError(RuntimeError):
    """The proxy is closed, or a `when=` given to it raised."""


class Proxy(Closes):
    """A TCP proxy on a free loopback port before `target`. It works from construction until close().

    `buffer` bounds the bytes kept for each connection and direction; beyond it, the sender is slowed down by TCP.
    """

    def __init__(self, target: tuple[str, int], *, buffer: int = 1 << 20) -> None:
        self.target = target
        self.to_server = Direction("to the server", self)
        self.to_client = Direction("to the client", self)
        self._buffer = buffer
        self._accepted = 0
        self._late_answers = 0
        self._sticking: list[tuple[bool, bool]] = []  # which lanes of the next that is asked anything
        self._stuck = 0
        self._links: set[Link] = set()
        self._listener: socket.socket | None = None
        self._changed = threading.Condition()
        self._actions: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._failure: BaseException | None = None
        self._closing = False
        self._reserved = ReservedPort()
        self._selector = selectors.DefaultSelector()
        self._waker, self._wakee = socket.socketpair()
        self._wakee.setblocking(False)
        self._selector.register(self._wakee, selectors.EVENT_READ)
        self._listen()
        self._thread = threading.Thread(target=self._loop, name=f"holdfast-proxy-{self.port}", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._reserved.number

    @property
    def address(self) -> tuple[str, int]:
        return LOOPBACK, self.port

    @property
    def connections(self) -> int:
        """How many connections are open. One whose client has gone still counts while bytes of it are held."""
        with self._changed:
            return len(self._links)

    @property
    def clients(self) -> int:
        """How many of them have a client still. What its server does when it hangs up is the server's affair."""
        with self._changed:
            return sum(not link.lanes[0].ended for link in self._links)

    @property
    def accepted(self) -> int:
        """How many connections were ever accepted: rises when a client connects again."""
        with self._changed:
            return self._accepted

    @property
    def late_answers(self) -> int:
        """Chunks that servers sent to clients that had gone by then."""
        with self._changed:
            return self._late_answers

    def refuse(self) -> None:
        """Refuse new connections, as a machine without the server does; present ones live on."""
        self.run(self._stop_listening)

    def accept(self) -> None:
        """Accept new connections again."""
        self.run(self._listen)

    def cut(self, *, reset: bool = False) -> None:
        """Close every connection, at once and with whatever is held; with `reset`, by a TCP reset."""

        def cut_all() -> None:
            # Those that wait to be accepted believe they are connected: they belong to "every".
            self._accept_waiting(time.monotonic())
            for link in list(self._links):
                self._forget(link, reset)

        self.run(cut_all)

    def hang_up(self) -> None:
        """Close every connection to a client; what is held for the server may still arrive there: see `deliver()`."""

        def hang_up_on_all() -> None:
            self._accept_waiting(time.monotonic())
            for link in self._links:
                with contextlib.suppress(OSError):
                    link.client.shutdown(socket.SHUT_RDWR)

        self.run(hang_up_on_all)

    def deliver(self) -> None:
        """What is held for the server of clients that have gone arrives; everything else stays as it is."""

        def deliver_all() -> None:
            for link in self._links:
                if link.lanes[0].ended:
                    link.lanes[0].let_go(time.monotonic())

        self.run(deliver_all)

    def stick(self, trap: list[tuple[bool, bool]]) -> None:
        """The connection that is asked something next falls silent, with that, until `unstick()`; all others are well.

        `trap`: whether requests are held, and answers; once, however many proxies share it.
        """

        def lay() -> None:
            self._sticking = trap

        self.run(lay)

    def forget(self) -> None:
        """All connections that there are fall silent, until `unstick()`, as when a firewall forgets them. New ones are well."""

        def forget_all() -> None:
            self._accept_waiting(time.monotonic())
            for link in self._links:
                self._stuck += 1
                for lane in link.lanes:
                    lane.stuck = True

        self.run(forget_all)

    @property
    def stuck(self) -> int:
        """How many connections have fallen silent so."""
        with self._changed:
            return self._stuck

    def unstick(self) -> None:
        """What was held of those goes on its way."""

        def free() -> None:
            self._sticking = []
            for link in self._links:
                for lane in link.lanes:
                    lane.stuck = False

        self.run(free)

    def flow(self) -> None:
        """Back to normal: accept connections, let both directions flow."""
        self.accept()
        self.unstick()
        self.to_server.flow()
        self.to_client.flow()

    def wait_until(
        self, condition: Condition, timeout: float = DEADLINE, what: Callable[[], str] = lambda: "the condition"
    ) -> None:
        """Wait until e.g. `lambda: proxy.connections == 2` is true; looked at whenever something happened."""
        with self._changed:
            met = self._changed.wait_for(lambda: self._failure or self._closing or condition(), timeout)
            if self._failure:
                raise ProxyError(f"the proxy to {self.target} failed: {self._failure!r}") from self._failure
            if not met:
                raise TimeoutError(f"waited {timeout} s at the proxy to {self.target} for {what()}")
            if self._closing and not condition():
                raise ProxyError(f"the proxy to {self.target} was closed while waiting for {what()}")

    def close(self) -> None:
        """Close all sockets and end the thread. A failure of a `when=` that nobody has been told of is raised here."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._wake()
        self._thread.join(DEADLINE)
        if self._thread.is_alive():
            raise ProxyError(f"the thread of the proxy to {self.target} did not end: does a when= wait for something?")
        failure, self._failure = self._failure, None
        if failure:
            raise ProxyError(f"the proxy to {self.target} failed: {failure!r}") from failure

    def run(self, action: Callable[[], None]) -> None:
        """Run on the proxy's thread; return when it is done. (For the directions; not meant for tests.)"""
        if threading.current_thread() is self._thread:
            action()
            return
        done: Future[None] = Future()
        with self._changed:
            if self._closing or self._failure:
                raise ProxyError(f"the proxy to {self.target} is closed ({self._failure!r}): open a new one")
            self._actions.append((action, done))
        self._wake()
        done.result(DEADLINE)

    def rejudge(self, direction: Direction) -> None:
        """Let a new mode judge what the old one held. (For the directions; not meant for tests.)"""
        now = time.monotonic()
        for link in self._links:
            for lane in link.lanes:
                if lane.direction is direction:
                    lane.rejudge(now)

    def _wake(self) -> None:
        try:
            self._waker.send(b"!")
        except OSError:
            return  # the loop has ended, and closed its end

    def _loop(self) -> None:
        due = math.inf
        try:
            while not self._closing:
                ready = self._selector.select(None if due == math.inf else max(0.0, due - time.monotonic()))
                with self._changed:
                    due = self._turn([key.fileobj for key, _ in ready])
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()
        finally:
            self._dispose()

    def _turn(self, ready: list[object]) -> float:
        """Do all that can be done now; return when to look again even if no socket is ready before."""
        now = time.monotonic()
        if self._wakee in ready:
            self._wakee.recv(4096)
            # Commands first: whoever was told "dropped from now on" must not see bytes of this turn slip through.
            while self._actions:
                action, done = self._actions.popleft()
                try:
                    action()
                except BaseException as error:
                    done.set_exception(error)
                else:
                    done.set_result(None)
        for link in list(self._links):
            for sock in (link.client, link.server):
                if sock in ready:
                    before, asked = self.to_client.seen.chunks, self.to_server.seen.chunks
                    link.on_event(sock, now)
                    if self._sticking and self.to_server.seen.chunks > asked:
                        self._stick(link)
                    if link.lanes[0].ended:
                        self._late_answers += self.to_client.seen.chunks - before
            link.pump(now)
        if self._listener in ready:
            self._accept_waiting(now)
        for link in list(self._links):
            self._settle(link, now)
        return min((link.next_due(now) for link in self._links), default=math.inf)

    def _stick(self, link: Link) -> None:
        with contextlib.suppress(IndexError):  # another proxy was quicker
            for lane, sticks in zip(link.lanes, self._sticking.pop(), strict=True):
                lane.stuck = sticks
            self._stuck += 1

    def _accept_waiting(self, now: float) -> None:
        while self._listener is not None:
            try:
                client, _ = self._listener.accept()
            except ConnectionAbortedError:
                continue
            except (BlockingIOError, InterruptedError):
                return
            self._accepted += 1
            self._links.add(Link(client, self.target, self.to_server, self.to_client, self._buffer, now))

    def _settle(self, link: Link, now: float) -> None:
        """Forget a link that is over; tell the selector what the others wait for."""
        if link.over(now):
            self._forget(link, reset=False)
            return
        for sock in (link.client, link.server):
            mask, known = link.interest(sock, now), self._selector.get_map().get(sock)
            if known is None and mask:
                self._selector.register(sock, mask)
            elif known is not None and not mask:
                self._selector.unregister(sock)
            elif known is not None and known.events != mask:
                self._selector.modify(sock, mask)

    def _forget(self, link: Link, reset: bool) -> None:
        for sock in (link.client, link.server):
            if sock in self._selector.get_map():
                self._selector.unregister(sock)
        link.close(reset)
        self._links.discard(link)

    def _listen(self) -> None:
        if self._listener is None:
            listener = shared_socket()
            listener.bind(self.address)
            listener.listen(128)
            listener.setblocking(False)
            self._listener = listener
            self._selector.register(listener, selectors.EVENT_READ)

    def _stop_listening(self) -> None:
        self._accept_waiting(time.monotonic())
        if self._listener is not None:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _dispose(self) -> None:
        """The loop is over: leave no socket and no waiter behind."""
        with self._changed:
            self._closing = True
            for link in list(self._links):
                self._forget(link, reset=False)
            self._stop_listening()
            for link in list(self._links):
                self._forget(link, reset=False)
            while self._actions:
                self._actions.popleft()[1].set_exception(ProxyError(f"the proxy to {self.target} was closed"))
            self._selector.close()
            self._reserved.close()
            self._waker.close()
            self._wakee.close()
            self._changed.notify_all()
