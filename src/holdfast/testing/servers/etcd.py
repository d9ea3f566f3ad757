"""etcd, alone or as a quorum. It fsyncs every write, so kill -9 loses nothing."""

from __future__ import annotations

from holdfast.testing.servers import wire
from holdfast.testing.servers.base import Server


class Etcd(Server):
    """A member. After restart(empty=True) it must be removed and added anew by the others, as in real life."""

    scheme = "etcd"
    port_count = 2  # for clients, for peers

    def command(self) -> list[str]:
        client, peer = (f"http://{self.host}:{port}" for port in self.ports)
        members = ",".join(
            f"{member.folder.name}=http://{member.host}:{member.ports[1]}" for member in self.peers or [self]
        )
        options = {
            "name": self.folder.name,
            "data-dir": str(self.data),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": members,
            "initial-cluster-state": "new",
            "heartbeat-interval": "50",
            "election-timeout": "500",
        }
        return [self.program, *(f"--{name}={value}" for name, value in options.items()), *self.extra]

    def answers(self) -> bool:
        """It is healthy; asked only once there is a leader, because before that the question hangs."""
        status = wire.http_json(self.address, "POST", "/v3/maintenance/status", {})
        return "leader" in status and bool(wire.http_json(self.address, "GET", "/health")["health"] == "true")

    def writes(self) -> bool:
        """A lease takes the quorum's consent like any other write, and no login where others need one."""
        lease = wire.http_json(self.address, "POST", "/v3/lease/grant", {"TTL": 60})["ID"]
        return "header" in wire.http_json(self.address, "POST", "/v3/lease/revoke", {"ID": lease})

    def leads(self) -> bool:
        status = wire.http_json(self.address, "POST", "/v3/maintenance/status", {})
        return bool(status.get("leader") == status["header"]["member_id"])  # left out during an election
