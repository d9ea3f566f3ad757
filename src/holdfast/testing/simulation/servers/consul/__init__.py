"""A simulated Consul: servers of a quorum, spoken to in HTTP/1.1."""

from __future__ import annotations

from .cluster import ConsulCluster, ConsulMember

__all__ = ["ConsulCluster", "ConsulMember"]
