"""Locks in an etcd cluster."""

from __future__ import annotations

from ...drivers.base import Driver
from ...errors import Misuse, NotInstalled
from .url import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .store import EtcdStore

__all__ = ["open_store", "still_held"]


def open_store(url: str, driver: Driver) -> EtcdStore:
    """`etcd[s]://[user:password@]host[:port][,host…][/prefix][?timeout=&ca=&cert=&cert_key=]`."""
    target = parse(url)
    try:
        from .store import EtcdStore
    except ImportError as error:
        raise NotInstalled(f"locks in etcd need hpack ({error}): pip install 'holdfast[etcd]'") from error
    return EtcdStore(target, driver)


def still_held(lease: Any) -> dict[str, str]:
    """A compare for a transaction of your own in the same etcd, as its JSON gateway takes it: true while `lease` is held.

    It needs no mark and no seal, since lock and data are in one store; but it must be in every transaction that writes.
    """
    from base64 import b64encode

    from .store import EtcdStore

    store = lease._engine.store
    if not isinstance(store, EtcdStore):
        raise Misuse(f"the lock {lease.name!r} is not kept in etcd: guard your data with holdfast.fenced.etcd instead")
    lease.check()
    proof = store.proof(lease._grant)
    if proof is None:
        raise Misuse(f"where the lock {lease.name!r} stands is not known just now: its downgrade was not answered")
    key, created = proof
    return {"key": b64encode(key).decode(), "target": "CREATE", "result": "EQUAL", "create_revision": str(created)}
