"""Redis and Valkey: a hash is the row, and its field `version` is the version.

A key that is made anew does not begin at 1 but at the server's time in µs, so that whoever still knows the version of a
deleted one does not take the new one for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...databases.redis import Key, Value, call, checked, pairs
from ...errors import Misuse
from .cells import Cell, KeysOfBytes
from .retry import valid_version

VERSION = "version"
WRITER = (
    "version_by"  # who wrote last: a client that sends a script twice, because the answer was lost, finds itself here
)


class RedisCells(KeysOfBytes):
    system = "Redis"

    def __init__(self, client: Any, world: str) -> None:
        self._client = checked(client, world, __package__ or "")

    async def read(self, keys: Sequence[Key]) -> list[Cell]:
        try:
            found = await call(self._client, __package__ or "", "read", keys)
        except Exception as error:
            if "WRONGTYPE" in str(error):
                raise Misuse(f"one of {', '.join(map(str, keys))} is no hash: {error}") from error
            raise
        return [self._cell(key, pairs(flat)) for key, flat in zip(keys, found, strict=True)]

    @staticmethod
    def _cell(key: Key, fields: dict[Any, Any]) -> Cell:
        row = {name.decode() if isinstance(name, bytes) else name: value for name, value in fields.items()}
        row.pop(WRITER, None)
        version = row.pop(VERSION, None)
        if version is not None:
            digits = version.decode("latin-1") if isinstance(version, bytes) else version
            row[VERSION] = valid_version(int(digits) if digits.lstrip("-").isdigit() else digits, str(key))
        return Cell(key, row.get(VERSION, 0), row)

    def after(self, before: Mapping[str, Any], answer: object) -> dict[str, Any]:
        if not isinstance(answer, Mapping):
            raise Misuse(
                f"a change must answer with a mapping of fields to new values, or None, not with {type(answer).__name__}"
            )
        for name, value in answer.items():
            if not isinstance(name, str) or name in (VERSION, WRITER):
                raise Misuse(
                    f"a field must be a str, and not {VERSION} or {WRITER}, which change by themselves: {name!r}"
                )
            if value is not None and (isinstance(value, bool) or not isinstance(value, (str, bytes, int, float))):
                raise Misuse(f"Redis keeps str, bytes, int and float; the field {name!r} is {type(value).__name__}")
        return {name: value for name, value in {**before, **answer}.items() if value is not None}

    async def write(self, cells: Sequence[Cell], answers: Sequence[Mapping[str, Value | None] | None]) -> bool:
        arguments: list[Value] = [os.urandom(12).hex()]
        for cell, answer in zip(cells, answers, strict=True):
            there = {name: value for name, value in (answer or {}).items() if value is not None}
            gone = [name for name, value in (answer or {}).items() if value is None]
            arguments += [cell.seen, len(there), *(word for pair in there.items() for word in pair), len(gone), *gone]
        return bool(await call(self._client, __package__ or "", "write", [cell.key for cell in cells], *arguments))
