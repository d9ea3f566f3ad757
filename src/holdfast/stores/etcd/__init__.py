"""Locks in an etcd cluster."""

from __future__ import annotations

from ...drivers.base import Driver
from ...errors import Misuse
from .url import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .store import EtcdStore

__all__ = ["open_store"]


def open_store(url: str, driver: Driver) -> EtcdStore:
    """`etcd[s]://[user:password@]host[:port][,host…][/prefix][?timeout=&ca=&cert=&cert_key=]`."""
    from ...drivers.aio import Asyncio

    target = parse(url)
    try:
        from .store import EtcdStore
        from .wire import BlockingWire
        from .wire_aio import AioWire
    except ImportError as error:
        raise Misuse(f"locks in etcd need h2 ({error}): pip install 'holdfast[etcd]'") from error
    wire = AioWire(target) if isinstance(driver, Asyncio) else BlockingWire(target)
    return EtcdStore(target, wire, driver)
