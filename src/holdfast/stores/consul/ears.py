"""Blocking queries: told when a key changes, instead of asking again and again.

One query is on its way for each key that somebody in this process cares about, however many they are. Whoever wants to
hear of a key says so first and looks afterwards: then nothing can happen in between.
"""

from __future__ import annotations

from collections.abc import Callable

from ...drivers.base import Bell, Driver
from ...errors import HoldfastError
from .replies import Answer, checked
from .wire import Wire

Heard = Callable[[Answer], None]
MOST = 32  # each has a connection of its own, and Consul lets one client have 200
_BREATH = 0.002
_UNASKED = 0.2  # after an answer that says nothing new, long before its time
_WAIT = 15  # seconds for one query; Consul adds up to a sixteenth


class _Ear:
    def __init__(self, path: str, final: bool, pulse: Bell) -> None:
        self.path = path
        self.pulse = pulse  # asleep, when the event loop is over, or stands still, in which it listens
        self.final = final  # when the key is gone, it is gone for good
        self.heard: dict[object, Heard] = {}


class Ears:
    def __init__(self, wire: Wire, driver: Driver, hosts: int) -> None:
        self._wire = wire
        # The wire shares a request's time out among the hosts; here one alone may take it all.
        self._within = (_WAIT * 17 / 16 + 2) * min(hosts, 3)
        self._driver = driver
        self._ears: dict[str, _Ear] = {}
        self._mutex = driver.mutex()
        self._closed = False

    def listen(self, path: str, by: object, heard: Heard, *, final: bool = False, always: bool = False) -> bool:
        """From now on, until `forget`. False: too many are being listened to."""
        with self._mutex:
            ear = self._ears.get(path)
            if ear is not None and not ear.pulse.asleep:
                ear.heard[by] = heard
                return True
            if (len(self._ears) >= MOST and not always) or self._closed:
                return False
            before, ear = ear, _Ear(path, final, self._driver.bell())
            ear.heard = {**(before.heard if before is not None else {}), by: heard}
            self._ears[path] = ear
        try:
            self._driver.spawn(lambda: self._run(ear), "holdfast-consul-ear", lambda: self._wanted(ear))
        except BaseException:
            with self._mutex:
                self._ears.pop(path, None)
            raise
        return True

    def forget(self, path: str, by: object) -> None:
        """The query that is on its way is left to come home: the next to ask is likely to want the same."""
        with self._mutex:
            ear = self._ears.get(path)
            if ear is not None:
                ear.heard.pop(by, None)

    def close(self) -> None:
        self._closed = True

    async def _run(self, ear: _Ear) -> None:
        index = 0
        while self._wanted(ear):
            sign = "&" if "?" in ear.path else "?"
            asked = self._driver.now()
            try:
                path = f"{ear.path}{sign}index={index}&wait={_WAIT}s"
                answer = checked(await self._ask(path), self._wire.where)
                changed = answer.at != index or not index
                if changed:
                    self._tell(ear, answer)
            except HoldfastError:
                index = 0
                if not self._closed:
                    await self._driver.sleep(self._driver.uniform(0.1, 0.3))
                continue
            if changed and answer.status == 404:
                if ear.final:
                    return
                await self._driver.sleep(0.05)  # Consul tells us also what does not concern this key
            elif (
                self._driver.now() - asked < _BREATH
            ):  # much goes on there; or it is no Consul, and would keep us busy for ever
                await self._driver.sleep(_BREATH if changed else _UNASKED)
            index = answer.at if answer.at >= index else 0

    async def _ask(self, path: str) -> Answer:
        return await self._wire.ask("GET", path, b"", self._driver.now() + self._within, apart=True, waits=True)

    def _wanted(self, ear: _Ear) -> bool:
        with self._mutex:
            if self._ears.get(ear.path) is not ear:
                return False
            if ear.heard and not self._closed:
                return True
            del self._ears[ear.path]  # under the same lock as the decision: nobody slips in between
            return False

    def _tell(self, ear: _Ear, answer: Answer) -> None:
        with self._mutex:
            told = list(ear.heard.values())
            if answer.status == 404 and ear.final and self._ears.get(ear.path) is ear:
                del self._ears[ear.path]
        for heard in told:
            heard(answer)


def any_change(bell: Bell) -> Heard:
    def heard(answer: Answer) -> None:
        bell.ring()

    return heard


def its_end(bell: Bell) -> Heard:
    """Ring when the key is gone."""

    def heard(answer: Answer) -> None:
        if answer.status == 404:
            bell.ring()

    return heard
