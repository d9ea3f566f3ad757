"""`locks` and `alocks`: connected when they are first used, by what the settings say at that moment.

They have connections of their own, not Django's: CONN_MAX_AGE, ATOMIC_REQUESTS and a TestCase's rollback do not concern them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ... import aio, sync
from ...secret import Secret
from . import urls_of_stores

L = TypeVar("L", sync.Locks, aio.Locks)


class Stores(Generic[L]):
    """Those of the settings, by alias. What is asked of it directly is asked of the default one."""

    def __init__(self, connect: Any) -> None:
        self._connect = connect
        self._open: dict[tuple[str, Secret], L] = {}

    def __getitem__(self, alias: str) -> L:
        # By the URL too: settings are overridden, and tests begin. No mutex, which a fork might find taken: of two that are
        # made at once, one is used, and the other has sent nothing.
        key = alias, urls_of_stores.url(alias)
        return self._open.get(key) or self._open.setdefault(
            key, self._connect(key[1], label=urls_of_stores.label(alias))
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self[urls_of_stores.DEFAULT], name)

    def __repr__(self) -> str:
        return f"<the locks of settings.HOLDFAST: {', '.join(urls_of_stores.aliases())}>"


if TYPE_CHECKING:

    class _Locks(sync.Locks):
        def __getitem__(self, alias: str) -> sync.Locks: ...

    class _AsyncLocks(aio.Locks):
        def __getitem__(self, alias: str) -> aio.Locks: ...

    locks: _Locks
    alocks: _AsyncLocks
else:
    locks = Stores(sync.connect)
    alocks = Stores(aio.connect)
