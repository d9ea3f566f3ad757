"""etcd, through its JSON gateway with httpx: the version of a key is its mod_revision, which etcd itself keeps."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from ...databases.etcd import Json, encode, post
from ...errors import Misuse
from .cells import Cell, KeysOfBytes

Key = str | bytes


class EtcdCells(KeysOfBytes):
    system = "etcd"

    def __init__(self, client: Any) -> None:
        if not hasattr(client, "post"):
            raise Misuse(f"a client of httpx with a base_url is wanted, not {type(client).__name__}")
        self._client = client

    async def read(self, keys: Sequence[Key]) -> list[Cell]:
        """All keys at one revision."""
        answer = await post(self._client, {"success": [{"request_range": {"key": encode(key)}} for key in keys]})
        return [self._cell(key, one) for key, one in zip(keys, answer["responses"], strict=True)]

    @staticmethod
    def _cell(key: Key, answer: Json) -> Cell:
        found = answer["response_range"].get("kvs")
        if not found:
            return Cell(key, 0, None)
        return Cell(key, int(found[0]["mod_revision"]), b64decode(found[0].get("value", "")))

    def after(self, before: object, answer: object) -> bytes:
        if not isinstance(answer, (str, bytes)):
            raise Misuse(f"a change must answer with str or bytes, or None, not with {type(answer).__name__}")
        return answer.encode() if isinstance(answer, str) else answer

    async def write(self, cells: Sequence[Cell], answers: Sequence[str | bytes | None]) -> bool:
        compare = [
            {"key": encode(cell.key), "target": "MOD", "result": "EQUAL", "mod_revision": str(cell.seen)}
            for cell in cells
        ]
        puts = [
            {"request_put": {"key": encode(cell.key), "value": encode(answer)}}
            for cell, answer in zip(cells, answers, strict=True)
            if answer is not None
        ]
        answer = await post(self._client, {"compare": compare, "success": puts})
        return bool(answer.get("succeeded"))
