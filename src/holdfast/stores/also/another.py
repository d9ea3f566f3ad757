"""The old lock is holdfast's own, at another URL: moving from one store to another."""

from __future__ import annotations

from collections.abc import Sequence

from ...claim import Claim, Grant, Verdict
from ...errors import Unavailable
from ..base import Store
from .old import Kept


class Another:
    mutexes_only = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self._grants: dict[str, Grant] = {}  # by holder

    @property
    def whose(self) -> str:
        return f"{self._store.traits.system}, as before"

    async def take(self, claim: Claim, within: float) -> float:
        answer = await self._store.claim(claim, within)  # in line there, too: looking again keeps the place
        if type(answer) is not Grant:
            return 0.0
        self._grants[claim.holder] = answer
        return answer.ttl

    async def keep(self, claims: Sequence[Claim], within: float) -> Sequence[Kept]:
        held = [grant for claim in claims if (grant := self._grants.get(claim.holder)) is not None]
        verdicts = dict(zip((one.claim.holder for one in held), await self._store.renew(held, within), strict=True))
        return [self._lives(claim, verdicts.get(claim.holder)) for claim in claims]

    def _lives(self, claim: Claim, verdict: Verdict) -> Kept:
        if verdict is None:
            self._grants.pop(claim.holder, None)
        return verdict if isinstance(verdict, Unavailable) else verdict.ttl if verdict is not None else 0.0

    async def give_back(self, claim: Claim, within: float) -> None:
        self._grants.pop(claim.holder, None)  # first: nobody may come back to it
        await self._store.release(claim, within)

    async def is_taken(self, name: str, within: float) -> bool:
        return bool((await self._store.inspect(name, within)).holders)

    def forked(self) -> None:
        self._grants = {}
        self._store.forked()

    async def close(self, within: float) -> None:
        await self._store.close(within)
