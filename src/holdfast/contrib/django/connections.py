"""`locks` and `alocks`: connected when they are first used, by what the settings say at that moment.

They have connections of their own, not Django's: CONN_MAX_AGE, ATOMIC_REQUESTS and a TestCase's rollback do not concern them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from weakref import ref

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
        return self._open.get(key) or self._open.setdefault(key, self._new(*key))

    def _new(self, alias: str, url: Secret) -> L:
        return self._connect(url, label=urls_of_stores.label(alias))  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self[urls_of_stores.DEFAULT], name)

    def __repr__(self) -> str:
        return f"<the locks of settings.HOLDFAST: {', '.join(urls_of_stores.aliases())}>"


class StoresOfLoops(Stores[aio.Locks]):
    """One for each event loop that is open, since under WSGI every asynchronous view has a loop to itself, and many run at once.

    What a loop that is over was connected to, the next one goes on with.
    """

    def __init__(self, connect: Any) -> None:
        super().__init__(connect)
        self._of_loops: dict[tuple[str, Secret], dict[ref[asyncio.AbstractEventLoop], aio.Locks]] = {}

    def __getitem__(self, alias: str) -> aio.Locks:
        try:
            loop = ref(asyncio.get_running_loop())
        except RuntimeError:  # named at import, and used by whatever loop comes
            return super().__getitem__(alias)
        key = alias, urls_of_stores.url(alias)
        used = self._of_loops.setdefault(key, {})
        if loop not in used:
            used[loop] = _left_behind(used) or self._new(*key)
        return used[loop]


def _left_behind(used: dict[ref[asyncio.AbstractEventLoop], aio.Locks]) -> aio.Locks | None:
    for one in list(used):
        loop = one()
        if loop is None or loop.is_closed():
            taken = used.pop(one, None)  # one step: of two threads, one has it
            if taken is not None and not taken._engine.closed:
                return taken
    return None


if TYPE_CHECKING:

    class _Locks(sync.Locks):
        def __getitem__(self, alias: str) -> sync.Locks: ...

    class _AsyncLocks(aio.Locks):
        def __getitem__(self, alias: str) -> aio.Locks: ...

    locks: _Locks
    alocks: _AsyncLocks
else:
    locks = Stores(sync.connect)
    alocks = StoresOfLoops(aio.connect)
