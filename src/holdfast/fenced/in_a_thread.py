"""Content that is read and written in one piece, for asyncio: what it lies on is waited for in a thread."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Content(Protocol):
    def read(self) -> bytes | None: ...
    def write(self, content: bytes) -> None: ...
    def delete(self) -> bool: ...


class InAThread:
    _content: Content

    def __repr__(self) -> str:
        return repr(self._content)

    async def read(self) -> bytes | None:
        """The content, or None if there is none; from now on, older tokens are refused."""
        return await asyncio.to_thread(self._content.read)

    async def write(self, content: bytes) -> None:
        """Replace the content as a whole."""
        await asyncio.to_thread(self._content.write, content)

    async def delete(self) -> bool:
        """Forget the content, never the mark. Was there any?"""
        return await asyncio.to_thread(self._content.delete)
