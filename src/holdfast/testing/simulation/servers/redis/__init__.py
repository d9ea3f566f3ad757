"""A Redis in virtual time, which runs our Lua scripts as they are. `tests/simulation/servers` holds it to the real one."""

from __future__ import annotations

from .cluster import ClusterNode
from .server import RedisServer

__all__ = ["ClusterNode", "RedisServer"]
