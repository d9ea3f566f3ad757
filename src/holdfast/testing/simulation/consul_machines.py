"""Servers of Consul under a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...drivers.simulated import Process
from ...stores import consul
from ...stores.base import Store
from .machines import ClusterMachines, Machinery
from .servers.consul import ConsulCluster

if TYPE_CHECKING:
    from .workload import Workload

PORT = 8500


class ConsulMachines(ClusterMachines):
    cluster: ConsulCluster

    def __init__(self, workload: Workload, setup: Machinery) -> None:
        super().__init__(workload, setup)
        self.streams.one_at_a_time = True  # HTTP/1.1, and answers carry nothing that tells them apart
        names = self.names()
        where = [(name, PORT) for name in names]
        self.cluster = ConsulCluster(self.world, self.streams, where, self.random.choice((1.0, 2.0)))
        # The agents let sessions be as short as the workload's: session_ttl_min.
        options = f"timeout={max(setup.timeout, 1.0):g}&min_ttl=0.05&lock_delay={setup.lock_delay:g}"
        self._url = f"consul://{','.join(names)}?{options}"

    def open(self, process: Process) -> Store:
        return consul.open_store(self._url, process.driver)

    def index_reset(self) -> None:
        self.note(self.cluster.members[0].process, "forgets what is gone: indexes fall")
        self.cluster.reap()
