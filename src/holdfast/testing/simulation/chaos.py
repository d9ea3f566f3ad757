"""What happens to the processes of a workload."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ... import recipes
from ...drivers.simulated import Process
from ...drivers.world import Interrupt, Main, Raised, Task
from ...errors import Misuse, Unavailable
from ...stores.memory import MemoryStore
from ..history import CLOSED, CRASHED, FORGOT
from .client import Client

if TYPE_CHECKING:
    from .machines import Machines
    from .workload import Workload


class Trouble(NamedTuple):
    """What happens to processes, and how often: chances a second, for all of them together."""

    pause: float = 0.25
    crash: float = 0.08
    cancel: float = 0.25
    evict: float = 0.05
    partition: float = 0.06
    wall_jump: float = 0.1
    server_pause: float = 0.03
    forget: float = 0.0  # the server restarts, and all that it knew is gone
    # of simulated servers and their connections only
    restart: float = 0.0  # and it still knows everything
    fail_over: float = 0.0  # to a replica that lags behind
    lose_scripts: float = 0.0
    evict_key: float = 0.0
    server_clock: float = 0.0
    cut: float = 0.0
    half_open: float = 0.0
    close: float = 0.0  # a user closes the connection, whatever is going on
    # of clusters
    leader: float = 0.0  # another leads, and leases live on
    cut_member: float = 0.0  # off from the others
    go_away: float = 0.0  # HTTP/2's word for it
    end_logins: float = 0.0
    index_reset: float = 0.0  # what is gone is forgotten, and the index of queries falls: Consul's
    # of processes again, since they came later
    fork: float = 0.0
    signal: float = 0.0  # whose handler raises, and the user goes on or exits
    move_slot: float = 0.0  # of a Redis Cluster, with its keys


OF_PROCESSES = {"fork": 0.08, "signal": 0.25}

TROUBLE = Trouble()
TROUBLE_OF_SERVERS = Trouble(
    forget=0.03,
    restart=0.06,
    fail_over=0.04,
    lose_scripts=0.06,
    evict_key=0.04,
    server_clock=0.08,
    cut=0.15,
    half_open=0.06,
    close=0.03,
)
TROUBLE_OF_REDIS_CLUSTER = TROUBLE_OF_SERVERS._replace(move_slot=0.3)
_OF_CLUSTERS = Trouble(restart=0.06, cut=0.12, half_open=0.06, close=0.03, leader=0.1, cut_member=0.06)
TROUBLE_OF_CONSUL = _OF_CLUSTERS._replace(index_reset=0.08)
TROUBLE_OF_ETCD = _OF_CLUSTERS._replace(go_away=0.06, end_logins=0.06)
_OF_SERVERS = (
    *("restart", "fail_over", "lose_scripts", "evict_key", "server_clock"),
    *("leader", "cut_member", "go_away", "end_logins", "index_reset", "move_slot"),
)
NO_TROUBLE = Trouble(*[0.0] * len(Trouble._fields))


class Chaos:
    def __init__(self, workload: Workload, trouble: Trouble) -> None:
        self._workload = workload
        self._trouble = trouble
        self._world = workload.world
        self._random = workload.world.random
        self._process = Process(self._world, "chaos")
        self._world.on_crash = self._crashed
        self._replaced = 0
        self._machines = workload.machines
        if any(trouble):
            self._process.spawn(self._run, "chaos")

    def stop(self) -> None:
        self._process.crash()
        for client in self._workload.clients:
            client.process.dies_before_ringing = False

    async def _run(self) -> None:
        random = self._random
        while True:
            await self._process.driver.sleep(random.expovariate(sum(self._trouble)))
            what = random.choices(Trouble._fields, weights=self._trouble)[0]
            living = self._workload.living()
            if living:
                victim = random.choice(living)
                if what in _OF_SERVERS:
                    self._servers().happen(what)
                else:
                    getattr(self, f"_{what}")(victim)

    def _crashed(self, process: Process) -> None:
        """Somebody starts it again."""
        if process is self._process:
            return
        self._note(process, CRASHED)
        self._replace(process)

    def _replace(self, process: Process) -> None:
        self._replaced += 1
        name = f"{process.name.partition('.')[0]}.{self._replaced}"
        self._workload.expect(self._random.uniform(0.0, 2.0), name)

    def _pause(self, victim: Client) -> None:
        seconds = self._random.uniform(0.01, 2.5 * max(self._workload.plan.ttls))
        self._note(victim.process, "paused", f"for {seconds:.3f} s")
        victim.process.pause(seconds)

    def _crash(self, victim: Client) -> None:
        if self._workload.plan.same_machine and self._random.random() < 0.5:
            self._note(victim.process, "dies before it next rings")
            victim.process.dies_before_ringing = True
        else:
            victim.process.crash()

    def _cancel(self, victim: Client) -> None:
        task = self._workload.rounds.get(victim.process.name)
        if task is not None and not task.done:
            self._note(victim.process, "cancelled", task.name)
            task.cancel()

    def _evict(self, victim: Client) -> None:
        operator = self._random.choice(self._workload.open() or [victim])
        for lease in victim.engine.renewer.leases():
            self._note(operator.process, "evicts", f"{victim.process.name} from {lease.name}")
            operator.process.spawn(self._eviction(operator, lease.name, lease.token), "operator")
            return

    def _eviction(self, operator: Client, name: str, token: int) -> Main:
        async def evict() -> None:
            with contextlib.suppress(Unavailable, Misuse):  # Misuse: it was closed meanwhile
                await recipes.force_release(operator.engine, name, token)

        return evict

    def _partition(self, victim: Client) -> None:
        seconds = self._random.uniform(0.1, 2 * max(self._workload.plan.ttls))
        self._note(victim.process, "cut off", f"for {seconds:.3f} s")
        self._workload.network.partition(victim.process.name, self._world.time, self._world.time + seconds)
        if self._machines is not None:
            self._machines.isolate(victim.process, seconds)

    def _wall_jump(self, victim: Client) -> None:
        seconds = self._random.uniform(-3600, 3600)
        jumping = [victim.process] if self._machines is not None else [victim.process, self._workload.server]
        if self._workload.plan.same_machine:
            jumping = [client.process for client in self._workload.clients]
        for process in jumping:
            self._note(process, "wall clock jumps", f"by {seconds:.0f} s")
            process.wall_ahead += seconds

    def _server_pause(self, _: Client) -> None:
        if self._machines is not None:
            self._machines.happen("server_pause")
            return
        seconds = self._random.uniform(0.01, 2.0)
        self._note(self._workload.server, "paused", f"for {seconds:.3f} s")
        self._workload.server.pause(seconds)

    def _forget(self, _: Client) -> None:
        if self._machines is not None:
            self._machines.happen("forget")
        for store in self._workload.opened:
            if isinstance(store, MemoryStore):
                store._space.reset()
                self._note(self._workload.server, FORGOT)

    def _cut(self, victim: Client) -> None:
        self._servers().cut(victim.process)

    def _half_open(self, victim: Client) -> None:
        self._servers().half_open(victim.process)

    def _close(self, victim: Client) -> None:
        if not victim.engine.closed:
            self._note(victim.process, CLOSED)
            victim.process.spawn(victim.engine.close, "close")
            self._replace(victim.process)

    def _fork(self, victim: Client) -> None:
        if not victim.engine.closed:
            self._replaced += 1
            name = f"{victim.process.name.partition('.')[0]}.{self._replaced}"
            self._note(victim.process, "forks", name)
            self._workload.fork(victim, name)

    def _signal(self, victim: Client) -> None:
        """Where it stands, or some awaits later: what is quick is hit as often as what lasts."""
        task = self._workload.rounds.get(victim.process.name)
        if task is not None and not task.done:
            exits = self._random.random() < 0.2
            raised = Interrupt() if exits or self._random.random() < 0.5 else Raised("by a signal handler")
            self._note(victim.process, "signalled", detail=f"{type(raised).__name__}{', and exits' if exits else ''}")
            task.strike(raised, self._random.choice((0, self._random.randint(1, 12))))
            if exits:
                victim.process.spawn(partial(self._exit, victim, task), "exit")

    async def _exit(self, victim: Client, task: Task) -> None:
        """Its main thread was ended by what was raised; what lifecycle.py has done at exit is to close the connection."""
        await task.join()
        if not victim.engine.closed:
            self._note(victim.process, CLOSED, detail="since it exits")
            self._replace(victim.process)
            await victim.engine.close()

    def _servers(self) -> Machines:
        assert self._machines is not None, "this fault is for simulated servers"
        return self._machines

    def _note(self, process: Process, what: str, detail: str = "") -> None:
        self._workload.history.note(self._world.time, process.name, what, detail=detail)
