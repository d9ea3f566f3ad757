"""Consul servers, alone or as a quorum."""

from __future__ import annotations

import json

from holdfast.testing.servers import wire
from holdfast.testing.servers.base import Server


class Consul(Server):
    scheme = "consul"
    port_count = 3  # HTTP, raft, gossip

    def prepare(self) -> None:
        http, raft, gossip = self.ports
        peers = self.peers or [self]
        settings = {
            "server": True,
            "node_name": self.folder.name,
            "data_dir": str(self.data / "state"),
            "bootstrap_expect": len(peers),
            "bind_addr": self.host,
            "client_addr": self.host,
            "ports": {"http": http, "server": raft, "serf_lan": gossip, "serf_wan": -1, "dns": -1, "grpc": -1},
            "retry_join": [f"{peer.host}:{peer.ports[2]}" for peer in peers if peer is not self],
            "retry_interval": "200ms",
            "performance": {"raft_multiplier": 1},
            "disable_update_check": True,
        }
        self.write(self.data / "consul.json", json.dumps(settings))

    def command(self) -> list[str]:
        return [self.program, "agent", f"-config-file={self.data / 'consul.json'}", *self.extra]

    def answers(self) -> bool:
        """It has a leader, and so can be written to; sessions need the node itself in the catalogue as well."""
        leader = wire.http_json(self.address, "GET", "/v1/status/leader")
        nodes = wire.http_json(self.address, "GET", "/v1/catalog/nodes")
        return bool(leader) and any(node["Node"] == self.folder.name for node in nodes)

    def writes(self) -> bool:
        return wire.http_json(self.address, "DELETE", "/v1/kv/holdfast.testing") is True and self.answers()

    def leads(self) -> bool:
        leader = wire.http_json(self.address, "GET", "/v1/status/leader")
        return bool(leader == f"{self.host}:{self.ports[1]}")
