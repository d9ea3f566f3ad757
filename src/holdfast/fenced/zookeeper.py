"""ZooKeeper, with kazoo: guarded get, set and delete, and a check for transactions of your own.

The mark is the node `/holdfast/fence/<name in base64>`. A write is a transaction that checks the *version* of the mark:
when a newer holder has moved the mark, the version has changed, and the whole transaction fails.
"""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import partial
from typing import Any

from ..databases.zookeeper import cause_of
from ..errors import Misuse, Unavailable
from .mark import Ticket, mark_of, refusal, shown

ROOT = "/holdfast/fence"
_ATTEMPTS = 100


def mark_path(resource: str) -> str:
    return f"{ROOT}/{urlsafe_b64encode(resource.encode()).decode()}"


class ZooKeeper:
    """Guarded access under one lease, through a `KazooClient` that is started."""

    def __init__(self, client: Any, ticket: Ticket) -> None:
        if not hasattr(client, "transaction"):
            raise Misuse(f"a KazooClient is wanted, not {type(client).__name__}")
        self._client = client
        self._mark = mark_of(ticket)
        self._path = mark_path(self._mark.resource)

    def __repr__(self) -> str:
        return shown(self, self._mark)

    def get(self, path: str) -> bytes | None:
        """The data of a node, None if there is none; from now on, older tokens are refused."""
        from kazoo.exceptions import NoNodeError

        version = self.seal()
        data: bytes | None
        try:
            data = self._client.get(path)[0]
        except NoNodeError:
            data = None
        # ZooKeeper has no guarded read. But one server answers in order: what we were shown is not newer than this.
        mark = self._client.exists(self._path)
        if mark is None or mark.version != version:
            self.seal()  # says who has been here since
        return data

    def set(self, path: str, data: bytes) -> None:
        """Write a node, creating it (not its parents) if need be."""

        def change(transaction: Any) -> str:
            if self._client.exists(path):
                transaction.set_data(path, data)
                return "set"
            transaction.create(path, data)
            return "create"

        self._commit(path, change)

    def delete(self, path: str) -> bool:
        """Was there one?"""
        there = False

        def change(transaction: Any) -> str:
            nonlocal there
            there = self._client.exists(path) is not None
            if there:
                transaction.delete(path)
            return "delete"

        self._commit(path, change)
        return there

    def seal(self) -> int:
        """Record the token; the version of the mark, for `check`."""
        from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

        for _ in range(_ATTEMPTS):
            self._client.sync(self._path)  # the server that we talk to may lag behind
            data = b"%d %f" % (self._mark.token, time.time())
            try:
                found, status = self._client.get(self._path)
            except NoNodeError:
                try:
                    self._client.create(self._path, data, makepath=True)
                except NodeExistsError:
                    continue
                return 0
            seen, since = found.split()
            if self._mark.token < int(seen):
                raise refusal(self._mark, int(seen), float(since))
            if self._mark.token == int(seen):
                return int(status.version)
            try:
                return int(self._client.set(self._path, data, status.version).version)
            except BadVersionError:
                continue
        raise Unavailable(f"the mark of {self._mark.resource!r} moves too fast: {_ATTEMPTS} attempts failed")

    def check(self, transaction: Any) -> None:
        """Add the check to a transaction of kazoo of your own: committed, it fails once somebody newer has been here."""
        transaction.check(self._path, self.seal())

    def _commit(self, path: str, change: Callable[[Any], str]) -> None:
        """Again when the node came or went in between, or the mark moved: the seal then says whether it was us."""
        from kazoo import exceptions

        for _ in range(_ATTEMPTS):
            transaction = self._client.transaction()
            self.check(transaction)
            what = change(transaction)
            cause = cause_of(transaction.commit())
            if cause is None:
                return
            if what == "create" and isinstance(cause, exceptions.NoNodeError):
                raise Misuse(f"the parent of {path!r} does not exist: create it first") from cause
            if not isinstance(cause, (exceptions.BadVersionError, exceptions.NodeExistsError, exceptions.NoNodeError)):
                raise cause
        raise Unavailable(f"{path!r} or its mark changes too fast: {_ATTEMPTS} attempts failed")


class AsyncZooKeeper:
    """The same for asyncio; kazoo is waited for in a thread."""

    def __init__(self, client: Any, ticket: Ticket) -> None:
        self._guard = ZooKeeper(client, ticket)

    def __repr__(self) -> str:
        return repr(self._guard)

    async def get(self, path: str) -> bytes | None:
        """The data of a node, None if there is none; from now on, older tokens are refused."""
        return await asyncio.to_thread(self._guard.get, path)

    async def set(self, path: str, data: bytes) -> None:
        """Write a node, creating it (not its parents) if need be."""
        await asyncio.to_thread(self._guard.set, path, data)

    async def delete(self, path: str) -> bool:
        """Was there one?"""
        return await asyncio.to_thread(self._guard.delete, path)

    async def seal(self) -> int:
        """Record the token; the version of the mark, for `check`."""
        return await asyncio.to_thread(self._guard.seal)

    async def check(self, transaction: Any) -> None:
        """Add the check to a transaction of kazoo of your own: committed, it fails once somebody newer has been here."""
        await asyncio.to_thread(partial(self._guard.check, transaction))
