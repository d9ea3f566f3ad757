"""One run: the real engine, recipes and stores in virtual time. The same scenario, store, settings, seed and strikes give the
same tape, however far it is played."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from .. import recipes
from ..claim import ROUND, Claim, Grant, Place, Verdict
from ..drivers.simulated import Process
from ..drivers.simulated_streams import StreamFaults, Streams
from ..drivers.world import FOREVER, Stuck, World
from ..errors import HoldfastError, LeaseLost, Misuse, NotAcquired, StaleToken
from ..lease import Lease
from ..stores.base import Store
from ..stores.memory import MemoryStore
from ..testing import checkers
from ..testing.history import ACQUIRE, CLAIM, CRASHED, DONE, FORGOT, GRANTED, OPEN, STALE, WRITE, History, Recording
from ..testing.simulation.client import Client
from ..testing.simulation.network import CALM, Network
from ..testing.simulation.register import Register, RegisterClient, Value
from ..testing.simulation.servers.quorum import Quorum
from ..testing.simulation.servers.redis import RedisServer
from .scenarios import FENCES, Part, Scenario, Settings
from .stores import STORES
from .strikes import CLOCK, CUT, DEPOSE, DOWN, FAILOVER, FORGET, KILL, PAUSE, PROMPT, STORE, Strike
from .tape import CUT_OFF, DEPOSIT, PAUSED, STORAGE, STORE_SAYS, Span, Tape, both, play

NAME = "the lock"
_STEPS = 300_000


class Setup(NamedTuple):
    scenario: Scenario
    store: str
    settings: Settings
    seed: int
    strikes: Sequence[Strike]


class Stage:
    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        scenario, settings = setup.scenario, setup.settings
        self.world = World(setup.seed, max_steps=_STEPS)
        self.history = History()
        self.server, self._storage = Process(self.world, STORE), Process(self.world, STORAGE)
        deaf = CALM._replace(lose_reply=1.0, loses_only="wait")
        self.to_store = Network(self.server, CALM if settings.bells else deaf, timeout=0.5)
        self.to_storage = Network(self._storage)
        self.memory: MemoryStore | None = None
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self._streams: Streams | None = None
        self._nodes: dict[str, RedisServer] = {}
        self._cluster: Quorum[Any] | None = None
        self.at_end: list[Callable[[], object]] = []
        self.tape = Tape([*(part.name for part in scenario.parts), STORE, STORAGE])
        self._register = _Told(self, FENCES[settings.fence])
        self._inside: dict[str, _Inside] = {}  # by holder: what the store says
        # Some time after its ttl, which only shows when the next is let in.
        self._ends_late = PROMPT not in STORES[setup.store].can
        self._owners: dict[int, str] = {}  # token → process
        self._deposits = 0
        self._clients = {part.name: self._enter(part) for part in scenario.parts}

    # ---- the run

    def play(self, until: float) -> dict[str, Any]:
        with self.world:
            try:
                for strike in self.setup.strikes:
                    if strike.at > until:
                        break
                    self.world.run_until(strike.at)
                    self._strike(strike)
                self.world.run_until(until)
            except Stuck as stuck:
                raise Misuse(f"this run does not come to an end: {str(stuck).partition(chr(10))[0]}") from None
            finally:
                for close in self.at_end:
                    close()
        for one in self._inside.values():
            self._over(one, min(one.expires, self.world.time) if one.expires <= self.world.time else None)
        play(self.tape, self.history, storage=False)
        strikes = [{"word": str(one), "told": one.told, "at": one.at} for one in self.setup.strikes]
        return {
            **self.tape.data(),
            "length": self.setup.scenario.length,
            "until": until,
            "outcome": self._outcome(),
            "strikes": strikes,
        }

    def _outcome(self) -> dict[str, Any]:
        self.history.final = dict(self._register.values)
        writes = list(self.history.of(WRITE))
        balance = DEPOSIT * len(self._register.peek(NAME))
        done = DEPOSIT * sum(1 for one in writes if one.outcome == DONE)
        took = [one.returned - one.invoked for one in self.history.of(ACQUIRE) if one.outcome == GRANTED]
        open_ = [self.world.time - one.invoked for one in self.history.of(ACQUIRE) if one.returned == OPEN]
        return {
            "balance": balance,
            "acknowledged": done,
            "lost": DEPOSIT * sum(1 for _ in checkers.check_updates(self.history)),
            "refused": sum(1 for one in self.history.operations if one.outcome == STALE),
            "both": round(both(self.tape.spans, self.world.time), 3),
            "longest_wait": round(max([*took, *open_], default=0.0), 3),
            "questions": sum(1 for _ in self.history.of(CLAIM)),
        }

    # ---- who takes part

    def _enter(self, part: Part) -> Client:
        process = Process(self.world, part.name)
        store = STORES[self.setup.store].open(self, process)
        client = Client(process, Recording(store, self.history, part.name, lambda: self.world.time), self.history)
        process.spawn(partial(self._work, client, part), "work")
        return client

    async def _work(self, client: Client, part: Part) -> None:
        driver, scenario, settings = client.process.driver, self.setup.scenario, self.setup.settings
        storage = RegisterClient(self._register, self.to_storage, client.process, self.history)
        ask = (
            recipes.election_ask(NAME, part.name, scenario.ttl)
            if scenario.election
            else recipes.lock_ask(NAME, scenario.ttl, settings.fair, reentrant=False, renew=True)
        )
        await driver.sleep(part.start)
        for _ in range(part.rounds):
            try:
                lease = await client.acquire(ask)
            except (NotAcquired, LeaseLost, ConnectionError):
                continue
            try:
                for _ in range(part.updates):
                    await self._update(client, storage, part, lease)
            except StaleToken:
                self._say(part.name, "stops", f"{part.name} was refused, and stops")
            except LeaseLost:
                self._say(part.name, "stops", f"{part.name} looks, sees that the lock is lost, and stops")
            except HoldfastError:
                self._say(part.name, "stops", f"{part.name} gets no answer, and stops")
            finally:
                await client.release(lease)
            await driver.sleep(part.rest)

    async def _update(self, client: Client, storage: RegisterClient, part: Part, lease: Lease) -> None:
        driver = client.process.driver
        value = await storage.read(NAME, lease.token)
        await driver.sleep(part.work)
        if self.setup.settings.checks:
            client.check(lease)
        await driver.sleep(part.prepare)
        self._deposits += 1
        await storage.write(NAME, lease.token, (*value, (f"{part.name}{self._deposits}", lease.token)))

    def start_servers(self, names: Sequence[str]) -> None:
        if self._streams is None:
            self._streams = Streams(self.world, StreamFaults())
            for name in names:
                self._nodes[name] = RedisServer(Process(self.world, name), self._streams, (name, 6379))

    def start_cluster(self, started: Callable[[Streams], Quorum[Any]]) -> None:
        if self._streams is None:
            self._streams = Streams(self.world, StreamFaults())
            self._cluster = started(self._streams)

    # ---- what strikes

    def _strike(self, strike: Strike) -> None:
        who, at = strike.who.partition("-")[0], self.world.time
        lane = STORE if who in self._nodes else who
        self._say(lane, strike.kind, strike.told)
        if strike.kind == PAUSE:
            for process in self._paused(who):
                process.pause(strike.seconds)
            if who == STORE and self._cluster is not None and self._cluster.leader is not None:
                self._cluster.miss(self._cluster.leader)
            self.tape.spans.append(Span(lane, PAUSED, at, at + strike.seconds))
        elif strike.kind == CUT:
            network = self.to_store if strike.who.endswith(f"-{STORE}") else self.to_storage
            network.partition(lane, at, at + strike.seconds)
            if self._streams is not None and network is self.to_store:
                self._streams.isolate(self._clients[lane].process, strike.seconds)
            self.tape.spans.append(Span(lane, CUT_OFF, at, at + strike.seconds, about=strike.told))
        elif strike.kind == KILL:
            self.history.note(at, lane, CRASHED)
            self._clients[lane].process.crash()
        elif strike.kind == CLOCK:
            self._set_clock(strike.seconds)
        elif strike.kind == DOWN:
            for server in self._servers(who):
                server.restart(strike.seconds, 0.0)
        elif strike.kind == DEPOSE and self._cluster is not None and self._cluster.leader is not None:
            self._cluster.cut_off(self._cluster.leader, strike.seconds)
        elif strike.kind in (FORGET, FAILOVER):
            self._forget(who, FOREVER if strike.kind == FORGET else strike.seconds)

    def _paused(self, who: str) -> list[Process]:
        if who == STORE and self._cluster is not None:
            return [one.process for one in self._cluster.members]
        servers = [one.process for one in self._servers(who)]
        return servers or [self.server if who == STORE else self._clients[who].process]

    def _servers(self, who: str) -> list[RedisServer]:
        """The store is all of its nodes."""
        return list(self._nodes.values()) if who == STORE else [self._nodes[who]] if who in self._nodes else []

    def _set_clock(self, seconds: float) -> None:
        self.server.ahead += seconds
        self.server.wall_ahead += seconds
        for server in self._servers(STORE):
            server.jump(seconds)
        for one in self._inside.values():
            one.expires -= seconds

    def _forget(self, who: str, lost: float) -> None:
        """What was done in the last `lost` seconds is gone."""
        at = self.world.time
        self.history.note(at, who, FORGOT)
        if self.memory is not None:
            self.memory._space.reset()
        for server in self._servers(who):
            server.restart(0.0, lost)
        if who == STORE:
            for holder in [key for key, one in self._inside.items() if one.since > at - lost]:
                self._over(self._inside.pop(holder), at)

    # ---- what the store says

    def watched(self, store: Store) -> Store:
        return _Watched(store, self)

    def granted(self, grant: Grant) -> None:
        holder, now = grant.claim.holder, self.world.time
        if holder not in self._inside:
            for other in [key for key, one in self._inside.items() if one.expires <= now or self._ends_late]:
                one = self._inside.pop(other)
                self._over(one, min(one.expires, now))
            number = self.tape.number(grant.token)
            who = grant.claim.owner.partition("/")[0]
            self._say(STORE, "grants", f"the store gives the lock to {who}, with token {number}", number)
            self._owners[grant.token] = who
            self._inside[holder] = _Inside(who, now, now + grant.ttl, number)
        self._inside[holder].expires = OPEN if self._ends_late else now + grant.ttl

    def left(self, claim: Claim) -> None:
        if one := self._inside.pop(claim.holder, None):
            self._over(one, min(self.world.time, one.expires))

    def _over(self, one: _Inside, at: float | None) -> None:
        self.tape.spans.append(Span(STORE, STORE_SAYS, one.since, at, one.token, one.who))

    # ---- what the storage says

    def touched(self, what: str, token: int, seen: int | None, balance: int) -> None:
        number, who = self.tape.number(token), self._owners.get(token, "somebody")
        if seen is not None:
            told = f"{who} is refused ({what}, token {number}): the storage has seen token {self.tape.number(seen)}"
            self._say(STORAGE, "refused", told, number, balance)
        elif what == "write":
            self._say(STORAGE, "write", f"{who} writes: the balance is {balance} now (token {number})", number, balance)
        else:
            self._say(STORAGE, "read", f"{who} reads the balance {balance} (token {number})", number, balance)

    def _say(self, lane: str, kind: str, text: str, token: int = 0, balance: int | None = None) -> None:
        self.tape.say(self.world.time, lane, kind, text, token, balance)


class _Inside:
    def __init__(self, who: str, since: float, expires: float, token: int) -> None:
        self.who, self.since, self.expires, self.token = who, since, expires, token


class _Watched:
    """A store, at the place where it decides: what it says is told to the stage at that moment, answered or not."""

    def __init__(self, store: Store, stage: Stage) -> None:
        self._store, self._stage = store, stage

    async def claim(self, claim: Claim, within: float = ROUND) -> Grant | Place:
        answer = await self._store.claim(claim, within)
        if isinstance(answer, Grant):
            self._stage.granted(answer)
        return answer

    async def renew(self, grants: Sequence[Grant], within: float) -> Sequence[Verdict]:
        answers = await self._store.renew(grants, within)
        for grant, answer in zip(grants, answers, strict=True):
            if isinstance(answer, Grant):
                self._stage.granted(answer)
            elif answer is None:
                self._stage.left(grant.claim)
        return answers

    async def release(self, claim: Claim, within: float = ROUND) -> bool:
        there = await self._store.release(claim, within)
        self._stage.left(claim)
        return there

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Told(Register):
    """The storage, which tells of every touch."""

    def __init__(self, stage: Stage, fence: Any) -> None:
        super().__init__(fence)
        self._stage = stage

    def read(self, resource: str, token: int) -> Value:
        value: Value = self._tell("read", resource, token, lambda: Register.read(self, resource, token))
        return value

    def write(self, resource: str, token: int, value: Value) -> None:
        self._tell("write", resource, token, lambda: Register.write(self, resource, token, value))

    def _tell(self, what: str, resource: str, token: int, touch: Callable[[], Any]) -> Any:
        seen = None
        try:
            return touch()
        except StaleToken as error:
            seen = error.seen
            raise
        finally:
            self._stage.touched(what, token, seen, DEPOSIT * len(self.peek(resource)))


def run(setup: Setup, until: float | None = None) -> dict[str, Any]:
    """From its seed, to its end or to that moment."""
    length = setup.scenario.length
    return Stage(setup).play(length if until is None else min(max(until, 0.0), length))
