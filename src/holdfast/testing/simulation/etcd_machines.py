"""A cluster of etcd under a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...drivers.simulated import Process
from ...stores import etcd
from ...stores.base import Store
from .machines import ClusterMachines, Machinery
from .servers.etcd import EtcdCluster

if TYPE_CHECKING:
    from .workload import Workload

PORT = 2379
LOGIN = "user", "password"


class EtcdMachines(ClusterMachines):
    cluster: EtcdCluster

    def __init__(self, workload: Workload, setup: Machinery) -> None:
        super().__init__(workload, setup)
        names = self.names()
        login = LOGIN if setup.login else None
        self.cluster = EtcdCluster(self.world, self.streams, [(name, PORT) for name in names], login)
        for member in self.cluster.members:
            member.lag = self.random.choice((0.0, 0.0, self.random.uniform(0.0, setup.lag / 10)))
        who = f"{':'.join(LOGIN)}@" if setup.login else ""
        self._url = f"etcd://{who}{','.join(names)}?timeout={setup.timeout:g}"

    def open(self, process: Process) -> Store:
        return etcd.open_store(self._url, process.driver)

    def go_away(self) -> None:
        member = self.random.choice(self.cluster.members)
        self.note(member.process, "says GOAWAY to everybody")
        member.say_goodbye()

    def end_logins(self) -> None:
        if self.setup.login:
            self.note(self.cluster.members[0].process, "all logins run out")
            self.cluster.end_logins()
