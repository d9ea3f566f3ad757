"""Locks in Consul: one agent, or several of one cluster."""

from __future__ import annotations

from ...drivers.base import Driver
from .store import ConsulStore
from .url import parse

__all__ = ["ConsulStore", "open_store"]


def open_store(url: str, driver: Driver) -> ConsulStore:
    """`consul://[:token@]host[:8500][,host…][/prefix][?option=value&…]`, `consuls://…` over TLS."""
    return ConsulStore(parse(url), driver)
