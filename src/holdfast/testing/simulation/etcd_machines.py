"""A cluster of etcd under a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...drivers.simulated import Process
from ...stores import etcd
from ...stores.base import Store
from .machines import Machinery, Machines
from .servers.etcd import EtcdCluster, EtcdMember

if TYPE_CHECKING:
    from .workload import Workload

PORT = 2379
LOGIN = "user", "password"


class EtcdMachines(Machines):
    def __init__(self, workload: Workload, setup: Machinery) -> None:
        super().__init__(workload, setup)
        names = ["etcd"] if setup.nodes == 1 else [f"etcd{number + 1}" for number in range(setup.nodes)]
        login = LOGIN if setup.login else None
        self.cluster = EtcdCluster(self.world, self.streams, [(name, PORT) for name in names], login)
        for member in self.cluster.members:
            member.lag = self.random.choice((0.0, 0.0, self.random.uniform(0.0, setup.lag / 10)))
        who = "user:password@" if setup.login else ""
        self._url = f"etcd://{who}{','.join(names)}?timeout={setup.timeout:g}"

    def open(self, process: Process) -> Store:
        return etcd.open_store(self._url, process.driver)

    # ---- what happens

    def server_pause(self) -> None:
        member = self._any()
        seconds = self.random.uniform(0.01, 2.5)
        self.note(member.process, f"paused{self._what(member)}", detail=f"for {seconds:.3f} s")
        member.process.pause(seconds)
        self.cluster.miss(member)

    def restart(self) -> None:
        """It fsyncs, so nothing is lost."""
        member, down = self._any(), self.random.uniform(0.0, 2.0)
        if not member.up:
            return
        self.note(member.process, f"restarts{self._what(member)}", detail=f"down for {down:.3f} s")
        member.restart(down)
        if len(self.cluster.members) == 1:
            self.cluster.elect(down)
        else:
            self.cluster.miss(member)

    def leader(self) -> None:
        """Another leads, and leases live on."""
        if self.cluster.leader is None:
            return
        away = self.random.uniform(0.01, self.cluster.election)
        several = len(self.cluster.members) > 1
        unaware = self.random.choice((0.0, away + self.random.uniform(0.0, 1.5))) if several else 0.0
        old = self.cluster.leader.process
        detail = f"and does not know it for {unaware:.3f} s" if unaware else f"{away:.3f} s without one"
        self.note(old, "leads no more", detail=detail)
        self.cluster.elect(away, unaware)

    def cut_member(self) -> None:
        member, seconds = self._any(), self.random.uniform(0.1, 4.0)
        if len(self.cluster.members) > 1:
            self.note(
                member.process, f"cut off from the other members{self._what(member)}", detail=f"for {seconds:.3f} s"
            )
            self.cluster.cut_off(member, seconds)

    def go_away(self) -> None:
        member = self._any()
        self.note(member.process, "says GOAWAY to everybody")
        member.say_goodbye()

    def end_logins(self) -> None:
        if self.setup.login:
            self.note(self.cluster.members[0].process, "all logins run out")
            self.cluster.end_logins()

    def heal(self) -> None:
        super().heal()
        self.cluster.heal()

    def _any(self) -> EtcdMember:
        return self.random.choice(self.cluster.members)

    def _what(self, member: EtcdMember) -> str:
        return ", the leader" if member is self.cluster.leader else ""
