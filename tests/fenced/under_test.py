"""Guards of holdfast, as the conformance suite wants them: one integer a resource."""

from __future__ import annotations

from holdfast import fenced
from holdfast.fenced import MAX_MARK


class MemoryUnderTest:
    most = MAX_MARK
    transactional = False

    def __init__(self) -> None:
        self.memory: fenced.Memory[int] = fenced.Memory()

    def read(self, resource: str, token: int) -> int | None:
        return self.memory.read((resource, token))

    def write(self, resource: str, token: int, value: int) -> None:
        self.memory.write((resource, token), value)

    def seen(self, resource: str) -> int:
        return self.memory.seen(resource)

    def abandon(self, resource: str, token: int, value: int) -> None:
        raise NotImplementedError
