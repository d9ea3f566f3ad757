"""Locks in ZooKeeper: ephemeral nodes in line, tokens from the ensemble's own transaction ids."""

from __future__ import annotations

from ...drivers.base import Driver
from ...errors import NotInstalled
from .url import parse

__all__ = ["open_store"]

try:
    from .store import ZooKeeperStore
except ImportError as error:  # pragma: no cover - the extra is there whenever this is tested
    raise NotInstalled(f"ZooKeeper needs kazoo ({error}): pip install 'holdfast[zookeeper]'") from error


def open_store(url: str, driver: Driver) -> ZooKeeperStore:
    """`zookeeper://[user:password@]host[:port][,host…][/chroot][?option=value&…]`; `zookeepers://…` with TLS."""
    return ZooKeeperStore(parse(url), driver)
