"""ZooKeeper, alone or as an ensemble, with ticks short enough for sessions of 400 ms."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing.servers import wire
from holdfast.testing.servers.base import Server


class ZooKeeper(Server):
    """`extra` are further lines of its zoo.cfg."""

    scheme = "zookeeper"
    port_count = 3  # for clients, for peers, for elections

    def prepare(self) -> None:
        settings = {
            "tickTime": 200,
            "initLimit": 20,
            "syncLimit": 10,
            "minSessionTimeout": 400,
            "dataDir": self.data,
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        for number, member in enumerate(self.peers, 1):
            settings[f"server.{number}"] = ":".join([member.host, *map(str, member.ports[1:])])
            if member is self:
                self.write(self.data / "myid", str(number))
        lines = [f"{name}={value}" for name, value in settings.items()]
        self.write(self.data / "zoo.cfg", "\n".join([*lines, *self.extra, ""]))

    def command(self) -> list[str]:
        # One CPU's worth of JVM: a start takes a third of the time, and three members fit on a small machine.
        machine = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        jar = Path(self.program)
        # What is beside it comes first: the jar itself names files below /usr, which may be of another version.
        path = f"{jar.parents[3] / 'etc/zookeeper/conf_example'}:{jar.with_name('zookeeper-jute.jar')}:{jar}"
        return [*machine, "-cp", path, main, str(self.data / "zoo.cfg")]

    def answers(self) -> bool:
        return "Mode: " in wire.zookeeper(self.address, "srvr")

    def writes(self) -> bool:
        return wire.zookeeper_session(self.address)

    def leads(self) -> bool:
        return "Mode: leader" in wire.zookeeper(self.address, "srvr")
