"""The way to the servers that a URL names, with a proxy before each: what is done to one is done to all.

A store that keeps its promises only on a perfect network keeps none, so every theme of faults is run on these.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable

from .closing import Closes
from .proxy import Direction, Proxy

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s,:@/?#\[\]]+):(\d+)")


class Network(Closes):
    """`url` leads through the proxies, to the same space as the URL that it was made of."""

    def __init__(self, url: str) -> None:
        self.proxies: list[Proxy] = []
        scheme, slashes, rest = url.partition("://")
        end = min((rest.find(mark) for mark in "/?#" if mark in rest), default=len(rest))
        user, at, hosts = rest[:end].rpartition("@")
        self.url = f"{scheme}{slashes}{user}{at}{_ADDRESS.sub(self._before, hosts)}{rest[end:]}"

    def _before(self, address: re.Match[str]) -> str:
        proxy = Proxy((address[1].strip("[]"), int(address[2])))
        self.proxies.append(proxy)
        return f"{proxy.address[0]}:{proxy.port}"

    def __bool__(self) -> bool:
        """False: the URL names no server."""
        return bool(self.proxies)

    @property
    def clients(self) -> int:
        """Connections that nobody of ours has hung up. (Consul keeps its own end of some for 15 s more.)"""
        return sum(proxy.clients for proxy in self.proxies)

    def silence(self) -> None:
        """As if all servers were stopped: connections are accepted, and nothing comes back."""
        for proxy in self.proxies:
            proxy.to_server.hold()
            proxy.to_client.hold()

    def slow_down(self, seconds: float) -> None:
        """All answers, on whatever connection, come so much later."""
        for proxy in self.proxies:
            proxy.to_client.delay(seconds)

    def crumble(self, seconds: float) -> None:
        """All answers come line by line, with a pause after each."""
        for proxy in self.proxies:
            proxy.to_client.crumble(seconds)

    @property
    def accepted(self) -> int:
        """Connections, ever."""
        return sum(proxy.accepted for proxy in self.proxies)

    def stick(self, *, requests: bool = True, answers: bool = True) -> None:
        """One connection falls silent: that which is asked something next. The others, and new ones, are well."""
        trap = [(requests, answers)]
        for proxy in self.proxies:
            proxy.stick(trap)

    def forget(self) -> None:
        """All connections that there are fall silent, as when a firewall forgets them. New ones are well."""
        for proxy in self.proxies:
            proxy.forget()

    @property
    def stuck(self) -> int:
        """How many have."""
        return sum(proxy.stuck for proxy in self.proxies)

    def unstick(self) -> None:
        """What was held of them goes on its way."""
        for proxy in self.proxies:
            proxy.unstick()

    def heal(self) -> None:
        """What was held goes on its way."""
        for proxy in self.proxies:
            proxy.flow()

    def cut(self) -> None:
        """Reset every connection; what was held on it is lost."""
        for proxy in self.proxies:
            proxy.cut(reset=True)

    def strand(self, at: int, before: int) -> Stranded:
        """One request is caught on its way; it arrives in the middle of what is asked after it."""
        return Stranded(self.proxies, at, before)

    def hold_answers(self, after: int) -> Catch:
        """Let so many pieces through to the clients, and hold all that follow."""
        return Catch([proxy.to_client for proxy in self.proxies], after)

    def hold_requests(self, after: int) -> Catch:
        return Catch([proxy.to_server for proxy in self.proxies], after)

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.close()


class Catch:
    """A trap that is laid in several directions at once and counts over all of them."""

    def __init__(self, directions: list[Direction], after: int, strikes: Callable[[bytes], bool] | None = None) -> None:
        self._passing = after
        self._lock = threading.Lock()
        self._directions = [(each, each.caught.chunks) for each in directions]
        for each in directions:
            each.hold(when=strikes or self._strikes)

    def _strikes(self, _: bytes) -> bool:
        with self._lock:
            self._passing -= 1
            return self._passing < 0

    @property
    def caught(self) -> bool:
        return any(each.caught.chunks > before for each, before in self._directions)

    def caught_before(self, over: Callable[..., bool], grace: float = 0.25) -> bool:
        """Wait until something was caught, or until what is watched is over and nothing more came of it for a moment."""
        since: float | None = None
        end = time.monotonic() + 10
        while not self.caught:
            now = time.monotonic()
            since = (since or now) if over() else None
            if since is not None and now > since + grace:
                return False
            assert now < end, "neither was a piece caught, nor was it over"
            time.sleep(0.002)
        return True


class Stranded:
    """The piece number `at` to the servers is held, and its sender hung up on; it arrives `before` that many later ones."""

    def __init__(self, proxies: list[Proxy], at: int, before: int) -> None:
        self._proxies = proxies
        self._lock = threading.Lock()
        self._passing = [at, before]  # until the piece itself; until the one that it gets in before
        self._caught = False
        self._first = Catch([proxy.to_server for proxy in proxies], 0, self._strikes)

    def _strikes(self, _: bytes) -> bool:
        with self._lock:
            which = self._caught
            self._passing[which] -= 1
            self._caught = self._passing[0] < 0
            return self._passing[which] < 0

    def caught_before(self, over: Callable[..., bool]) -> bool:
        """Hang up as soon as it is caught."""
        caught = self._first.caught_before(over)
        if caught:
            for proxy in self._proxies:
                proxy.hang_up()
        return caught

    def arrives_before(self, over: Callable[..., bool], grace: float = 0.25) -> bool:
        """Let it arrive in the middle, and be answered, if that piece comes before it is over. Everything flows after that."""
        end = time.monotonic() + 10
        while not (came := self._passing[1] < 0) and not over():
            assert time.monotonic() < end, "neither did the piece come, nor was it over"
            time.sleep(0.002)
        if came:
            self._deliver(grace)
        for proxy in self._proxies:
            proxy.flow()
        return came

    def arrives(self, grace: float = 0.25) -> None:
        """Now, if it was caught at all, and is answered; everything flows after that."""
        if self._caught:
            self._deliver(grace)
        for proxy in self._proxies:
            proxy.flow()

    def _deliver(self, grace: float) -> None:
        """Who looks before the server has worked on it sees nothing of it. Most are answered; none has to be."""
        answered = self._answers()
        for proxy in self._proxies:
            proxy.deliver()
        end = time.monotonic() + grace
        while self._answers() == answered and time.monotonic() < end:
            time.sleep(0.002)

    def _answers(self) -> int:
        return sum(proxy.late_answers for proxy in self._proxies)
