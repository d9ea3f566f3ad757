"""The seeds of stores with several members."""

from __future__ import annotations

from .test_seeds import OF_SEVERAL, chunks, keep_their_promises


@chunks(OF_SEVERAL)
def test_no_promise_is_broken(store: str, first: int) -> None:
    keep_their_promises(store, first)
