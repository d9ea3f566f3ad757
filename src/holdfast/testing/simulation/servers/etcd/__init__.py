"""A simulated etcd: members of a cluster, spoken to in gRPC's own bytes."""

from __future__ import annotations

from .cluster import EtcdCluster, EtcdMember

__all__ = ["EtcdCluster", "EtcdMember"]
