"""Several addresses of one cluster: the one that served last is asked first, and one that failed, last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...drivers.base import Address

_MOST_SHARES = 3


class Members:
    def __init__(self, addresses: Sequence[Address]) -> None:
        self.addresses = tuple(addresses)
        # A request may wait for one host for so much of its time: one that has fallen silent leaves some for the next.
        self.share = 1 / min(len(self.addresses), _MOST_SHARES)
        self._at = 0  # a single step of the interpreter each: threads may change it as they like

    def in_turn(self) -> Iterator[tuple[Address, int]]:
        """Each once, with the number of those that are left to be tried, itself included."""
        at, count = self._at, len(self.addresses)
        for step in range(count):
            yield self.addresses[(at + step) % count], count - step

    def serves(self, address: Address) -> None:
        self._at = self.addresses.index(address)

    def pass_over(self, address: Address) -> None:
        at = self._at
        if self.addresses[at] == address:
            self._at = (at + 1) % len(self.addresses)
