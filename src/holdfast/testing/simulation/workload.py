"""Processes that take locks and change fenced storage, while everything around them fails: a run is its seed."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple
from unittest import mock

from ... import claim as claims
from ... import recipes
from ...asking import Ask
from ...changing import downgrade
from ...claim import Claim, Grant, new_holder
from ...drivers.simulated import Process
from ...drivers.world import Interrupt, Raised, Stuck, Task, World
from ...errors import HoldfastError, LeaseLost, Misuse, NotAcquired, Unavailable
from ...lease import Lease
from ...stores.base import Store
from ...stores.memory import MemoryStore
from .. import checkers, interruptions
from ..checkers import UNDECIDED, Finding
from ..history import CLAIM, SET_BACK, History, Operation, Recording
from .chaos import TROUBLE, Chaos, Trouble
from .client import Client
from .forking import Memory
from .machines import Machinery, Machines
from .network import ROUGH, Faults, Network
from .register import Fence, Register, RegisterClient
from .remote import Duplicate, Remote

HANDOFF = 0.3  # seconds: a few messages, far less than a third of any ttl below

MUTEX, SEMAPHORE, RWLOCK, ALL_OF, ONCE, ELECTION = "mutex", "semaphore", "rwlock", "all of", "once", "election"
KEPT = "kept"  # a mutex that stays with its process for a while
SHARED = "shared"  # a read-write lock, of which what is read stays with the process for a while
UNCONFIRMED = "unconfirmed"  # a mutex of whose release nobody waits to be told
CROWDED = (MUTEX, SEMAPHORE, RWLOCK)

SIGNALLED = (Raised.__name__, Interrupt.__name__)

_runs = itertools.count()

Opener = Callable[["Workload", Process], Store]


class Plan(NamedTuple):
    """How much of what."""

    processes: int = 4
    rounds: int = 4
    calm_rounds: int = 2  # after everything has healed
    faults: Faults = ROUGH
    trouble: Trouble = TROUBLE
    same_machine: bool = False  # then all processes share one clock, and nothing can be cut off
    timeout: float = 1.0  # how long a client waits for an answer
    chaos: float = 15.0  # seconds of it, at most
    ttls: tuple[float, ...] = (1.0, 2.0, 4.0)
    hold: float = 0.75  # how many ttls a lock is held, at most
    fence: Fence = Fence.READS_AND_WRITES
    machinery: Machinery = Machinery()  # of simulated servers
    drop: float = 0.0  # how often a user loses its leases without a word
    keep: float = 0.2  # seconds, of what is kept
    at_once: int = 1  # how many rounds a process works at the same time
    waves: int = 0  # of processes that want one and the same name, at the end: see `_crowd`
    kinds: tuple[str, ...] = (MUTEX, MUTEX, MUTEX, SEMAPHORE, RWLOCK, ALL_OF, ALL_OF, ONCE, ELECTION)

    @property
    def bound(self) -> float:
        """After healing, a waiter is served within: dead holders and dead waiters expire together, then everybody ahead has
        their turn, each with a hold and a handoff; a holder whose release was lost costs a ttl once more. What is kept is
        lent for so long while others wait."""
        turn = max(self.ttls) * self.hold + HANDOFF + self.keep
        return 3 * max(self.ttls) + self.processes * self.at_once * 2 * turn


# Several at once in each process, who are lent what stays there.
LENDING = Plan(processes=3, at_once=3, kinds=(KEPT, KEPT, KEPT, MUTEX))
SHARING = Plan(processes=3, at_once=3, kinds=(SHARED, SHARED, SHARED, RWLOCK))
LEAVING = Plan(processes=3, at_once=2, kinds=(UNCONFIRMED, UNCONFIRMED, UNCONFIRMED, MUTEX))


class Report(NamedTuple):
    seed: int
    findings: list[Finding]
    history: History
    overlaps: int
    steps: int
    seconds: float

    @property
    def ok(self) -> bool:
        return not [finding for finding in self.findings if finding.checker != UNDECIDED]

    @property
    def undecided(self) -> bool:
        """Nothing was found, but the search for an order was given up: see linearizability.py."""
        return self.ok and bool(self.findings)

    def __str__(self) -> str:
        if self.ok:
            return f"seed {self.seed}: all well, {self.steps} steps, {self.seconds:.1f} virtual s, {self.overlaps} overlaps"
        found = "\n".join(str(finding) for finding in self.findings)
        return f"seed {self.seed}: {len(self.findings)} findings\n{found}\n\n{self.history.story()}"


def behind_network(store_type: type[MemoryStore]) -> Opener:
    """One store, at the server; every process far from it."""

    def opened(workload: Workload, process: Process) -> Store:
        if not workload.opened:
            workload.opened.append(store_type(workload.server.driver, f"simulation-{next(_runs)}"))
        return Remote(workload.opened[0], workload.network, process, workload.duplicated)

    return opened


memory_behind_network = behind_network(MemoryStore)


class _Nonces(list[str]):
    """What `new_holder` takes nonces from: the same in every run of a seed, since some servers' tokens depend on them."""

    def __init__(self, seed: int) -> None:
        self._random = Random(f"nonces {seed}")

    def pop(self) -> str:  # type: ignore[override]
        return f"{self._random.getrandbits(128):032x}"


class Workload:
    """One run."""

    def __init__(self, seed: int, plan: Plan, opener: Opener) -> None:
        self.seed = seed
        self.plan = plan
        self.world = World(seed, max_steps=200_000, max_time=600.0)
        self.history = History()
        self.random = self.world.random
        self.server = Process(self.world, "server")
        self.network = Network(self.server, plan.faults, timeout=plan.timeout)
        self.register = Register(plan.fence)
        self.opened: list[Store] = []
        self.machines: Machines | None = None  # made by an opener
        self.at_end: list[Callable[[], None]] = []  # what an opener must close, also of processes that crashed
        self.clients: list[Client] = []
        self.children: list[Client] = []  # forked
        self.healed = self.calm = float("inf")
        self._opener = opener
        self.rounds: dict[str, Task] = {}  # what each process is at
        self._workers: list[Task] = []
        self._written = itertools.count(1)

    def duplicated(self, duplicate: Duplicate) -> None:
        """The network delivers a claim again: one more operation, whose answer nobody will hear."""
        claim = duplicate.claim
        self.history.begin(
            Operation(
                duplicate.process,
                CLAIM,
                claim.name,
                self.world.time,
                holder=self.history.alias(claim.holder),
                units=claim.units,
                capacity=claim.capacity,
                ttl=claim.ttl,
                detail="duplicate",
            )
        )

    # ---- the run

    def run(self) -> list[Finding]:
        plan, world = self.plan, self.world
        with world:
            try:
                for number in range(plan.processes):
                    self.start(f"p{number}", plan.rounds)
                chaos = Chaos(self, plan.trouble)
                world.run_until(plan.chaos * self.random.uniform(0.3, 1.0))
                self._heal(chaos)
                self._finish()
                # Messages that were sent before the healing may be late, and what they brought lives for a ttl.
                world.run_until(world.time + plan.faults.slow_by[1] + max(plan.ttls))
                self.calm = world.time
                for number in range(plan.processes):
                    self.start(f"calm{number}", plan.calm_rounds)
                self._finish()
                self._crowd()
                return [*self._judged(), *self._left_behind()]
            except HoldfastError as error:  # though everything had healed
                return [*self._judged(), Finding("failure", "everything", repr(error))]
            except Stuck as stuck:
                return [*self._judged(), Finding("liveness", "everything", str(stuck))]
            finally:
                for client in self.clients:
                    client.engine.closed = True  # what is dropped from now on, with the world, concerns nobody
                for close in self.at_end:
                    close()

    def _crowd(self) -> None:
        """When nothing fails any more: some come for the same name at about the same time, and nobody after them, so that who is
        not rung sleeps on. Half of them give up, some in the very moment in which their turn comes."""
        if not self.plan.waves:
            return
        crowd = [self.start(f"crowd{number}", 0) for number in range(4)]
        for _ in range(self.plan.waves):
            kind = self.random.choice(CROWDED)
            come = [partial(self._come, client, kind, first=client is crowd[0]) for client in crowd]
            tasks = [client.process.spawn(one, "crowd") for client, one in zip(crowd, come, strict=True)]
            self.world.run(*tasks)

    async def _come(self, client: Client, kind: str, *, first: bool) -> None:
        if not first:
            await client.process.driver.sleep(self.random.uniform(0.01, 0.04))
        asks, resources = self._some_recipe(kind, max(self.plan.ttls))
        if kind == RWLOCK:  # one writes, and may then let all the others read
            asks, resources = [recipes.rwlock_asks(RWLOCK, max(self.plan.ttls), True, renew=True)[first]], set()
        storage = RegisterClient(self.register, self.network, client.process, self.history)
        await self._round(client, storage, asks, resources, self.random.choice((None, self.random.uniform(0.02, 0.3))))

    def _finish(self) -> None:
        while busy := [worker for worker in self._workers if not worker.done]:
            self.world.run(*busy)

    def _judged(self) -> list[Finding]:
        self.history.final = dict(self.register.values)
        excuse = checkers.no_excuse if self.machines is None else self.machines.excuses
        own_clock = self.machines is not None and self.machines.own_clock
        from_asking = self.machines is not None and self.machines.from_asking
        found = checkers.check_safety(self.history, excuse, own_clock=own_clock, from_asking=from_asking)
        found += checkers.check_liveness(self.history, self.healed, self.plan.bound)
        refused = checkers.never_refused if self.machines is None else self.machines.refused
        found += checkers.check_handoff(self.history, self.calm, HANDOFF, refused)
        found += [Finding("failure", str(task), repr(error)) for task, error in self.world.failures]
        found += interruptions.check_withdrawn(self.history, SIGNALLED)
        found += interruptions.check_forks(self.history, {child.process.name for child in self.children})
        if (streams := self.world.streams) is not None:
            found += [Finding("fork", "everything", what) for what in dict.fromkeys(streams.trespasses)]
            found += [Finding("wire", "everything", what) for what in dict.fromkeys(streams.muddled)]
        return found

    def _left_behind(self) -> list[Finding]:
        """Everybody is done: after a ttl nothing may be left; and what is held when a connection is closed goes with it."""
        self.world.run_until(self.world.time + 2 * max(self.plan.ttls) + 1)
        found = [Finding("leak", client.process.name, leak) for client in self.living() for leak in client.leaks()]
        found += [Finding("leak", bell, "a bell was left behind") for bell in self.world.doorbells]
        self.world.run(*[client.process.spawn(partial(self._close, client), "close") for client in self.open()])
        looks = Process(self.world, "auditor")
        store = self._opener(self, looks)

        async def look() -> Sequence[str]:
            while True:
                try:
                    return [name for name in await store.names() if not await self._to_be_had(store, name, looks)]
                except Unavailable as error:
                    if self.machines is None or not self.machines.asks_to_come_later(error):
                        raise
                await looks.driver.sleep(0.1)

        task = looks.spawn(look, "look")
        self.world.run(task)
        found += [Finding("leak", name, "still in use, though everybody left") for name in task.result]
        return found

    async def _to_be_had(self, store: Store, name: str, process: Process) -> bool:
        """A clock that was set back shows what is over for longer; but whoever asks waits for a ttl at most."""
        capacity = max((await store.inspect(name)).capacity, 1)
        claim = Claim(name, new_holder(), "auditor", 1.0, capacity, capacity, True, False)
        for pause in (max(self.plan.ttls) + 0.1, 0.0):
            if isinstance(await store.claim(claim), Grant):
                await store.release(claim)
                return any(note.what == SET_BACK for note in self.history.notes)
            await process.driver.sleep(pause)
        return False

    async def _close(self, client: Client) -> None:
        ask = recipes.lock_ask(f"last of {client.process.name}", 600.0, fair=True, reentrant=False, renew=True)
        for tries_left in reversed(range(6)):
            try:
                held = await client.acquire(ask)
                break
            except Unavailable:  # each connection that lies half open is found out by asking
                if not tries_left:
                    raise
        await client.engine.close()
        del held  # not before: what is dropped is released because it is dropped

    def living(self) -> list[Client]:
        return [client for client in self.clients if client.process.alive]

    def open(self) -> list[Client]:
        return [client for client in self.living() if not client.engine.closed]

    def _heal(self, chaos: Chaos) -> None:
        chaos.stop()
        self.network.heal()
        if self.machines is not None:
            self.machines.heal()
        self.healed = self.world.time
        self.history.note(self.world.time, "world", "healed")

    def start(self, name: str, rounds: int) -> Client:
        """A process that works so many rounds."""
        process = Process(self.world, name)
        if not self.plan.same_machine:
            process.ahead, process.wall_ahead = self.random.uniform(0, 1000), self.random.uniform(-5, 5)
        recording = Recording(self._opener(self, process), self.history, name, lambda: self.world.time)
        client = Client(process, recording, self.history)
        self.clients.append(client)
        self._workers.append(process.spawn(lambda: self._work(client, rounds), "worker"))
        return client

    def fork(self, client: Client, name: str) -> None:
        """In the middle of whatever it does. The child does what the parent's code would go on with, then work of its own."""
        parent = client.process
        child = Process(self.world, name, ahead=parent.ahead, wall_ahead=parent.wall_ahead, rate=parent.rate)
        world = (self, self.history, self.network, self.register, self.server, self.machines, self.world.streams)
        memory = Memory(parent, child, (*world, *self.opened))
        copy = memory.copied(client)
        copy.became(name, memory)
        self.clients.append(copy)
        self.children.append(copy)
        self._workers.append(child.spawn(lambda: self._child(copy, memory), "worker"))

    async def _child(self, client: Client, memory: Memory) -> None:
        inherited = client.engine.renewer.leases()
        client.engine.forked()  # as lifecycle.py has it done, before anything else runs there
        for stream in memory.talking:  # the tasks of an event loop go on in a child, in the middle of what they were at
            with contextlib.suppress(OSError):
                await stream.receive(client.process.driver.now())
            stream.close()
        for lease in inherited:
            with contextlib.suppress(LeaseLost):
                client.check(lease)
        await client.release(*inherited)
        await self._work(client, self.plan.calm_rounds)

    def expect(self, seconds: float, name: str) -> None:
        """Another process, in so many seconds: for one that crashed."""
        idle = Process(self.world, "supervisor")

        async def later() -> None:
            await idle.driver.sleep(seconds)
            self.start(name, self.plan.calm_rounds)

        self._workers.append(idle.spawn(later, name))

    async def _work(self, client: Client, rounds: int) -> None:
        driver = client.process.driver
        storage = RegisterClient(self.register, self.network, client.process, self.history)
        for number in range(rounds):
            if client.engine.closed:
                return
            await driver.sleep(driver.uniform(0.0, 0.2))
            some = [
                client.process.spawn(lambda: self._drawn(client, storage), f"round {number + 1}")
                for _ in range(self.plan.at_once)
            ]
            self.rounds[client.process.name] = some[0]
            for one in some:
                await one.join()

    # ---- one round

    async def _drawn(self, client: Client, storage: RegisterClient) -> None:
        asks, resources = self._some_recipe(None, None)
        await self._round(client, storage, asks, resources, self.random.choice((None, None, None, 0.0, 0.5, 3.0)))

    async def _round(
        self, client: Client, storage: RegisterClient, asks: Sequence[Ask], resources: set[str], timeout: float | None
    ) -> None:
        try:
            leases = await client.acquire_all(asks, timeout)
        except (NotAcquired, LeaseLost, ConnectionError):
            return
        except Misuse:
            if client.engine.closed:
                return
            raise
        try:
            for lease in leases:
                await self._use(client, storage, lease, lease.name in resources)
        except HoldfastError:
            for lease in leases:
                lease._failed()  # lost, refused, or not answered: the round is over
        except BaseException:
            for lease in leases:
                lease._failed()
            raise
        finally:
            if self.plan.drop and self.random.random() < self.plan.drop:
                client.drop(*leases)
            else:
                await self._given_back(client, leases)

    async def _given_back(self, client: Client, leases: Sequence[Lease]) -> None:
        try:
            await client.release(*leases)
        except (Raised, Interrupt):  # nobody has them any more, once this is told
            client.drop(*[lease for lease in leases if lease._is_owed()])
            raise

    def _some_recipe(self, kind: str | None, ttl: float | None) -> tuple[Sequence[Ask], set[str]]:
        """What to ask for, and which of it protects storage that is changed: only what is taken alone does."""
        ttl = ttl or self.random.choice(self.plan.ttls)
        fair = self.random.random() < 0.9
        kind = kind or self.random.choice(self.plan.kinds)
        if kind == MUTEX:
            return [recipes.lock_ask(MUTEX, ttl, fair, reentrant=False, renew=True)], {MUTEX}
        if kind == UNCONFIRMED:
            ask = recipes.lock_ask(UNCONFIRMED, ttl, fair, reentrant=False, renew=True)
            return [ask._replace(confirm=False)], {UNCONFIRMED}
        if kind == KEPT:
            ask = recipes.lock_ask(KEPT, ttl, fair, reentrant=False, renew=True)
            return [ask._replace(keep=self.plan.keep)], {KEPT}
        if kind == SHARED:
            read, write = recipes.rwlock_asks(SHARED, ttl, fair, renew=True)
            return ([read._replace(keep=self.plan.keep)], set()) if self.random.random() < 0.7 else ([write], {SHARED})
        if kind == SEMAPHORE:
            ask = recipes.semaphore_ask(SEMAPHORE, 3, ttl, fair, renew=True)
            return [ask._replace(units=self.random.choice((1, 1, 2)))], set()
        if kind == RWLOCK:
            read, write = recipes.rwlock_asks(RWLOCK, ttl, fair, renew=True)
            return ([read], set()) if self.random.random() < 0.5 else ([write], {RWLOCK})
        if kind == ONCE:
            return [recipes.once_ask(ONCE, at_least=ttl / 4, at_most=ttl)], {ONCE}
        if kind == ELECTION:
            return [recipes.election_ask(ELECTION, "here", ttl)], {ELECTION}
        names = self.random.choice((("a", "b"), ("b", MUTEX), ("a", MUTEX)))
        return recipes.all_of_asks(names, ttl, fair, renew=True), set(names)

    async def _use(self, client: Client, storage: RegisterClient, lease: Lease, exclusive: bool) -> None:
        driver = client.process.driver
        think = driver.uniform(0.0, 0.05 if self.random.random() < 0.8 else lease.ttl * self.plan.hold / 3)
        await driver.sleep(think)
        client.check(lease)
        if exclusive:
            value = await storage.read(lease.name, lease.token)
            await driver.sleep(think)
            client.check(lease)
            update = f"u{next(self._written)}", lease.token
            await storage.write(lease.name, lease.token, (*value, update))
        if lease._grant.claim.units == lease._grant.claim.capacity > 1 and self.random.random() < 0.5:
            await downgrade(client.engine, lease)
        await driver.sleep(think)
        client.check(lease)


def run(seed: int, plan: Plan | None = None, opener: Opener = memory_behind_network) -> Report:
    """One run from its seed: the same seed, plan and opener give the same history, byte for byte."""
    workload = Workload(seed, plan or Plan(), opener)
    with mock.patch.object(claims, "_nonces", _Nonces(seed)):
        findings = workload.run()
    overlapping = len(checkers.overlaps(workload.history))
    return Report(seed, findings, workload.history, overlapping, workload.world.steps, workload.world.time)
