"""What is given back at the end of a `with`, by its own close()."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closes:
    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
